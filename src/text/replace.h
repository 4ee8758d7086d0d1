#pragma once
// Replaces what is found in a text.
#include <cstddef>
#include <string>
#include <string_view>

#include "text/normalizer.h"

namespace quire {

// text with each match replaced by `to`: out, or text itself where nothing matches. find(from, begin, end) says whether
// there is a match that starts at or after from, and where; a match is not empty. Throws Error(kInvalidArgument) when
// out grows beyond limit bytes.
template <class Find>
std::string_view replace_matches(std::string_view text, std::string_view to, size_t limit, std::string& out,
                                 Find&& find) {
  out.clear();
  size_t done = 0, begin = 0, end = 0;
  while (done < text.size() && find(done, begin, end)) {
    out.append(text, done, begin - done).append(to);
    check_normalized_size(out.size(), limit);
    done = end;
  }
  if (done == 0) return text;
  out.append(text, done);
  return out;
}

// The same for each place where text holds `from`; an empty one is nowhere.
inline std::string_view replace_literal(std::string_view text, std::string_view from, std::string_view to, size_t limit,
                                        std::string& out) {
  if (from.empty()) return text;
  return replace_matches(text, to, limit, out, [&](size_t at, size_t& begin, size_t& end) {
    begin = text.find(from, at);
    end = begin + from.size();
    return begin != std::string_view::npos;
  });
}

}  // namespace quire
