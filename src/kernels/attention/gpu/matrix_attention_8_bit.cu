// The attention of matrix_attention.h over caches of 8 bits.
#include "kernels/attention/gpu/matrix_attention.h"

namespace quire::gpu {
namespace {

template <class Kv, class T>
void launch_type(const AttentionArgs& args, const AttentionRequests& requests, const AttentionParts& parts,
                 int32_t states, Stream& stream) {
  const int32_t dims = std::max(args.kv.head_dim, args.kv.v_head_dim);
  const auto launch_dims = [&]<int kDims>(std::integral_constant<int, kDims>) {
    if (states == kMatrixDecodeStates) {
      launch_matrix_shape<Kv, T, kDims, 0>(args, requests, parts, stream);
    } else {
      launch_matrix_shape<Kv, T, kDims, 1>(args, requests, parts, stream);
    }
  };
  if (dims <= 64) return launch_dims(std::integral_constant<int, 64>{});
  if (dims <= 128) return launch_dims(std::integral_constant<int, 128>{});
  launch_dims(std::integral_constant<int, 256>{});
}

template <class Kv>
void launch_cache(const AttentionArgs& args, const AttentionRequests& requests, const AttentionParts& parts,
                  int32_t states, Stream& stream) {
  if (args.q.dtype == DType::kF16) {
    launch_type<Kv, F16>(args, requests, parts, states, stream);
  } else {
    launch_type<Kv, BF16>(args, requests, parts, states, stream);
  }
}

}  // namespace

void launch_matrix_8_bit(const AttentionArgs& args, const AttentionRequests& requests, const AttentionParts& parts,
                         int32_t states, Stream& stream) {
  if (args.kv.dtype == DType::kF8E4M3) return launch_cache<F8E4M3>(args, requests, parts, states, stream);
  if (args.kv.dtype == DType::kF8E5M2) return launch_cache<F8E5M2>(args, requests, parts, states, stream);
  launch_cache<int8_t>(args, requests, parts, states, stream);
}

}  // namespace quire::gpu
