#pragma once
// Causal attention over the paged cache on the GPU. Every pointer, those inside AttentionArgs too, is of device memory;
// lengths are read there, so a launch serves any contents of the same buffers. Nothing allocates, copies or waits.
#include <cstdint>

#include "gpu/device.h"
#include "gpu/stream.h"
#include "kernels/attention/attention.h"

namespace quire::gpu {

// Neighbouring requests of a step. Row query_offsets[i] ... of q and out are the newest positions of request i; one
// with kv_len 0 (padding) gets rows of 0.
struct AttentionRequests {
  const int32_t* query_offsets = nullptr;  // [requests + 1]
  const int32_t* kv_lens = nullptr;        // [requests]
  const int32_t* block_tables = nullptr;
  int64_t block_table_stride = 0;
  const int32_t* block_table_rows = nullptr;  // [requests]
  int32_t requests = 0;
  int32_t first_token = 0;
  int32_t tokens = 0;      // of all requests, at most
  int32_t max_kv_len = 0;  // at most
};

// Which kernels may take a shape that more than one fits. NVIDIA's own ones take K, V and q of one 16-bit type, heads
// of 64 or 128 of both and a positive scale. The one on any vendor's matrix instructions takes q and out of one 16-bit
// type, K and V of the same type or of 8 bits, and heads of multiples of 8 up to 256; it is the best there is on AMD's
// cards. Whatever is left is done in f32.
enum class AttentionKernelChoice : uint8_t {
  kBest,
  kPortable,  // those that every vendor has
};

// Any number of rows a request, any shape that paged_backend_refusals lets pass. Few rows of long contexts are cut
// along the keys. states: attention_row_floats.
int64_t attention_row_floats(int32_t v_head_dim, const DeviceInfo& device);
void attention_rows(const AttentionArgs& args, const AttentionRequests& requests, float* states,
                    const DeviceInfo& device, AttentionKernelChoice choice, Stream& stream);

// The same, but context that fills pages is gathered first, in rounds of kGatherTokens, all requests together. The size
// of the memory follows from the other fields: attention_gather_bytes.
struct GatherMemory {
  int32_t max_requests = 0, max_tokens = 0, round_tokens = 0;
  void* data = nullptr;
};
int64_t attention_gather_bytes(const PagedKv& kv, int32_t heads, const GatherMemory& memory);
void attention_gathered_rows(const AttentionArgs& args, const AttentionRequests& requests, const GatherMemory& memory,
                             AttentionKernelChoice choice, Stream& stream);

// What decodes share keys with: blocks of the grid, the states of rows that more than one of them works on, and a
// counter for each such row, zero before the first launch and after every one. Launches that use the same memory follow
// each other.
struct DecodeSplit {
  int32_t blocks = 0;
  float* states = nullptr;       // attention_decode_state_floats
  uint32_t* counters = nullptr;  // attention_decode_counters
};
int32_t attention_decode_blocks(const DeviceInfo& device);
int64_t attention_decode_state_floats(int32_t v_head_dim, int32_t blocks);
int64_t attention_decode_counters(int32_t heads, int32_t kv_heads, int32_t max_requests);

// One row a request, row first_token + i of q and out. It fits K, V and q of one 16-bit type and heads of 64 or 128 of
// both, with NVIDIA only: elsewhere attention_rows() has tiles for decodes.
bool attention_decode_fits(const AttentionArgs& args);
void attention_decode(const AttentionArgs& args, const AttentionRequests& requests, const DecodeSplit& split,
                      Stream& stream);

}  // namespace quire::gpu
