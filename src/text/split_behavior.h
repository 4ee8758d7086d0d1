#pragma once
// Makes the words of a text from the matches of a pattern.
#include <vector>

#include "text/pre_tokenizer.h"

namespace quire {

// Adds one span, or joins it with the one before, as the behavior asks.
class SpanWriter {
 public:
  SpanWriter(SplitBehavior behavior, std::vector<TextSpan>& out) : behavior_(behavior), out_(out), first_(out.size()) {}

  void add(TextSpan span, bool is_match) {
    if (span.begin == span.end) return;
    const bool has_previous = out_.size() > first_;
    switch (behavior_) {
      case SplitBehavior::kRemoved:
        if (!is_match) out_.push_back(span);
        break;
      case SplitBehavior::kIsolated:
        out_.push_back(span);
        break;
      case SplitBehavior::kMergedWithPrevious:
        if (is_match && has_previous && !previous_is_match_) {
          out_.back().end = span.end;
        } else {
          out_.push_back(span);
        }
        break;
      case SplitBehavior::kMergedWithNext:
        if (!is_match && has_previous && previous_is_match_) {
          out_.back().end = span.end;
        } else {
          out_.push_back(span);
        }
        break;
      case SplitBehavior::kContiguous:
        if (has_previous && previous_is_match_ == is_match) {
          out_.back().end = span.end;
        } else {
          out_.push_back(span);
        }
        break;
    }
    previous_is_match_ = is_match;
  }

 private:
  SplitBehavior behavior_;
  std::vector<TextSpan>& out_;
  size_t first_;
  bool previous_is_match_ = false;
};

// Walks over all matches: find(from, match) gives the first that starts at or after from, within the whole.
template <class Find>
void split_by(TextSpan whole, SplitBehavior behavior, bool invert, std::vector<TextSpan>& out, Find&& find) {
  SpanWriter writer(behavior, out);
  uint32_t done = whole.begin;
  for (TextSpan match; done < whole.end && find(done, match);) {
    writer.add({done, match.begin}, invert);
    writer.add(match, !invert);
    done = match.end;
  }
  writer.add({done, whole.end}, invert);
}

}  // namespace quire
