#pragma once
// The panel kernels, written once over an Isa of kernels/simd. A tile is one panel times up to kTile rows of x, whose accumulators stay in
// registers while the columns go by in ascending order. Each (row of x, row of W) has one f32 accumulator, so its value does not depend on m.
#include <cstdint>

#include "kernels/linear/packed_format.h"

namespace quire {

constexpr int kTile = 8;

template <class Isa>
struct PanelKernel {
  using F = typename Isa::F;
  using I = typename Isa::I;
  using B = typename Isa::B;

  static void store_tile(const PanelJob& job, const F* acc, int rows_x, int64_t first_x, int64_t panel) {
    const int64_t first_row = panel * kPanelRows;
    const int64_t rows = job.rows - first_row < kPanelRows ? job.rows - first_row : kPanelRows;
    for (int t = 0; t < rows_x; ++t) {
      float* y = job.y + (first_x + t) * job.ldy + first_row;
      if (rows == kPanelRows) {
        Isa::store(y, job.accumulate ? Isa::add(Isa::load(y), acc[t]) : acc[t]);
      } else {
        float lanes[kPanelRows];
        Isa::store(lanes, acc[t]);
        for (int64_t i = 0; i < rows; ++i) y[i] = job.accumulate ? y[i] + lanes[i] : lanes[i];
      }
    }
  }

  template <int T, class Load>
  static void tile_float(const PanelJob& job, int64_t first_x, int64_t panel, int64_t column_bytes, Load load) {
    const std::byte* w = job.panels + panel * column_bytes * job.in;
    const float* x = job.x + first_x * job.ldx;
    F acc[T];
    for (int t = 0; t < T; ++t) acc[t] = Isa::zero();
    for (int64_t k = 0; k < job.in; ++k, w += column_bytes) {
      const F column = load(w);
      for (int t = 0; t < T; ++t) acc[t] = Isa::fma(column, Isa::set1(x[t * job.ldx + k]), acc[t]);
    }
    store_tile(job, acc, T, first_x, panel);
  }

  template <int T>
  static void tile_f32(const PanelJob& job, int64_t first_x, int64_t panel) {
    tile_float<T>(job, first_x, panel, kPanelRows * 4, [](const std::byte* p) { return Isa::load(reinterpret_cast<const float*>(p)); });
  }

  template <int T>
  static void tile_bf16(const PanelJob& job, int64_t first_x, int64_t panel) {
    tile_float<T>(job, first_x, panel, kPanelRows * 2,
                  [](const std::byte* p) { return Isa::load_bf16(reinterpret_cast<const uint16_t*>(p)); });
  }

  template <int T>
  static void tile_u4(const PanelJob& job, int64_t first_x, int64_t panel) {
    const int64_t groups = job.in / kGroup;
    const std::byte* w = job.panels + panel * groups * kU4GroupBytes;
    const int8_t* x = job.quantized.codes + first_x * job.in;
    const float* scales_x = job.quantized.scales + first_x * groups;
    const int32_t* sums_x = job.quantized.sums + first_x * groups * 2;
    F acc[T];
    for (int t = 0; t < T; ++t) acc[t] = Isa::zero();
    for (int64_t g = 0; g < groups; ++g, w += kU4GroupBytes) {
      const auto* halves = reinterpret_cast<const uint16_t*>(w);
      const auto* codes = reinterpret_cast<const uint8_t*>(w + 64);
      __builtin_prefetch(w + 4 * kU4GroupBytes);
      I low[T], high[T];
      for (int t = 0; t < T; ++t) low[t] = high[t] = Isa::set1_int(0);
      for (int p = 0; p < 4; ++p) {
        const B bytes = Isa::load_bytes(codes + 64 * p);
        const B low_codes = Isa::low_nibbles(bytes), high_codes = Isa::high_nibbles(bytes);
        for (int t = 0; t < T; ++t) {
          const int8_t* columns = x + t * job.in + g * kGroup + 8 * p;
          low[t] = Isa::dot4_small(low[t], low_codes, columns);
          high[t] = Isa::dot4_small(high[t], high_codes, columns + 4);
        }
      }
      const F scale = Isa::load_f16(halves), min = Isa::load_f16(halves + 16);
      for (int t = 0; t < T; ++t) {
        const float scale_x = scales_x[t * groups + g];
        const int32_t sum = sums_x[(t * groups + g) * 2] + sums_x[(t * groups + g) * 2 + 1];
        acc[t] = Isa::fma(Isa::to_float(Isa::add_int(low[t], high[t])), Isa::mul(scale, Isa::set1(scale_x)), acc[t]);
        acc[t] = Isa::fma(min, Isa::set1(scale_x * static_cast<float>(sum)), acc[t]);
      }
    }
    store_tile(job, acc, T, first_x, panel);
  }

  template <int T>
  static void tile_u8(const PanelJob& job, int64_t first_x, int64_t panel) {
    const int64_t groups = job.in / kGroup;
    const std::byte* w = job.panels + panel * groups * kU8GroupBytes;
    const int8_t* x = job.quantized.codes + first_x * job.in;
    const float* scales_x = job.quantized.scales + first_x * groups;
    const int32_t* sums_x = job.quantized.sums + first_x * groups * 2;
    F acc[T];
    for (int t = 0; t < T; ++t) acc[t] = Isa::zero();
    for (int64_t g = 0; g < groups; ++g, w += kU8GroupBytes) {
      const auto* codes = reinterpret_cast<const uint8_t*>(w + 32);
      __builtin_prefetch(w + 4 * kU8GroupBytes);
      I even[T], odd[T];
      for (int t = 0; t < T; ++t) {
        const int32_t* sum = sums_x + (t * groups + g) * 2;
        even[t] = Isa::set1_int(-kU8Offset * (sum[0] + sum[1]));
        odd[t] = Isa::set1_int(0);
      }
      for (int p = 0; p < 8; p += 2) {
        const B first = Isa::load_bytes(codes + 64 * p), second = Isa::load_bytes(codes + 64 * p + 64);
        for (int t = 0; t < T; ++t) {
          const int8_t* columns = x + t * job.in + g * kGroup + 4 * p;
          even[t] = Isa::dot4(even[t], first, columns);
          odd[t] = Isa::dot4(odd[t], second, columns + 4);
        }
      }
      const F scale = Isa::load_f16(reinterpret_cast<const uint16_t*>(w));
      for (int t = 0; t < T; ++t) {
        const F product = Isa::to_float(Isa::add_int(even[t], odd[t]));
        acc[t] = Isa::fma(product, Isa::mul(scale, Isa::set1(scales_x[t * groups + g])), acc[t]);
      }
    }
    store_tile(job, acc, T, first_x, panel);
  }

  template <int T>
  static void tile_u6(const PanelJob& job, int64_t first_x, int64_t panel) {
    const int64_t groups = job.in / kGroup;
    const std::byte* w = job.panels + panel * groups * kU6GroupBytes;
    const int8_t* x = job.quantized.codes + first_x * job.in;
    const float* scales_x = job.quantized.scales + first_x * groups;
    const int32_t* sums_x = job.quantized.sums + first_x * groups * 2;
    F acc[T];
    for (int t = 0; t < T; ++t) acc[t] = Isa::zero();
    for (int64_t g = 0; g < groups; ++g, w += kU6GroupBytes) {
      const auto* scales = reinterpret_cast<const float*>(w);
      const auto* codes = reinterpret_cast<const uint8_t*>(w + 128);
      for (int half = 0; half < 2; ++half) {
        I sum[T];
        for (int t = 0; t < T; ++t) sum[t] = Isa::set1_int(-kU6Offset * sums_x[(t * groups + g) * 2 + half]);
        for (int p = 4 * half; p < 4 * half + 4; ++p) {
          const B bytes = Isa::load_bytes(codes + 64 * p);
          for (int t = 0; t < T; ++t) sum[t] = Isa::dot4_small(sum[t], bytes, x + t * job.in + g * kGroup + 4 * p);
        }
        const F scale = Isa::load(scales + 16 * half);
        for (int t = 0; t < T; ++t) {
          acc[t] = Isa::fma(Isa::to_float(sum[t]), Isa::mul(scale, Isa::set1(scales_x[t * groups + g])), acc[t]);
        }
      }
    }
    store_tile(job, acc, T, first_x, panel);
  }

  template <int T>
  static void tile(const PanelJob& job, int64_t first_x, int64_t panel) {
    switch (job.format) {
      case PanelFormat::kF32: return tile_f32<T>(job, first_x, panel);
      case PanelFormat::kBF16: return tile_bf16<T>(job, first_x, panel);
      case PanelFormat::kU4: return tile_u4<T>(job, first_x, panel);
      case PanelFormat::kU8: return tile_u8<T>(job, first_x, panel);
      case PanelFormat::kU6: return tile_u6<T>(job, first_x, panel);
    }
  }

  // A panel stays in the cache while all rows of x pass; rows are taken kTile at a time, then by what is left.
  static void multiply(const PanelJob& job) {
    for (int64_t panel = 0; panel < job.panel_count; ++panel) {
      int64_t first = 0;
      for (; job.m - first >= kTile; first += kTile) tile<kTile>(job, first, panel);
      switch (job.m - first) {
        case 7: tile<7>(job, first, panel); break;
        case 6: tile<6>(job, first, panel); break;
        case 5: tile<5>(job, first, panel); break;
        case 4: tile<4>(job, first, panel); break;
        case 3: tile<3>(job, first, panel); break;
        case 2: tile<2>(job, first, panel); break;
        case 1: tile<1>(job, first, panel); break;
        default: break;
      }
    }
  }

  static void quantize_row(const float* x, int64_t n, int8_t* codes, float* scales, int32_t* sums) {
    for (int64_t g = 0; g < n / kGroup; ++g, x += kGroup, codes += kGroup) {
      const F first = Isa::load(x), second = Isa::load(x + 16);
      const float largest = Isa::max_lane(Isa::max(Isa::abs(first), Isa::abs(second)));
      const float scale = largest / 127.0f, inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
      const I a = Isa::to_int(Isa::mul(first, Isa::set1(inverse))), b = Isa::to_int(Isa::mul(second, Isa::set1(inverse)));
      Isa::store_int8(codes, a);
      Isa::store_int8(codes + 16, b);
      scales[g] = scale;
      sums[2 * g] = Isa::sum_int(a);
      sums[2 * g + 1] = Isa::sum_int(b);
    }
  }

  static const LinearKernels& table() {
    static constexpr LinearKernels kTable{multiply, quantize_row};
    return kTable;
  }
};

}  // namespace quire
