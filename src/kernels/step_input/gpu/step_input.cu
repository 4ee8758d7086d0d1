#include "gpu/vector.h"
#include "kernels/step_input/gpu/step_input.h"

namespace quire::gpu {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) apply_deltas(StepInputArgs args) {
  for (int d = static_cast<int>(blockIdx.x); d < args.delta_count; d += static_cast<int>(gridDim.x)) {
    const BlockTableDelta delta = args.deltas[d];
    int32_t* to = args.block_tables + delta.row * args.block_table_stride + delta.first;
    const int32_t* from = args.delta_blocks + delta.offset;
    for (int i = static_cast<int>(threadIdx.x); i < delta.count; i += kThreads) to[i] = from[i];
  }
}

// The last request that begins at or before the token; padding requests begin where the tokens end, or are empty.
__device__ inline int request_of(const int32_t* offsets, int requests, int token) {
  int low = 0, high = requests;  // offsets[low] <= token < offsets[high], as far as there is such a high
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (offsets[middle] <= token ? low : high) = middle;
  }
  return low;
}

__global__ void __launch_bounds__(kThreads) place_tokens(StepInputArgs args) {
  const int token = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (token >= args.tokens) return;
  const int32_t staged = args.staged_ids[token];
  args.token_ids[token] = staged >= 0 ? staged : args.sampled[-1 - staged];
  int32_t position = 0;
  int64_t slot = -1;
  if (args.requests > 0 && token < args.query_offsets[args.requests]) {
    const int request = request_of(args.query_offsets, args.requests, token);
    const int32_t kv_len = args.kv_lens[request];
    if (kv_len > 0) {
      position = kv_len - args.query_offsets[request + 1] + token;
      const int64_t row = args.block_table_rows[request] * args.block_table_stride;
      const int64_t block = args.block_tables[row + position / args.block_size];
      slot = block * args.block_size + position % args.block_size;
    }
  }
  args.positions[token] = position;
  args.slots[token] = slot;
}

}  // namespace

void prepare_step(const StepInputArgs& args, Stream& stream) {
  if (args.delta_count > 0) {
    gpu::launch(stream, apply_deltas, dim3(grid_rows(args.delta_count)), dim3(kThreads), 0, args);
  }
  if (args.tokens > 0)
    gpu::launch(stream, place_tokens, dim3(ceil_blocks(args.tokens, kThreads)), dim3(kThreads), 0, args);
}

}  // namespace quire::gpu
