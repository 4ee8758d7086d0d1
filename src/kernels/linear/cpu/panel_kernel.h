#pragma once
// The panel kernels, written once over a Lanes type of each instruction set: how wide a register is, how many rows of x
// a tile has, and the integer dot products of a group. A tile's accumulators stay in registers while the columns go by
// in ascending order. Each (row of x, row of W) has one f32 accumulator and the integer sums are exact, so a value
// depends neither on m nor on the instruction set.
//
// Lanes offers F (kLanes floats), I (kLanes int32), kLanes, kFloatTile, kFloatPanels, kCodeTile and the operations used
// below, and
//   dot_u4<T>(codes, x, sums)          sums[t] = sum over a group of 32 of (4-bit code) * x[t][i]
//   dot_u5<T>(codes, fifth, x, sums)   the same of 5-bit codes; fifth: the first of the group's 64 bits of each half,
//   moved to the strip too
//   dot_u8<T>(codes, x, offsets, sums) sums[t] = sum over half a group of 16 of (byte - 128) * x[t][i]; offsets[t] =
//   -128 * sum of x[t]
// where x is [T][32] and `codes` the first of the group's 64-byte pieces, moved to the strip of kLanes rows.
//
// GCC 12 unrolls loops over registers at -O2 only when told to, and without it the accumulators live in memory: hence
// the pragmas.
#include <cstdint>
#include <utility>

#include "kernels/linear/packed_format.h"

namespace quire {

template <class Lanes>
struct PanelKernel {
  using F = typename Lanes::F;
  using I = typename Lanes::I;
  static constexpr int kStrips = kPanelRows / Lanes::kLanes;

  // acc: `strips` strips of T registers, the rows of W from first_row on.
  template <int T, int Strips>
  static void store_tile(const PanelJob& job, const F* acc, int64_t first_x, int64_t first_row) {
#pragma GCC unroll 16
    for (int s = 0; s < Strips; ++s) {
      const int64_t rows = job.rows - (first_row + s * Lanes::kLanes);
      float* y = job.y + first_x * job.ldy + first_row + s * Lanes::kLanes;
      if (rows >= Lanes::kLanes) {
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t, y += job.ldy) {
          Lanes::store(y, job.accumulate ? Lanes::add(Lanes::load(y), acc[s * T + t]) : acc[s * T + t]);
        }
      } else {
        float lanes[T][Lanes::kLanes];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) Lanes::store(lanes[t], acc[s * T + t]);
        for (int t = 0; t < T; ++t, y += job.ldy) {
          for (int64_t i = 0; i < rows; ++i) y[i] = job.accumulate ? y[i] + lanes[t][i] : lanes[t][i];
        }
      }
    }
  }

  // Panels side by side share the broadcasts of x.
  template <int T, int Panels, class Weight>
  static void tile_float(const PanelJob& job, int64_t first_x, int64_t panel) {
    constexpr int kWide = Panels * kStrips;
    const auto* w = reinterpret_cast<const Weight*>(job.panels) + panel * kPanelRows * job.in;
    const int64_t panel_step = kPanelRows * job.in;
    const float* x = job.x.floats + first_x * job.in;
    F acc[kWide * T];
#pragma GCC unroll 32
    for (F& a : acc) a = Lanes::zero();
    for (int64_t k = 0; k < job.in; ++k, w += kPanelRows, x += T) {
      F columns[kWide];
#pragma GCC unroll 16
      for (int s = 0; s < kWide; ++s)
        columns[s] = load_weights(w + s / kStrips * panel_step + s % kStrips * Lanes::kLanes);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        const F value = Lanes::set1(x[t]);
#pragma GCC unroll 16
        for (int s = 0; s < kWide; ++s) acc[s * T + t] = Lanes::fma(columns[s], value, acc[s * T + t]);
      }
    }
    store_tile<T, kWide>(job, acc, first_x, panel * kPanelRows);
  }

  static F load_weights(const float* p) { return Lanes::load(p); }
  static F load_weights(const uint16_t* p) { return Lanes::load_bf16(p); }

  // A group of 4- or 5-bit codes of the strip: acc += scale * code * x + min * x.
  template <int T, bool kFifth>
  static void add_group(const std::byte* codes, int strip, F scale, F min, const int8_t* x, const float* scales_x,
                        const float* sums_x, F* acc) {
    I sums[T];
    const auto* low = reinterpret_cast<const uint8_t*>(codes) + 4 * Lanes::kLanes * strip;
    if constexpr (kFifth) {
      const auto* fifth = reinterpret_cast<const uint8_t*>(codes) + kCodeBytes + Lanes::kLanes / 2 * strip;
      Lanes::template dot_u5<T>(low, fifth, x, sums);
    } else {
      Lanes::template dot_u4<T>(low, x, sums);
    }
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      acc[t] = Lanes::fma(Lanes::to_float(sums[t]), Lanes::mul(scale, Lanes::set1(scales_x[t])), acc[t]);
      acc[t] = Lanes::fma(min, Lanes::set1(sums_x[t]), acc[t]);
    }
  }

  template <int T, bool kFifth>
  static void tile_u(const PanelJob& job, int64_t first_x, int64_t panel, int strip) {
    constexpr int64_t kSize = kFifth ? kU5GroupBytes : kU4GroupBytes;
    const int64_t groups = job.in / kGroup;
    const std::byte* w = job.panels + panel * groups * kSize;
    const int8_t* x = job.x.codes + first_x * job.in;
    const float* scales_x = job.x.scales + first_x * groups;
    const float* sums_x = job.x.sums + first_x * groups;
    F acc[T];
#pragma GCC unroll 16
    for (F& a : acc) a = Lanes::zero();
    for (int64_t g = 0; g < groups; ++g, w += kSize, x += T * kGroup, scales_x += T, sums_x += T) {
      prefetch<kSize>(w);
      const auto* halves = reinterpret_cast<const uint16_t*>(w) + Lanes::kLanes * strip;
      const F scale = Lanes::load_f16(halves), min = Lanes::load_f16(halves + kPanelRows);
      add_group<T, kFifth>(w + 64, strip, scale, min, x, scales_x, sums_x, acc);
    }
    store_tile<T, 1>(job, acc, first_x, panel * kPanelRows + Lanes::kLanes * strip);
  }

  template <int T, bool kFifth>
  static void tile_k(const PanelJob& job, int64_t first_x, int64_t panel, int strip) {
    constexpr int64_t kSize = kFifth ? kK5GroupBytes : kK4GroupBytes;
    const int64_t groups = job.in / kGroup;
    const std::byte* w = job.panels + panel * panel_bytes(kFifth ? PanelFormat::kK5 : PanelFormat::kK4, job.in);
    const int8_t* x = job.x.codes + first_x * job.in;
    const float* scales_x = job.x.scales + first_x * groups;
    const float* sums_x = job.x.sums + first_x * groups;
    F acc[T];
#pragma GCC unroll 16
    for (F& a : acc) a = Lanes::zero();
    for (int64_t block = 0; block < job.in / kBlock; ++block) {
      const auto* halves = reinterpret_cast<const uint16_t*>(w) + Lanes::kLanes * strip;
      const F scale = Lanes::load_f16(halves), min = Lanes::load_f16(halves + kPanelRows);
      w += 64;
      for (int64_t g = 0; g < kBlock / kGroup; ++g, w += kSize, x += T * kGroup, scales_x += T, sums_x += T) {
        prefetch<kSize>(w);
        const auto* multiples = reinterpret_cast<const uint8_t*>(w) + Lanes::kLanes * strip;
        const F of_group = Lanes::mul(scale, Lanes::load_u8(multiples)),
                min_of_group = Lanes::mul(min, Lanes::load_u8(multiples + kPanelRows));
        add_group<T, kFifth>(w + 32, strip, of_group, min_of_group, x, scales_x, sums_x, acc);
      }
    }
    store_tile<T, 1>(job, acc, first_x, panel * kPanelRows + Lanes::kLanes * strip);
  }

  template <int T>
  static void tile_u8(const PanelJob& job, int64_t first_x, int64_t panel, int strip) {
    const int64_t groups = job.in / kGroup;
    const std::byte* w = job.panels + panel * groups * kU8GroupBytes;
    const int8_t* x = job.x.codes + first_x * job.in;
    const float* scales_x = job.x.scales + first_x * groups;
    const int32_t* offsets_x = job.x.offsets + first_x * groups * 2;
    F acc[T];
#pragma GCC unroll 16
    for (F& a : acc) a = Lanes::zero();
    for (int64_t g = 0; g < groups; ++g, w += kU8GroupBytes, x += T * kGroup, scales_x += T, offsets_x += 2 * T) {
      prefetch<kU8GroupBytes>(w);
      const uint8_t* codes = reinterpret_cast<const uint8_t*>(w) + 32 + 4 * Lanes::kLanes * strip;
      I first[T], second[T];
      Lanes::template dot_u8<T>(codes, x, offsets_x, first);
      Lanes::template dot_u8<T>(codes + 256, x + 16, offsets_x + T, second);
      const F scale = Lanes::load_f16(reinterpret_cast<const uint16_t*>(w) + Lanes::kLanes * strip);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        const F product = Lanes::to_float(Lanes::add_int(first[t], second[t]));
        acc[t] = Lanes::fma(product, Lanes::mul(scale, Lanes::set1(scales_x[t])), acc[t]);
      }
    }
    store_tile<T, 1>(job, acc, first_x, panel * kPanelRows + Lanes::kLanes * strip);
  }

  template <int T>
  static void tile_u6(const PanelJob& job, int64_t first_x, int64_t panel, int strip) {
    const int64_t groups = job.in / kGroup;
    const std::byte* w = job.panels + panel * groups * kU6GroupBytes;
    const int8_t* x = job.x.codes + first_x * job.in;
    const float* scales_x = job.x.scales + first_x * groups;
    const int32_t* offsets_x = job.x.offsets + first_x * groups * 2;
    F acc[T];
#pragma GCC unroll 16
    for (F& a : acc) a = Lanes::zero();
    for (int64_t g = 0; g < groups; ++g, w += kU6GroupBytes, x += T * kGroup, scales_x += T, offsets_x += 2 * T) {
      prefetch<kU6GroupBytes>(w);
      for (int half = 0; half < 2; ++half) {
        I sums[T];
        Lanes::template dot_u8<T>(reinterpret_cast<const uint8_t*>(w) + 128 + 256 * half + 4 * Lanes::kLanes * strip,
                                  x + 16 * half, offsets_x + half * T, sums);
        const F scale = Lanes::load(reinterpret_cast<const float*>(w) + kPanelRows * half + Lanes::kLanes * strip);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
          acc[t] = Lanes::fma(Lanes::to_float(sums[t]), Lanes::mul(scale, Lanes::set1(scales_x[t])), acc[t]);
        }
      }
    }
    store_tile<T, 1>(job, acc, first_x, panel * kPanelRows + Lanes::kLanes * strip);
  }

  // The hardware prefetcher stops at each 4 KiB page; panels follow one another, so reading ahead never strays far past
  // the last one.
  template <int64_t Bytes>
  static void prefetch(const std::byte* w) {
    constexpr int64_t kAhead = 4096;
#pragma GCC unroll 16
    for (int64_t i = 0; i < Bytes; i += 64) __builtin_prefetch(w + kAhead + i);
  }

  template <int T>
  static void code_tile(const PanelJob& job, int64_t first_x, int64_t panel) {
    for (int strip = 0; strip < kStrips; ++strip) {
      switch (job.format) {
        case PanelFormat::kU4:
          tile_u<T, false>(job, first_x, panel, strip);
          break;
        case PanelFormat::kU5:
          tile_u<T, true>(job, first_x, panel, strip);
          break;
        case PanelFormat::kK4:
          tile_k<T, false>(job, first_x, panel, strip);
          break;
        case PanelFormat::kK5:
          tile_k<T, true>(job, first_x, panel, strip);
          break;
        case PanelFormat::kU8:
          tile_u8<T>(job, first_x, panel, strip);
          break;
        default:
          tile_u6<T>(job, first_x, panel, strip);
          break;
      }
    }
  }

  template <int T, int Panels>
  static void float_tile(const PanelJob& job, int64_t first_x, int64_t panel) {
    if (job.format == PanelFormat::kF32) return tile_float<T, Panels, float>(job, first_x, panel);
    tile_float<T, Panels, uint16_t>(job, first_x, panel);
  }

  using TileFunction = void (*)(const PanelJob& job, int64_t first_x, int64_t panel);

  // Panels [panel, panel + panels) against every tile of the job; the panels stay in the cache meanwhile. tiles[T - 1]
  // takes T rows.
  static void pass(const PanelJob& job, int64_t panel, const TileFunction* tiles) {
    for (int64_t tile = job.first_tile; tile < job.last_tile; ++tile) {
      const int64_t first = job.tiles.begin(tile);
      tiles[job.tiles.begin(tile + 1) - first - 1](job, first, panel);
    }
  }

  template <int Panels, int... T>
  static void multiply_floats(const PanelJob& job, std::integer_sequence<int, T...>) {
    static constexpr TileFunction kSide[] = {float_tile<T + 1, Panels>...};
    static constexpr TileFunction kSingle[] = {float_tile<T + 1, 1>...};
    int64_t panel = 0;
    for (; panel + Panels <= job.panel_count; panel += Panels) pass(job, panel, kSide);
    for (; panel < job.panel_count; ++panel) pass(job, panel, kSingle);
  }

  template <int... T>
  static void multiply_codes(const PanelJob& job, std::integer_sequence<int, T...>) {
    static constexpr TileFunction kTiles[] = {code_tile<T + 1>...};
    for (int64_t panel = 0; panel < job.panel_count; ++panel) pass(job, panel, kTiles);
  }

  static void multiply(const PanelJob& job) {
    if (job.format == PanelFormat::kF32 || job.format == PanelFormat::kBF16) {
      return multiply_floats<Lanes::kFloatPanels>(job, std::make_integer_sequence<int, Lanes::kFloatTile>());
    }
    multiply_codes(job, std::make_integer_sequence<int, Lanes::kCodeTile>());
  }
};

// The packing of x, over an Isa of kernels/simd.
template <class Isa>
struct RowPacker {
  using F = typename Isa::F;
  using I = typename Isa::I;

  static void floats(const float* x, int64_t in, int64_t first, int64_t rows, int64_t t, const PackedRows& packed) {
    float* dst = packed.floats + first * in + t;
    for (int64_t k = 0; k < in; ++k) dst[k * rows] = x[k];
  }

  static constexpr float kSmallest = 0x1p-100f;  // the reciprocal of less might overflow

  static I to_code(F x, float inverse) {
    const F limit = Isa::set1(127.0f);
    return Isa::to_int(Isa::min(Isa::max(Isa::mul(x, Isa::set1(inverse)), Isa::sub(Isa::zero(), limit)), limit));
  }

  static void codes(const float* x, int64_t in, int64_t first, int64_t rows, int64_t t, const PackedRows& packed) {
    const int64_t groups = in / kGroup;
    int8_t* codes = packed.codes + first * in + t * kGroup;
    float* scales = packed.scales + first * groups + t;
    float* sums = packed.sums + first * groups + t;
    int32_t* offsets = packed.offsets + first * groups * 2 + t;
    for (int64_t g = 0; g < groups; ++g, x += kGroup) {
      const F low = Isa::load(x), high = Isa::load(x + 16);
      // A NaN or an infinity in a group makes its scale one, and so the result; the codes stay in range whatever x
      // holds.
      const float largest = Isa::max_magnitude(low, high);
      const float scale = largest / 127.0f, inverse = largest > kSmallest ? 127.0f / largest : 0.0f;
      const I a = to_code(low, inverse), b = to_code(high, inverse);
      Isa::store_int8(codes + g * rows * kGroup, a);
      Isa::store_int8(codes + g * rows * kGroup + 16, b);
      const int32_t sum_a = Isa::sum_int(a), sum_b = Isa::sum_int(b);
      scales[g * rows] = scale;
      sums[g * rows] = scale * static_cast<float>(sum_a + sum_b);
      offsets[2 * g * rows] = -kCodeOffset * sum_a;
      offsets[2 * g * rows + rows] = -kCodeOffset * sum_b;
    }
  }
};

template <class Lanes, class Isa>
const LinearKernels& linear_kernels_of() {
  static constexpr LinearKernels kTable{Lanes::kFloatTile, Lanes::kCodeTile, PanelKernel<Lanes>::multiply,
                                        RowPacker<Isa>::floats, RowPacker<Isa>::codes};
  return kTable;
}

}  // namespace quire
