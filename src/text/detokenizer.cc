#include "text/detokenizer.h"

#include <algorithm>
#include <utility>

#include "text/unicode.h"

namespace quire {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, Options options)
    : tokenizer_(tokenizer),
      skip_special_tokens_(options.skip_special_tokens),
      include_stop_string_(options.include_stop_string),
      min_tokens_(options.min_tokens) {
  for (size_t i = 0; i < options.stop.size(); ++i) {
    if (options.stop[i].empty()) continue;
    Stop stop{i, std::move(options.stop[i]), {}};
    stop.border.assign(stop.text.size(), 0);
    for (uint32_t at = 1, length = 0; at < stop.text.size(); ++at) {
      while (length > 0 && stop.text[at] != stop.text[length]) length = stop.border[length - 1];
      if (stop.text[at] == stop.text[length]) ++length;
      stop.border[at] = length;
    }
    if (!include_stop_string_) held_back_ = std::max(held_back_, stop.text.size() - 1);
    stops_.push_back(std::move(stop));
  }
}

bool Detokenizer::Stop::advance(char c) {
  if (matched == text.size()) matched = border[matched - 1];
  while (matched > 0 && text[matched] != c) matched = border[matched - 1];
  if (text[matched] == c) ++matched;
  return matched == text.size();
}

std::optional<size_t> Detokenizer::find_stop(size_t from) {
  const bool counts = tokens_ > min_tokens_;
  for (size_t at = from; at < text_.size(); ++at) {
    const Stop* first = nullptr;
    for (Stop& stop : stops_) {
      if (stop.advance(text_[at]) && first == nullptr) first = &stop;
    }
    if (first == nullptr || !counts) continue;
    text_.resize(include_stop_string_ ? at + 1 : at + 1 - first->text.size());
    return first->index;
  }
  return std::nullopt;
}

std::optional<size_t> Detokenizer::push(int32_t id) {
  if (done_) return std::nullopt;
  ++tokens_;
  if (skip_special_tokens_ && tokenizer_.is_special(id)) return std::nullopt;
  std::string_view bytes = tokenizer_.token_bytes(id);
  const size_t before = text_.size();
  if (!pending_.empty()) bytes = pending_.append(bytes);
  const size_t left = append_lossy_utf8(text_, bytes, true);
  pending_ = std::string(bytes.substr(bytes.size() - left));
  if (stops_.empty()) return std::nullopt;
  const std::optional<size_t> stop = find_stop(before);
  if (stop) {
    done_ = true;
    pending_.clear();
    shown_ = std::min(shown_, text_.size());
  }
  return stop;
}

void Detokenizer::finish() {
  if (done_) return;
  done_ = true;
  append_lossy_utf8(text_, pending_);
  pending_.clear();
}

std::string_view Detokenizer::take() {
  size_t end = text_.size();
  if (!done_) {
    end -= std::min(end, held_back_);
    while (end > shown_ && end < text_.size() && (static_cast<uint8_t>(text_[end]) & 0xC0) == 0x80) --end;
  }
  if (end <= shown_) return {};
  const std::string_view shown(text_.data() + shown_, end - shown_);
  shown_ = end;
  return shown;
}

}  // namespace quire
