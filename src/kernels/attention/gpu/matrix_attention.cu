// The attention of matrix_attention.h: which shapes it takes, and those of them with a cache of 16 bits.
#include "kernels/attention/gpu/matrix_attention.h"

namespace quire::gpu {
namespace {

bool is_16_bit(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }
bool is_8_bit(DType dtype) { return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2 || dtype == DType::kI8; }

template <class T>
void launch_type(const AttentionArgs& args, const AttentionRequests& requests, const AttentionParts& parts,
                 int32_t states, Stream& stream) {
  const int32_t dims = std::max(args.kv.head_dim, args.kv.v_head_dim);
  const auto launch_dims = [&]<int kDims>(std::integral_constant<int, kDims>) {
    if (states == kMatrixDecodeStates) {
      launch_matrix_shape<T, T, kDims, 0>(args, requests, parts, stream);
    } else if (states == kMatrixStates) {
      launch_matrix_shape<T, T, kDims, 1>(args, requests, parts, stream);
    } else {
      if constexpr (kDims <= 128) launch_matrix_shape<T, T, kDims, 2>(args, requests, parts, stream);
    }
  };
  if (dims <= 64) return launch_dims(std::integral_constant<int, 64>{});
  if (dims <= 128) return launch_dims(std::integral_constant<int, 128>{});
  launch_dims(std::integral_constant<int, 256>{});
}

}  // namespace

bool attention_matrix_fits(const AttentionArgs& args) {
  const PagedKv& kv = args.kv;
  constexpr int32_t kMostDims = 256;
  return is_16_bit(args.q.dtype) && args.out.dtype == args.q.dtype &&
         (kv.dtype == args.q.dtype || is_8_bit(kv.dtype)) && kv.head_dim % 8 == 0 && kv.v_head_dim % 8 == 0 &&
         kv.block_size % 16 == 0 && kv.block_size <= kMatrixBlockSize && kv.head_dim <= kMostDims &&
         kv.v_head_dim <= kMostDims;
}

int32_t matrix_tile_states(const AttentionArgs& args, const AttentionRequests& requests, int64_t resident) {
  const int64_t states = int64_t{requests.tokens} * (args.heads / args.kv.kv_heads);
  // Tiles of more bands would be empty for the most part.
  if (states <= 2 * int64_t{requests.requests} * kMatrixDecodeStates) return kMatrixDecodeStates;
  const int64_t large = std::max<int64_t>(states / kMatrixLargeStates, requests.requests) * args.kv.kv_heads;
  const bool has_large = is_16_bit(args.kv.dtype) && args.kv.head_dim <= 128 && args.kv.v_head_dim <= 128;
  return has_large && large > resident ? kMatrixLargeStates : kMatrixStates;
}

void launch_matrix(const AttentionArgs& args, const AttentionRequests& requests, const AttentionParts& parts,
                   int32_t states, Stream& stream) {
  if (is_8_bit(args.kv.dtype)) return launch_matrix_8_bit(args, requests, parts, states, stream);
  if (args.kv.dtype == DType::kF16) {
    launch_type<F16>(args, requests, parts, states, stream);
  } else {
    launch_type<BF16>(args, requests, parts, states, stream);
  }
}

}  // namespace quire::gpu
