// Rows of any number a request: which kernel takes them, in how many parts, and the gathering of contexts.
#include <algorithm>

#include "gpu/numeric.h"
#include "gpu/vector.h"
#include "gpu/wave.h"
#include "kernels/attention/gpu/attention.h"
#include "kernels/attention/gpu/parts.h"
#include "kernels/attention/gpu/rows.h"

namespace quire::gpu {
namespace {

constexpr int kThreads = 256, kWaves = kThreads / kWave;
enum class Kernel : uint8_t { kGeneral, kExtend, kMatrix };

Kernel kernel_of(const AttentionArgs& args, AttentionKernelChoice choice) {
  if (choice == AttentionKernelChoice::kBest && attention_extend_fits(args)) return Kernel::kExtend;
  if ((choice == AttentionKernelChoice::kPortable || kPortableIsBest) && attention_matrix_fits(args))
    return Kernel::kMatrix;
  return Kernel::kGeneral;
}

// How a kernel's work is cut.
struct Cut {
  int32_t blocks;                 // that a multiprocessor runs at a time
  int32_t least_keys, long_keys;  // parts have at least so many keys, and contexts that are cut
};
constexpr Cut cut_of(Kernel kernel) {
  switch (kernel) {
    case Kernel::kExtend:
      return {2, 256, 1024};
    case Kernel::kMatrix:
      return {2, 128, 512};
    default:
      return {4, 64, 256};
  }
}

// How many states a block takes; `resident` blocks run at a time.
int32_t tile_states(Kernel kernel, const AttentionArgs& args, const AttentionRequests& requests, int64_t resident) {
  if (kernel == Kernel::kMatrix) return matrix_tile_states(args, requests, resident);
  const int64_t states = int64_t{requests.tokens} * (args.heads / args.kv.kv_heads);
  // Small tiles where large ones are too few for the card, or would be mostly empty.
  if (kernel == Kernel::kExtend) {
    const int64_t tiles = std::max<int64_t>(ceil_blocks(states, kExtendStates), requests.requests) * args.kv.kv_heads;
    return tiles <= resident ? kSmallExtendStates : kExtendStates;
  }
  return states <= int64_t{requests.requests} * kSmallGeneralStates ? kSmallGeneralStates : kGeneralStates;
}

void launch_parts(Kernel kernel, const AttentionArgs& args, const AttentionRequests& requests,
                  const AttentionParts& parts, int32_t states, Stream& stream) {
  switch (kernel) {
    case Kernel::kExtend:
      return launch_extend(args, requests, parts, states == kSmallExtendStates, stream);
    case Kernel::kMatrix:
      return launch_matrix(args, requests, parts, states, stream);
    case Kernel::kGeneral:
      return launch_general(args, requests, parts, states == kSmallGeneralStates, stream);
  }
}

// One wave for each row and head.
__global__ void __launch_bounds__(kThreads)
    merge_parts(AttentionArgs args, AttentionRequests requests, AttentionParts parts) {
  const int32_t origin = requests.query_offsets[0], rows = requests.query_offsets[requests.requests] - origin;
  const auto lane = static_cast<int32_t>(threadIdx.x) % kWave;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kWaves + threadIdx.x / kWave;
  const int64_t row = index / args.heads;
  const auto head = static_cast<int32_t>(index % args.heads);
  if (row >= rows) return;
  const auto number_of = [&](int32_t part) { return *state_place(parts, args, requests, part, row, head).numbers; };
  float largest = -INFINITY, sum = 0.0f;
  for (int32_t part = lane; part < parts.count; part += kWave) largest = fmaxf(largest, number_of(part).x);
  largest = wave_max(largest);
  if (args.sinks != nullptr) largest = fmaxf(largest, args.sinks[head] * 1.44269504f);
  const float base = largest == -INFINITY ? 0.0f : largest;
  for (int32_t part = lane; part < parts.count; part += kWave) {
    const float2 number = number_of(part);
    sum = fmaf(exp2f(number.x - base), number.y, sum);
  }
  sum = wave_sum(sum);
  if (args.sinks != nullptr) sum += exp2f(args.sinks[head] * 1.44269504f - base);
  for (int32_t dim = lane; dim < args.kv.v_head_dim; dim += kWave) {
    float total = 0.0f;
#pragma unroll 4
    for (int32_t part = 0; part < parts.count; ++part) {
      const StatePlace place = state_place(parts, args, requests, part, row, head);
      const float2 number = *place.numbers;
      // A part without keys has not written its totals.
      if (number.x != -INFINITY || number.y != 0.0f) total = fmaf(exp2f(number.x - base), place.totals[dim], total);
    }
    store_as(args.out.data, args.out.dtype, (origin + row) * args.out.row_stride + head * args.out.head_stride + dim,
             sum == 0.0f ? 0.0f : total / sum);
  }
}

// Where the pages of each request's context begin in the sequence of all: offsets [requests + 1]. One block.
__global__ void __launch_bounds__(kThreads)
    number_pages(AttentionRequests requests, int32_t window, int32_t block_size, int32_t* offsets) {
  __shared__ int32_t sums[kThreads];
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t each = (requests.requests + kThreads - 1) / kThreads;
  const int32_t first = min(thread * each, requests.requests), last = min(first + each, requests.requests);
  const auto pages_of = [&](int32_t r) {
    const int32_t rows = requests.query_offsets[r + 1] - requests.query_offsets[r];
    return context_pages(requests.kv_lens[r] - rows, window, block_size);
  };
  int32_t mine = 0;
  for (int32_t r = first; r < last; ++r) mine += pages_of(r);
  sums[thread] = mine;
  __syncthreads();
  int32_t before = 0;
  for (int32_t t = 0; t < thread; ++t) before += sums[t];
  for (int32_t r = first; r < last; ++r) {
    offsets[r] = before;
    before += pages_of(r);
  }
  if (thread == kThreads - 1) offsets[requests.requests] = before;
}

__device__ inline void copy_block(void* to, const void* from, int64_t bytes) {
  for (int64_t i = threadIdx.x; i < bytes / 16; i += kThreads)
    static_cast<uint4*>(to)[i] = static_cast<const uint4*>(from)[i];
}

struct BlockBytes {
  int64_t k, v, scales;
};

// One block for each page of a round; page p of the round becomes block p of `to`.
__global__ void __launch_bounds__(kThreads)
    gather_pages(PagedKv from, PagedKv to, BlockBytes bytes, AttentionRequests requests, int32_t window,
                 const int32_t* offsets, int32_t first_page) {
  const int32_t page = first_page + static_cast<int32_t>(blockIdx.x);
  if (page >= offsets[requests.requests]) return;
  // The last request that begins at or before the page: those before it with the same begin have no pages.
  int32_t low = 0, high = requests.requests - 1;
  while (low < high) {
    const int32_t middle = (low + high + 1) / 2;
    if (offsets[middle] <= page) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const int32_t rows = requests.query_offsets[low + 1] - requests.query_offsets[low];
  const int32_t context_page =
      first_context_page(requests.kv_lens[low] - rows, window, from.block_size) + page - offsets[low];
  const int64_t source =
      requests.block_tables[requests.block_table_rows[low] * requests.block_table_stride + context_page];
  const int64_t target = blockIdx.x;
  const auto at = [](void* plane, int64_t block, int64_t size) { return static_cast<char*>(plane) + block * size; };
  copy_block(at(to.k, target, bytes.k), at(from.k, source, bytes.k), bytes.k);
  copy_block(at(to.v, target, bytes.v), at(from.v, source, bytes.v), bytes.v);
  if (bytes.scales == 0) return;
  copy_block(at(to.k_scales, target, bytes.scales), at(from.k_scales, source, bytes.scales), bytes.scales);
  copy_block(at(to.v_scales, target, bytes.scales), at(from.v_scales, source, bytes.scales), bytes.scales);
}

BlockBytes block_bytes_of(const PagedKv& kv) {
  return {k_block_bytes(kv), v_block_bytes(kv), block_scales(kv) * static_cast<int64_t>(sizeof(float))};
}

// The parts of the memory, one after another.
struct GatherLayout {
  PagedKv kv;
  int32_t* page_offsets;
  float* states;
  int64_t bytes;

  GatherLayout(const PagedKv& cache, int32_t heads, const GatherMemory& memory) : kv(cache) {
    const BlockBytes block = block_bytes_of(cache);
    kv.blocks = memory.round_tokens / cache.block_size;
    int64_t used = 0;
    const auto take = [&](int64_t size) {
      void* const data = static_cast<char*>(memory.data) + used;
      used += (size + 255) / 256 * 256;
      return data;
    };
    kv.k = take(kv.blocks * block.k);
    kv.v = take(kv.blocks * block.v);
    if (block.scales > 0) {
      kv.k_scales = static_cast<float*>(take(kv.blocks * block.scales));
      kv.v_scales = static_cast<float*>(take(kv.blocks * block.scales));
    }
    page_offsets = static_cast<int32_t*>(take((int64_t{memory.max_requests} + 1) * 4));
    states = static_cast<float*>(take(int64_t{memory.max_tokens} * heads * (cache.v_head_dim + 2) * 4));
    bytes = used;
  }
};

}  // namespace

int64_t attention_row_floats(int32_t v_head_dim, const DeviceInfo& device) {
  const int32_t states =
      std::max({cut_of(Kernel::kExtend).blocks * kSmallExtendStates, cut_of(Kernel::kMatrix).blocks * kMatrixStates,
                cut_of(Kernel::kGeneral).blocks * kGeneralStates});
  return int64_t{device.multiprocessors} * states * (v_head_dim + 2);
}

void attention_rows(const AttentionArgs& args, const AttentionRequests& requests, float* states,
                    const DeviceInfo& device, AttentionKernelChoice choice, Stream& stream) {
  if (requests.requests == 0) return;
  const Kernel kernel = kernel_of(args, choice);
  const Cut cut = cut_of(kernel);
  const int32_t resident = device.multiprocessors * cut.blocks;
  const int32_t tile = tile_states(kernel, args, requests, resident);
  // The extend kernel is cut in small tiles only.
  const int32_t part_tile = kernel == Kernel::kExtend ? kSmallExtendStates : tile;
  const int64_t all_states = int64_t{requests.tokens} * (args.heads / args.kv.kv_heads);
  const int64_t tiles =
      std::max<int64_t>((all_states + part_tile - 1) / part_tile, requests.requests) * args.kv.kv_heads;
  const int64_t room = resident / tiles;
  AttentionParts parts;
  if (room > 1 && requests.max_kv_len >= cut.long_keys) {
    parts.kind = AttentionParts::Kind::kSplit;
    parts.count = static_cast<int32_t>(std::min<int64_t>(room, requests.max_kv_len / cut.least_keys));
    parts.states = states;
  }
  launch_parts(kernel, args, requests, parts, tile, stream);
  if (parts.kind == AttentionParts::Kind::kWhole) return;
  launch(stream, merge_parts, dim3(ceil_blocks(int64_t{requests.tokens} * args.heads, kWaves)), dim3(kThreads), 0, args,
         requests, parts);
}

int64_t attention_gather_bytes(const PagedKv& kv, int32_t heads, const GatherMemory& memory) {
  return GatherLayout(kv, heads, memory).bytes;
}

void attention_gathered_rows(const AttentionArgs& args, const AttentionRequests& requests, const GatherMemory& memory,
                             AttentionKernelChoice choice, Stream& stream) {
  if (requests.requests == 0) return;
  const Kernel kernel = kernel_of(args, choice);
  // Every launch goes over the same tiles. Some card has so many blocks.
  constexpr int32_t kManyBlocks = 256;
  const int32_t tile = kernel == Kernel::kMatrix   ? matrix_tile_states(args, requests, kManyBlocks)
                       : kernel == Kernel::kExtend ? kExtendStates
                                                   : kGeneralStates;
  const GatherLayout layout(args.kv, args.heads, memory);
  const int32_t block_size = args.kv.block_size, pages = memory.round_tokens / block_size;
  launch(stream, number_pages, dim3(1), dim3(kThreads), 0, requests, args.window, block_size, layout.page_offsets);
  AttentionParts parts;
  parts.states = layout.states;
  parts.page_offsets = layout.page_offsets;
  parts.kind = AttentionParts::Kind::kRound;
  parts.pages = pages;
  AttentionArgs gathered = args;
  gathered.kv = layout.kv;
  // Lengths are known on the device only: as many rounds as there can be. Those without pages do nothing.
  const int64_t most = int64_t{requests.requests} * (requests.max_kv_len / block_size);
  for (int64_t first = 0; first < most; first += pages) {
    parts.first_page = static_cast<int32_t>(first);
    launch(stream, gather_pages, dim3(static_cast<unsigned>(pages)), dim3(kThreads), 0, args.kv, layout.kv,
           block_bytes_of(args.kv), requests, args.window, layout.page_offsets, parts.first_page);
    launch_parts(kernel, gathered, requests, parts, tile, stream);
  }
  parts.kind = AttentionParts::Kind::kRest;
  launch_parts(kernel, args, requests, parts, tile, stream);
}

}  // namespace quire::gpu
