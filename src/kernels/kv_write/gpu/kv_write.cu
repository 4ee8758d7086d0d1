#include <algorithm>

#include "gpu/shared_memory.h"
#include "gpu/vector.h"
#include "gpu/wave.h"
#include "kernels/kv_write/gpu/kv_write.h"

namespace quire::gpu {
namespace {

// A block takes a tile of tokens: one head of K or of V, or some heads of q. K and V pass through shared memory as
// floats, so that neighbouring threads store neighbouring bytes of the cache whatever its layout: in the shuffle layout
// these are of neighbouring tokens.
constexpr int kTokens = 8, kLanes = 16, kThreads = kTokens * kLanes;
constexpr int kQueryHeads = 4;   // that a thread rotates by the same angles
constexpr int kQueryGroups = 2;  // of so many heads, in a block

struct Plane {
  const void* source;  // row i, head h at source + i * row_stride + h * head_stride elements
  int64_t row_stride, head_stride;
  void* cache;
  float* scales;
  int dim, stored_dim;
  bool by_pack;  // 16 bytes of a head are neighbours in the cache and lie at a multiple of 16
};

struct WriteArgs {
  Plane k, v;
  const int64_t* slots;
  int64_t m;
  int kv_heads, block_size;
  int block_shift;  // block_size = 1 << block_shift, or -1
  KvLayout layout;
  KvScaling scaling;
  // Where q and K are rotated:
  const float* cos;
  const float* sin;
  int half;
  bool interleaved;
  void* q;
  int64_t q_stride;
  int heads;
  int first_role;  // roles: kv_heads of K, kv_heads of V, groups of query heads
};

// Floats from one token's row to the next: free of bank conflicts across tokens.
constexpr int tile_stride(int dim) { return (dim + 31) / 32 * 32 + 4; }

// The same roundings as on the CPU: nothing is fused.
template <int kUnit>
__device__ inline void rotate(float (&a)[kUnit], float (&b)[kUnit], const float (&cos)[kUnit],
                              const float (&sin)[kUnit]) {
#pragma unroll
  for (int i = 0; i < kUnit; ++i) {
    const float first = __fsub_rn(__fmul_rn(a[i], cos[i]), __fmul_rn(b[i], sin[i]));
    b[i] = __fadd_rn(__fmul_rn(b[i], cos[i]), __fmul_rn(a[i], sin[i]));
    a[i] = first;
  }
}

// Pairs that are rotated together are (d, d + half), or neighbours: these come as two runs of memory, and go back so.
template <int kUnit>
__device__ inline void split_pairs(float (&a)[kUnit], float (&b)[kUnit]) {
  float x[2 * kUnit];
#pragma unroll
  for (int i = 0; i < kUnit; ++i) x[i] = a[i], x[kUnit + i] = b[i];
#pragma unroll
  for (int i = 0; i < kUnit; ++i) a[i] = x[2 * i], b[i] = x[2 * i + 1];
}
template <int kUnit>
__device__ inline void join_pairs(float (&a)[kUnit], float (&b)[kUnit]) {
  float x[2 * kUnit];
#pragma unroll
  for (int i = 0; i < kUnit; ++i) x[2 * i] = a[i], x[2 * i + 1] = b[i];
#pragma unroll
  for (int i = 0; i < kUnit; ++i) a[i] = x[i], b[i] = x[kUnit + i];
}

template <int kUnit, bool kInterleaved, class T>
__device__ inline void rotate_queries(const WriteArgs& args, int64_t token, int lane, int group_of_block) {
  constexpr int kGroupLanes = kLanes / kQueryGroups;
  const int first_head = (group_of_block * kQueryGroups + lane / kGroupLanes) * kQueryHeads;
  if (token >= args.m || first_head >= args.heads) return;
  const int head_dim = 2 * args.half, second = kInterleaved ? kUnit : args.half;
  T* first = static_cast<T*>(args.q) + token * args.q_stride + static_cast<int64_t>(first_head) * head_dim;
#pragma unroll 1  // one round does for heads of 128
  for (int j = lane % kGroupLanes * kUnit; j < args.half; j += kGroupLanes * kUnit) {
    T* head = first + (kInterleaved ? 2 * j : j);
    // What is loaded stays packed until its turn comes: fewer registers, more threads.
    Packed<T, kUnit> a_packed[kQueryHeads], b_packed[kQueryHeads];
#pragma unroll
    for (int h = 0; h < kQueryHeads; ++h) {
      if (first_head + h >= args.heads) break;
      a_packed[h] = Packed<T, kUnit>::load(head + h * head_dim);
      b_packed[h] = Packed<T, kUnit>::load(head + h * head_dim + second);
    }
    float cos[kUnit], sin[kUnit];
    load_floats(args.cos + token * args.half + j, cos);
    load_floats(args.sin + token * args.half + j, sin);
#pragma unroll
    for (int h = 0; h < kQueryHeads; ++h) {
      if (first_head + h >= args.heads) break;
      float a[kUnit], b[kUnit];
      a_packed[h].unpack(a);
      b_packed[h].unpack(b);
      if (kInterleaved) split_pairs(a, b);
      rotate(a, b, cos, sin);
      if (kInterleaved) join_pairs(a, b);
      store_floats(a, head + h * head_dim);
      store_floats(b, head + h * head_dim + second);
    }
  }
}

template <int kUnit>
__device__ inline uint32_t larger_magnitude(const float (&x)[kUnit], uint32_t largest) {
#pragma unroll
  for (int i = 0; i < kUnit; ++i) largest = max(largest, __float_as_uint(x[i]) & 0x7fffffff);
  return largest;
}

// A lane's part of one head of a token as floats in `row`, zeros after it up to what is stored. Returns the bits of its
// largest magnitude; a NaN is the largest of all.
template <int kUnit, bool kTurn, class T>
__device__ inline uint32_t load_row(const WriteArgs& args, const Plane& plane, int64_t token, int lane, int head,
                                    float* row) {
  uint32_t largest = 0;
  const T* source = static_cast<const T*>(plane.source) + token * plane.row_stride + head * plane.head_stride;
  if constexpr (kTurn) {
    const int second = args.interleaved ? kUnit : args.half;
#pragma unroll 1
    for (int j = lane * kUnit; j < args.half; j += kLanes * kUnit) {
      const int first = args.interleaved ? 2 * j : j;
      float a[kUnit], b[kUnit], cos[kUnit], sin[kUnit];
      load_floats(source + first, a);
      load_floats(source + first + second, b);
      load_floats(args.cos + token * args.half + j, cos);
      load_floats(args.sin + token * args.half + j, sin);
      if (args.interleaved) split_pairs(a, b);
      rotate(a, b, cos, sin);
      if (args.interleaved) join_pairs(a, b);
      store_floats(a, row + first);
      store_floats(b, row + first + second);
      largest = larger_magnitude(b, larger_magnitude(a, largest));
    }
  } else {
#pragma unroll 1
    for (int d = lane * kUnit; d < plane.dim; d += kLanes * kUnit) {
      float x[kUnit];
      load_floats(source + d, x);
      store_floats(x, row + d);
      largest = larger_magnitude(x, largest);
    }
  }
#pragma unroll 1
  for (int d = plane.dim + lane; d < plane.stored_dim; d += kLanes) row[d] = 0;
  return largest;
}

template <class C>
__device__ inline float largest_of() {
  constexpr DType kType = DTypeOf<C>::value;
  return kType == DType::kF8E4M3 ? 448.0f : kType == DType::kF8E5M2 ? 57344.0f : 127.0f;
}

// A scale of 0, or one so small that its inverse is none: the head is as good as 0.
__device__ inline float inverse_of(float scale) {
  const float inverse = 1.0f / scale;
  return fabsf(inverse) == bits_to_float(0x7f800000) ? 0.0f : inverse;
}

struct BlockSlot {
  int64_t block;
  int in_block;
};
__device__ inline BlockSlot block_slot(const WriteArgs& args, int64_t slot) {
  if (args.block_shift >= 0) return {slot >> args.block_shift, static_cast<int>(slot) & (args.block_size - 1)};
  const int64_t block = slot / args.block_size;
  return {block, static_cast<int>(slot - block * args.block_size)};
}

// Where the token's head begins in the cache, in elements; an element's step in it, or a pack's.
template <class C>
struct Place {
  static constexpr int kPack = 16 / static_cast<int>(sizeof(C));

  __device__ static int64_t begin(const WriteArgs& args, const Plane& plane, bool is_k, int64_t slot, int head) {
    if (args.layout == KvLayout::kPlain) return (slot * args.kv_heads + head) * plane.dim;
    const BlockSlot at = block_slot(args, slot);
    const int64_t block_head = at.block * args.kv_heads + head;
    if (is_k) return (block_head * (plane.stored_dim / kPack) * args.block_size + at.in_block) * kPack;
    return (block_head * (args.block_size / kPack) + at.in_block / kPack) * plane.dim * kPack + at.in_block % kPack;
  }
  __device__ static int64_t step(const WriteArgs& args, const Plane& plane) {
    if (args.layout == KvLayout::kPlain) return plane.by_pack ? kPack : 1;
    return plane.by_pack ? static_cast<int64_t>(args.block_size) * kPack : kPack;
  }
};

__device__ inline int64_t scale_place(const WriteArgs& args, int64_t slot, int head) {
  if (args.scaling == KvScaling::kHead) return head;
  if (args.scaling != KvScaling::kTokenHead) return 0;
  const BlockSlot at = block_slot(args, slot);
  return (at.block * args.kv_heads + head) * args.block_size + at.in_block;
}

// `valid`: how many of the elements are of the head, the rest is padding.
template <class C, int kElements>
__device__ inline void store_elements(const float* row, float inverse, int valid, C* destination) {
  float values[kElements];
  load_floats(row, values);
  if constexpr (sizeof(C) == 1) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) values[i] = i < valid ? __fmul_rn(values[i], inverse) : 0.0f;
  }
  store_floats(values, destination);
}

template <class C>
__device__ inline void store_tile(const WriteArgs& args, const Plane& plane, const float* tile, int stride,
                                  const int64_t* begins, const float* inverses) {
  constexpr int kPack = Place<C>::kPack;
  const auto thread = static_cast<int>(threadIdx.x);
  const bool tokens_first = args.layout == KvLayout::kShuffle;
  const int t = tokens_first ? thread % kTokens : thread / kLanes;
  const int lane = tokens_first ? thread / kTokens : thread % kLanes;
  if (begins[t] < 0) return;
  const int64_t step = Place<C>::step(args, plane);
  const float inverse = inverses[t];
  const float* row = tile + t * stride;
  C* to = static_cast<C*>(plane.cache) + begins[t] + lane * step;
  if (plane.by_pack) {
#pragma unroll 1
    for (int d = lane * kPack; d < plane.stored_dim; d += kLanes * kPack, to += kLanes * step) {
      store_elements<C, kPack>(row + d, inverse, plane.dim - d, to);
    }
  } else {
#pragma unroll 4
    for (int d = lane; d < plane.dim; d += kLanes, to += kLanes * step) store_elements<C, 1>(row + d, inverse, 1, to);
  }
}

// kRotate: q and K are rotated.
template <class T, class C, int kUnit, bool kRotate>
__global__ void __launch_bounds__(kThreads, resident(kThreads, sizeof(T) == 2 ? (kRotate ? 6 : 10) : 4))
    write_kernel(const WriteArgs args) {
  __shared__ int64_t begins[kTokens];
  __shared__ float inverses[kTokens];
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int role = args.first_role + static_cast<int>(blockIdx.x);
  const int64_t first_token = (static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y) * kTokens;
  const int t = static_cast<int>(threadIdx.x) / kLanes, lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t token = first_token + t;
  if (kRotate && role >= 2 * args.kv_heads) {
    const int group = role - 2 * args.kv_heads;
    if (args.interleaved) {
      rotate_queries<kUnit, true, T>(args, token, lane, group);
    } else {
      rotate_queries<kUnit, false, T>(args, token, lane, group);
    }
    return;
  }
  const bool is_k = role < args.kv_heads;
  const Plane plane = is_k ? args.k : args.v;
  const int head = is_k ? role : role - args.kv_heads;
  auto* tile = dynamic_shared_memory<float>();
  const int stride = tile_stride(plane.stored_dim);
  int64_t slot = -1;
  uint32_t largest = 0;
  float scale = 1;
  if (token < args.m) {
    slot = args.slots[token];
    if constexpr (sizeof(C) == 1) {
      if (args.scaling != KvScaling::kTokenHead) scale = plane.scales[scale_place(args, 0, head)];
    }
    float* row = tile + t * stride;
    largest = kRotate && is_k ? load_row<kUnit, kRotate, T>(args, plane, token, lane, head, row)
                              : load_row<kUnit, false, T>(args, plane, token, lane, head, row);
  }
  if constexpr (sizeof(C) == 1) {
    if (args.scaling == KvScaling::kTokenHead) {
#pragma unroll
      for (int mask = kLanes / 2; mask > 0; mask /= 2) largest = max(largest, shuffle_xor(largest, mask));
      scale = bits_to_float(largest) / largest_of<C>();
    }
  }
  if (lane == 0) {
    begins[t] = slot < 0 ? -1 : Place<C>::begin(args, plane, is_k, slot, head);
    if constexpr (sizeof(C) == 1) {
      inverses[t] = inverse_of(scale);
      if (args.scaling == KvScaling::kTokenHead && slot >= 0) plane.scales[scale_place(args, slot, head)] = scale;
    }
  }
  __syncthreads();
  store_tile<C>(args, plane, tile, stride, begins, inverses);
}

// Whether units of 8 elements are at multiples of 16 bytes.
bool in_units(const Plane& plane, int64_t element_bytes) {
  return plane.dim % 8 == 0 && is_aligned_16(plane.source) && plane.row_stride * element_bytes % 16 == 0 &&
         plane.head_stride * element_bytes % 16 == 0;
}

template <bool kRotate>
void launch_write(const WriteArgs& args, DType input, DType cache, bool units, int64_t roles, Stream& stream) {
  // Roles first: blocks that run at the same time share tokens, and with them the angles.
  constexpr int64_t kMostRows = 1 << 15;
  const int64_t tiles = (args.m + kTokens - 1) / kTokens, rows = std::min(tiles, kMostRows);
  const dim3 grid(static_cast<unsigned>(roles), static_cast<unsigned>(rows), ceil_blocks(tiles, rows));
  const int stride = std::max(tile_stride(args.k.stored_dim), tile_stride(args.v.stored_dim));
  const size_t shared = static_cast<size_t>(kTokens) * static_cast<size_t>(stride) * sizeof(float);
  with_activation_type(input, [&](auto from) {
    with_kv_type(cache, [&](auto to) {
      using T = decltype(from);
      using C = decltype(to);
      launch_overlapping(stream, units ? write_kernel<T, C, 8, kRotate> : write_kernel<T, C, 1, kRotate>, grid,
                         dim3(kThreads), 1, shared, args);
    });
  });
}

WriteArgs args_of(const PagedKv& kv, const int64_t* slots, int64_t m) {
  const int64_t pack = shuffle_pack(block_bytes(kv.dtype));
  const bool shuffle = kv.layout == KvLayout::kShuffle;
  WriteArgs args{};
  args.slots = slots;
  args.m = m;
  args.kv_heads = kv.kv_heads;
  args.block_size = kv.block_size;
  args.block_shift = -1;
  for (int shift = 0; shift < 31; ++shift) {
    if (kv.block_size == 1 << shift) args.block_shift = shift;
  }
  args.layout = kv.layout;
  args.scaling = kv.scaling;
  args.k.cache = kv.k;
  args.k.scales = kv.k_scales;
  args.k.dim = kv.head_dim;
  args.k.stored_dim = static_cast<int>(stored_head_dim(kv));
  args.k.by_pack = shuffle || (is_aligned_16(kv.k) && kv.head_dim % pack == 0);
  args.v.cache = kv.v;
  args.v.scales = kv.v_scales;
  args.v.dim = args.v.stored_dim = kv.v_head_dim;
  args.v.by_pack = is_aligned_16(kv.v) && !shuffle && kv.v_head_dim % pack == 0;
  return args;
}

// The planes of a cache in whole blocks; the last two are there for scales of tokens only.
struct BlockPlanes {
  void* data[4];
  int64_t bytes[4];
};

BlockPlanes planes_of(const PagedKv& kv) {
  const int64_t scales = block_scales(kv) * static_cast<int64_t>(sizeof(float));
  return {{kv.k, kv.v, kv.k_scales, kv.v_scales}, {k_block_bytes(kv), v_block_bytes(kv), scales, scales}};
}

__device__ inline bool in_vectors(const void* data, int64_t bytes) {
  return bytes % 16 == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

// The copies happen one after the other at each place of the blocks; of some that don't need each other's results, the
// loads go first.
template <class Word>
__device__ inline void copy_words(Word* data, int64_t words, const BlockCopy* copies, int64_t count) {
  constexpr int kTogether = 4;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < words;
       at += static_cast<int64_t>(gridDim.x) * kThreads) {
    int64_t i = 0;
    for (; i + kTogether <= count; i += kTogether) {
      BlockCopy copy[kTogether];
#pragma unroll
      for (int c = 0; c < kTogether; ++c) copy[c] = copies[i + c];
      bool independent = true;
#pragma unroll
      for (int c = 1; c < kTogether; ++c) {
#pragma unroll
        for (int before = 0; before < c; ++before) independent &= copy[c].source != copy[before].destination;
      }
      if (independent) {
        Word word[kTogether];
#pragma unroll
        for (int c = 0; c < kTogether; ++c) word[c] = data[copy[c].source * words + at];
#pragma unroll
        for (int c = 0; c < kTogether; ++c) data[copy[c].destination * words + at] = word[c];
      } else {
        for (int c = 0; c < kTogether; ++c) data[copy[c].destination * words + at] = data[copy[c].source * words + at];
      }
    }
    for (; i < count; ++i) data[copies[i].destination * words + at] = data[copies[i].source * words + at];
  }
}

__global__ void __launch_bounds__(kThreads) copy_kernel(BlockPlanes planes, const BlockCopy* copies, int64_t count) {
  wait_for_previous_kernel();
  void* data = planes.data[blockIdx.y];
  const int64_t bytes = planes.bytes[blockIdx.y];
  if (in_vectors(data, bytes)) {
    copy_words(static_cast<uint4*>(data), bytes / 16, copies, count);
  } else {
    copy_words(static_cast<uint8_t*>(data), bytes, copies, count);
  }
}

template <class Word>
__device__ inline void zero_words(Word* data, int64_t words, const int32_t* blocks, int64_t count) {
  for (int64_t i = blockIdx.z; i < count; i += gridDim.z) {
    Word* block = data + blocks[i] * words;
    for (int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < words;
         at += static_cast<int64_t>(gridDim.x) * kThreads) {
      block[at] = Word{};
    }
  }
}

__global__ void __launch_bounds__(kThreads) reset_kernel(BlockPlanes planes, const int32_t* blocks, int64_t count) {
  wait_for_previous_kernel();
  void* data = planes.data[blockIdx.y];
  const int64_t bytes = planes.bytes[blockIdx.y];
  if (in_vectors(data, bytes)) {
    zero_words(static_cast<uint4*>(data), bytes / 16, blocks, count);
  } else {
    zero_words(static_cast<uint8_t*>(data), bytes, blocks, count);
  }
}

dim3 grid_of(const BlockPlanes& planes, unsigned blocks) {
  const int64_t bytes = std::max(planes.bytes[0], planes.bytes[1]);
  const unsigned with_scales = planes.bytes[2] > 0 ? 4 : 2;
  return {std::min(ceil_blocks(bytes, kThreads * 16), 1024u), with_scales, blocks};
}

}  // namespace

void kv_write(const ConstHeadRows& k, const ConstHeadRows& v, const int64_t* slots, int64_t m, const PagedKv& kv,
              Stream& stream) {
  if (m == 0) return;
  WriteArgs args = args_of(kv, slots, m);
  args.k.source = k.data, args.k.row_stride = k.row_stride, args.k.head_stride = k.head_stride;
  args.v.source = v.data, args.v.row_stride = v.row_stride, args.v.head_stride = v.head_stride;
  const bool k_units = in_units(args.k, block_bytes(k.dtype)), v_units = in_units(args.v, block_bytes(v.dtype));
  if (k.dtype == v.dtype)
    return launch_write<false>(args, k.dtype, kv.dtype, k_units && v_units, 2 * kv.kv_heads, stream);
  launch_write<false>(args, k.dtype, kv.dtype, k_units, kv.kv_heads, stream);
  args.first_role = kv.kv_heads;
  launch_write<false>(args, v.dtype, kv.dtype, v_units, kv.kv_heads, stream);
}

void rope_kv_write(void* qkv, DType dtype, int64_t row_stride, int64_t heads, const int64_t* slots, int64_t m,
                   const float* cos, const float* sin, bool interleaved, const PagedKv& kv, Stream& stream) {
  if (m == 0) return;
  const int64_t element = block_bytes(dtype), half = kv.head_dim / 2;
  const auto* row = static_cast<const std::byte*>(qkv);
  WriteArgs args = args_of(kv, slots, m);
  args.k.source = row + heads * kv.head_dim * element;
  args.k.head_stride = kv.head_dim;
  args.v.source = row + (heads + kv.kv_heads) * kv.head_dim * element;
  args.v.head_stride = kv.v_head_dim;
  args.k.row_stride = args.v.row_stride = args.q_stride = row_stride;
  args.cos = cos, args.sin = sin;
  args.half = static_cast<int>(half);
  args.interleaved = interleaved;
  args.q = qkv;
  args.heads = static_cast<int>(heads);
  const bool units = in_units(args.k, element) && in_units(args.v, element) && half % 8 == 0 && is_aligned_16(qkv) &&
                     is_aligned_16(cos) && is_aligned_16(sin);
  constexpr int kHeadsOfBlock = kQueryHeads * kQueryGroups;
  const int64_t roles = 2 * int64_t{kv.kv_heads} + (heads + kHeadsOfBlock - 1) / kHeadsOfBlock;
  launch_write<true>(args, dtype, kv.dtype, units, roles, stream);
}

void kv_copy_blocks(const PagedKv& kv, const BlockCopy* copies, int64_t count, Stream& stream) {
  if (count == 0) return;
  const BlockPlanes planes = planes_of(kv);
  gpu::launch_early(stream, copy_kernel, grid_of(planes, 1), dim3(kThreads), 0, planes, copies, count);
}

void kv_reset_blocks(const PagedKv& kv, const int32_t* blocks, int64_t count, Stream& stream) {
  if (count == 0) return;
  const BlockPlanes planes = planes_of(kv);
  gpu::launch_early(stream, reset_kernel, grid_of(planes, grid_rows(count)), dim3(kThreads), 0, planes, blocks, count);
}

}  // namespace quire::gpu
