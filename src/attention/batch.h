#pragma once
// The neutral description of one step's attention work (design.md section 4). Requests are ordered decode, extend,
// prefill.
#include <cstdint>
#include <span>

namespace quire {

enum class Phase : uint8_t { kDecode, kExtend, kPrefill };

// The one place where a request's phase is decided. decode_threshold: most tokens of a decode (1 without speculation).
constexpr Phase phase_of(int64_t context_len, int64_t query_len, int64_t decode_threshold) {
  if (context_len == 0) return Phase::kPrefill;
  return query_len <= decode_threshold ? Phase::kDecode : Phase::kExtend;
}

struct PhaseRange {
  int32_t first_request = 0, requests = 0;
  int32_t first_token = 0, tokens = 0;
  int32_t max_query_len = 0, max_kv_len = 0;  // may be upper bounds
};

// Views into the step's staging buffer; valid for the step.
struct AttentionBatch {
  std::span<const int32_t> query_offsets;  // [requests + 1], first token of each request in the step's rows
  std::span<const int32_t> kv_lens;        // [requests], context_len + query_len
  const int32_t* block_tables = nullptr;   // persistent table, rows of block_table_stride blocks
  int64_t block_table_stride = 0;
  std::span<const int32_t> block_table_rows;  // [requests], the row of block_tables that belongs to each request
  std::span<const int64_t> slots;             // [tokens], -1 = write nothing
  PhaseRange decode, extend, prefill;
};

}  // namespace quire
