// Times of the ops at the sizes of Llama 3.1 8B; run with --gtest_also_run_disabled_tests.
#include <cstdio>
#include <functional>

#include "gpu_kernels/device_case.h"
#include "kernels/activation/gpu/silu_mul.h"
#include "kernels/embedding/gpu/embedding.h"
#include "kernels/fill/gpu/fill.h"
#include "kernels/kv_write/gpu/kv_write.h"
#include "kernels/norm/gpu/rms_norm.h"
#include "kernels/rope/gpu/rope.h"

namespace quire::gpu {
namespace {

class DISABLED_Timing : public DeviceCase {
 protected:
  // Microseconds of one call, from a graph of many.
  double time(const std::function<void()>& op, int calls) {
    const Graph graph = stream().capture([&] {
      for (int i = 0; i < calls; ++i) op();
    });
    double best = 1e30;
    for (int i = 0; i < 4; ++i) {
      const Event begin, end;
      stream().record(begin);
      stream().launch(graph, "timing");
      stream().record(end);
      stream().wait(end, "timing");
      best = std::min(best, 1e3 * static_cast<double>(milliseconds_between(begin, end)) / calls);
    }
    return best;
  }
  void report(const char* name, int64_t m, int64_t bytes, const std::function<void()>& op) {
    const double us = time(op, m <= 64 ? 200 : 20);
    std::printf("%-24s m %5ld %9.2f us %8.0f GB/s\n", name, static_cast<long>(m), us,
                static_cast<double>(bytes) / us / 1e3);
  }
};

TEST_F(DISABLED_Timing, Ops) {
  constexpr int64_t kHidden = 4096, kWide = 14'336, kHeads = 32, kKvHeads = 8, kDim = 128, kMost = 8192,
                    kVocab = 128'256;
  const DeviceMemory x(kMost * kHidden * 4), y(kMost * 2 * kWide * 2), wide(kMost * 2 * kWide * 2), weight(kHidden * 4);
  const DeviceMemory table(kVocab * kHidden * 2), cos(kMost * 64 * 4), sin(kMost * 64 * 4);
  fill_dummy(x.data(), DType::kF32, kMost * kHidden, 1, 0, stream());
  fill_dummy(wide.data(), DType::kBF16, kMost * 2 * kWide, 2, 0, stream());
  fill_dummy(weight.data(), DType::kF32, kHidden, 3, 0, stream());
  fill_dummy(table.data(), DType::kBF16, kVocab * kHidden, 4, 0, stream());
  std::vector<int32_t> ids, positions;
  std::vector<int64_t> slots, scattered;
  std::vector<float> inv_freq(64, 0.01f);
  for (int64_t i = 0; i < kMost; ++i) {
    ids.push_back(static_cast<int32_t>(i * 7919 % kVocab));
    positions.push_back(static_cast<int32_t>(i));
    slots.push_back(i + 160);
    scattered.push_back(i * 1009 % kMost);
  }
  const DeviceMemory device_ids = upload(ids), at = upload(positions), device_slots = upload(slots),
                     far_slots = upload(scattered), freq = upload(inv_freq);
  const DeviceMemory k_plane((kMost + 512) * kKvHeads * kDim * 4), v_plane((kMost + 512) * kKvHeads * kDim * 4);
  const DeviceMemory k_scales((kMost + 512) * kKvHeads * 4), v_scales((kMost + 512) * kKvHeads * 4);
  stream().zero(k_scales.data(), k_scales.bytes());
  stream().zero(v_scales.data(), v_scales.bytes());
  auto* floats = static_cast<float*>(x.data());
  auto* angle_cos = static_cast<float*>(cos.data());
  auto* angle_sin = static_cast<float*>(sin.data());
  for (const int64_t m : {int64_t{8}, int64_t{64}, kMost}) {
    report("rms_norm", m, m * kHidden * 6, [&] {
      rms_norm(floats, static_cast<float*>(weight.data()), 1e-5f, y.data(), DType::kBF16, m, kHidden, stream());
    });
    report("silu_mul", m, m * kWide * 6, [&] { silu_mul(wide.data(), y.data(), DType::kBF16, m, kWide, stream()); });
    report("embed", m, m * kHidden * 6, [&] {
      embed(table.data(), DType::kBF16, kVocab, static_cast<int32_t*>(device_ids.data()), floats, m, kHidden, stream());
    });
    report("gather_rows", m, m * kHidden * 4, [&] {
      gather_rows(table.data(), static_cast<int32_t*>(device_ids.data()), y.data(), m, kHidden * 2, stream());
    });
    report("rope_angles", m, m * 64 * 8, [&] {
      rope_angles(static_cast<float*>(freq.data()), 64, static_cast<int32_t*>(at.data()), m, 1.0, angle_cos, angle_sin,
                  stream());
    });
    for (const auto& [name, dtype, layout, scaling] :
         {std::tuple{"bf16 plain", DType::kBF16, KvLayout::kPlain, KvScaling::kNone},
          {"bf16 shuffle", DType::kBF16, KvLayout::kShuffle, KvScaling::kNone},
          {"e4m3 plain", DType::kF8E4M3, KvLayout::kPlain, KvScaling::kTensor},
          {"e4m3 shuffle", DType::kF8E4M3, KvLayout::kShuffle, KvScaling::kTensor},
          {"i8 token plain", DType::kI8, KvLayout::kPlain, KvScaling::kTokenHead},
          {"i8 token shuffle", DType::kI8, KvLayout::kShuffle, KvScaling::kTokenHead}}) {
      PagedKv kv;
      kv.k = k_plane.data(), kv.v = v_plane.data();
      kv.k_scales = static_cast<float*>(k_scales.data()), kv.v_scales = static_cast<float*>(v_scales.data());
      kv.dtype = dtype, kv.layout = layout, kv.scaling = scaling;
      kv.block_size = 16, kv.kv_heads = kKvHeads, kv.head_dim = kv.v_head_dim = kDim;
      kv.blocks = (kMost + 512) / 16;
      const int64_t row = (kHeads + 2 * kKvHeads) * kDim, cache_row = 2 * kKvHeads * kDim;
      const int64_t bytes = m * (row * 2 + kHeads * kDim * 2 + 64 * 8 + cache_row * block_bytes(dtype));
      const auto* to = static_cast<int64_t*>(m < 1000 ? far_slots.data() : device_slots.data());
      report((std::string("rope_kv_write ") + name).c_str(), m, bytes, [&] {
        rope_kv_write(wide.data(), DType::kBF16, row, kHeads, to, m, angle_cos, angle_sin, false, kv, stream());
      });
      const auto* k = static_cast<std::byte*>(wide.data());
      report((std::string("kv_write ") + name).c_str(), m, m * cache_row * (2 + block_bytes(dtype)), [&] {
        kv_write({k, cache_row, kDim, DType::kBF16}, {k + kKvHeads * kDim * 2, cache_row, kDim, DType::kBF16}, to, m,
                 kv, stream());
      });
    }
  }
}

TEST_F(DISABLED_Timing, Fill) {
  constexpr int64_t kCount = int64_t{8} << 30;
  const DeviceMemory weights(kCount * 2);
  for (const DType dtype : kActivationTypes) {
    const int64_t count = kCount * 2 / block_bytes(dtype);
    const double us = time([&] { fill_dummy(weights.data(), dtype, count, 7, 0, stream()); }, 1);
    std::printf("fill_dummy %s: %.2f ms for 16 GiB, %.0f GB/s\n", std::string(dtype_name(dtype)).c_str(), us / 1e3,
                kCount * 2 / us / 1e3);
  }
  const double us =
      time([&] { convert(weights.data(), DType::kF16, weights.data(), DType::kBF16, kCount, stream()); }, 1);
  std::printf("convert in place: %.2f ms, %.0f GB/s\n", us / 1e3, kCount * 4 / us / 1e3);
  const double zero = time([&] { stream().zero(weights.data(), kCount * 2); }, 1);
  std::printf("zero: %.2f ms, %.0f GB/s\n", zero / 1e3, kCount * 2 / zero / 1e3);
}

}  // namespace
}  // namespace quire::gpu
