#include "engine/step_order.h"

#include <algorithm>
#include <utility>

namespace quire {

void StepOrder::set(const std::vector<ScheduledSequence>& step, int64_t decode_threshold) {
  sequences.clear();
  tokens = 0;
  for (const auto& [phase, range] :
       {std::pair{Phase::kDecode, &decode}, std::pair{Phase::kExtend, &extend}, std::pair{Phase::kPrefill, &prefill}}) {
    *range = {};
    range->first_request = static_cast<int32_t>(sequences.size());
    range->first_token = tokens;
    for (const ScheduledSequence& scheduled : step) {
      if (phase_of(scheduled.start, scheduled.query_len, decode_threshold) != phase) continue;
      sequences.push_back(&scheduled);
      const auto query_len = static_cast<int32_t>(scheduled.query_len);
      tokens += query_len;
      range->max_query_len = std::max(range->max_query_len, query_len);
      range->max_kv_len = std::max(range->max_kv_len, static_cast<int32_t>(scheduled.start) + query_len);
    }
    range->requests = static_cast<int32_t>(sequences.size()) - range->first_request;
    range->tokens = tokens - range->first_token;
  }
}

}  // namespace quire
