#include "attention/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace quire {
namespace {

void require(bool holds, const char* rule, int64_t request) {
  if (!holds) throw std::logic_error(fmt::format("attention batch, request {}: {}", request, rule));
}

bool all_padded(const AttentionBatch& batch, int32_t first, int32_t end) {
  return std::all_of(batch.slots.begin() + first, batch.slots.begin() + end, [](int64_t slot) { return slot == -1; });
}

void check_range(const AttentionBatch& batch, const PhaseRange& range, Phase phase, int32_t decode_threshold) {
  for (int32_t i = range.first_request; i < range.first_request + range.requests; ++i) {
    const auto r = static_cast<size_t>(i);
    const int32_t first = batch.query_offsets[r], end = batch.query_offsets[r + 1], query_len = end - first,
                  kv_len = batch.kv_lens[r];
    require(query_len > 0, "query offsets must ascend", i);
    require(query_len <= range.max_query_len, "more queries than the phase's max_query_len", i);
    require(kv_len <= range.max_kv_len, "more keys than the phase's max_kv_len", i);
    if (kv_len == 0) {
      require(all_padded(batch, first, end), "a row without keys must have slot -1", i);
      continue;
    }
    require(query_len <= kv_len, "more queries than keys", i);
    require(phase_of(kv_len - query_len, query_len, decode_threshold) == phase, "in the wrong phase", i);
    require(batch.block_table_rows[r] >= 0, "no block table row", i);
  }
}

}  // namespace

void check_batch(const AttentionBatch& batch) {
  const auto requests = static_cast<int32_t>(batch.kv_lens.size());
  if (requests == 0) return;
  require(batch.query_offsets.size() == batch.kv_lens.size() + 1 && batch.query_offsets[0] == 0,
          "offsets must start at 0, one more than requests", 0);
  require(batch.block_table_rows.size() == batch.kv_lens.size(), "one block table row a request", 0);
  require(static_cast<int64_t>(batch.slots.size()) == batch.query_offsets.back(), "one slot a token", requests);
  int32_t request = 0, token = 0;
  for (const PhaseRange* range : {&batch.decode, &batch.extend, &batch.prefill}) {
    if (range->requests == 0) continue;
    require(range->first_request == request && range->first_token == token, "phases must follow each other in order",
            request);
    request += range->requests;
    token += range->tokens;
    require(request <= requests && batch.query_offsets[static_cast<size_t>(request)] == token,
            "a phase's tokens must be those of its requests", request);
  }
  require(request == requests, "phases must cover the batch", request);
  const int32_t decode_threshold = std::max(1, batch.decode.max_query_len);
  if (batch.decode.requests > 0) check_range(batch, batch.decode, Phase::kDecode, decode_threshold);
  if (batch.extend.requests > 0) check_range(batch, batch.extend, Phase::kExtend, decode_threshold);
  if (batch.prefill.requests > 0) check_range(batch, batch.prefill, Phase::kPrefill, decode_threshold);
}

}  // namespace quire
