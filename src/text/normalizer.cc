#include "text/normalizer.h"

#include "text/nfc.h"

namespace quire {
namespace {

std::string_view replace(std::string_view text, std::string_view from, std::string_view to, std::string& out) {
  if (from.empty()) return text;
  size_t found = text.find(from);
  if (found == std::string_view::npos) return text;
  out.clear();
  size_t done = 0;
  for (; found != std::string_view::npos; found = text.find(from, done)) {
    out.append(text, done, found - done).append(to);
    done = found + from.size();
  }
  out.append(text, done);
  return out;
}

}  // namespace

std::string_view Normalizer::apply(std::string_view text, Scratch& scratch) const {
  if (text.empty()) return text;
  int buffer = 0;  // the one that text does not lie in
  for (const Step& step : steps_) {
    std::string& out = scratch.buffers[buffer];
    std::string_view result = text;
    switch (step.kind) {
      case Kind::kNfc:
        result = normalize_nfc(text, out);
        break;
      case Kind::kReplace:
        result = replace(text, step.from, step.to, out);
        break;
      case Kind::kPrepend:
        out.assign(step.to).append(text);
        result = out;
        break;
    }
    if (result.data() != text.data()) buffer = 1 - buffer;
    text = result;
  }
  return text;
}

}  // namespace quire
