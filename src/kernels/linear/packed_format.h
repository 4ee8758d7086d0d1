#pragma once
// How weights and activations lie in memory for the panel kernels.
//
// A packed weight is panels of 16 rows, one lane a row. In a panel, columns ascend:
//   kF32   [in][16] floats             kBF16  [in][16] bfloat16
//   kBF16Pairs  [in / 2][16][2] bfloat16, for AMX; in is a multiple of 32
//   kU4    for each group of 32 columns: 16 f16 scales, 16 f16 minima, 4 x 64 bytes of codes: byte 4*row + c of the
//   p-th
//          64 holds that of column 8p + c in its low and of column 8p + 4 + c in its high half. w = scale * code + min
//   kU5    the same, and 4 x 2 x 64 bits: bit 4*row + c of the p-th pair's first 64 is the fifth of column 8p + c, of
//   the
//          second 64 that of column 8p + 4 + c
//   kK4    for each block of 256 columns: 16 f16 scales, 16 f16 minima, then for each of its 8 groups of 32: 16 bytes
//          a, 16 bytes b, codes as in kU4. w = scale * a * code + min * b
//   kK5    the same with codes as in kU5
//   kU8    for each group of 32: 16 f16 scales, 8 x 64 bytes; byte 4*row + c of the p-th 64 is column 4p + c.
//          w = scale * (byte - 128)
//   kU6    for each group of 32: 2 x 16 f32 scales (columns 0-15, 16-31), 8 x 64 bytes as kU8, byte = 4 * code.
//          w = scale * (byte - 128)
//
// Rows of x are taken in tiles of at most 16 neighbours; a tile of T rows lies together so that a kernel reads it in
// one stream.
#include <cstddef>
#include <cstdint>

namespace quire {

enum class PanelFormat : uint8_t { kF32, kBF16, kBF16Pairs, kU4, kU5, kK4, kK5, kU8, kU6 };

constexpr bool is_float(PanelFormat format) { return format <= PanelFormat::kBF16Pairs; }

constexpr int64_t kPanelRows = 16;
constexpr int64_t kGroup = 32;   // columns that share a scale of x
constexpr int64_t kBlock = 256;  // columns that share a scale of the scales of kK4 and kK5
constexpr int64_t kCodeBytes = kPanelRows * kGroup / 2, kFifthBytes = kPanelRows * kGroup / 8;  // of a group
constexpr int64_t kU4GroupBytes = 64 + kCodeBytes, kU5GroupBytes = kU4GroupBytes + kFifthBytes;
constexpr int64_t kK4GroupBytes = 32 + kCodeBytes, kK5GroupBytes = kK4GroupBytes + kFifthBytes;
constexpr int64_t kU8GroupBytes = 32 + 512, kU6GroupBytes = 128 + 512;
constexpr int kCodeOffset = 128;  // of the bytes of kU8 and kU6

constexpr int64_t panel_bytes(PanelFormat format, int64_t in) {
  switch (format) {
    case PanelFormat::kF32:
      return in * kPanelRows * 4;
    case PanelFormat::kBF16:
    case PanelFormat::kBF16Pairs:
      return in * kPanelRows * 2;
    case PanelFormat::kU4:
      return in / kGroup * kU4GroupBytes;
    case PanelFormat::kU5:
      return in / kGroup * kU5GroupBytes;
    case PanelFormat::kK4:
      return in / kBlock * 64 + in / kGroup * kK4GroupBytes;
    case PanelFormat::kK5:
      return in / kBlock * 64 + in / kGroup * kK5GroupBytes;
    case PanelFormat::kU8:
      return in / kGroup * kU8GroupBytes;
    case PanelFormat::kU6:
      return in / kGroup * kU6GroupBytes;
  }
  return 0;
}

// The rows of x in tiles of nearly equal size, at most `largest` rows each.
struct RowTiles {
  int64_t m, count;
  RowTiles(int64_t rows, int64_t largest) : m(rows), count((rows + largest - 1) / largest) {}
  int64_t begin(int64_t tile) const { return m * tile / count; }
  int64_t tile_of(int64_t row) const { return ((row + 1) * count - 1) / m; }
};

// x as the kernels read it. A tile of T rows from row r:
//   floats   at r * in:           [in][T]                              for kF32 and kBF16; for kBF16Pairs
//                                 [in / 32][2][T][32] bfloat16         x rounded, and what that left over; for codes
//   codes    at r * in:           [in / 32][T][32] int8
//   scales   at r * in / 32:      [in / 32][T]                         x = scale * code
//   sums     at r * in / 32:      [in / 32][T]                         scale * sum of the group's codes
//   offsets  at r * in / 32 * 2:  [in / 32][2][T]                      -128 * sum of the codes of half a group
struct PackedRows {
  float* floats;
  int8_t* codes;
  float* scales;
  float* sums;
  int32_t* offsets;
};

// One call: a run of panels of one format against a run of tiles.
struct PanelJob {
  PanelFormat format;
  const std::byte* panels;  // the first panel of the run
  int64_t panel_count;
  int64_t rows;  // rows of the run that exist: 16 * panel_count or up to 15 fewer
  int64_t in;
  RowTiles tiles;
  int64_t first_tile, last_tile;
  PackedRows x;
  float* y;  // column of the run's first row, row 0 of x
  int64_t ldy;
  bool accumulate;
};

// One instruction set's kernels.
struct LinearKernels {
  int64_t float_tile, code_tile;  // the most rows in a tile
  void (*multiply)(const PanelJob& job);
  // Packs one row, x [in], as row `t` of the tile of `rows` rows that begins at row `first`. Quantizing: scale = absmax
  // / 127 of a group of 32, codes to nearest even.
  void (*pack_floats)(const float* x, int64_t in, int64_t first, int64_t rows, int64_t t, const PackedRows& packed);
  void (*pack_codes)(const float* x, int64_t in, int64_t first, int64_t rows, int64_t t, const PackedRows& packed);
};

const LinearKernels& linear_kernels_scalar();
const LinearKernels& linear_kernels_avx2();
const LinearKernels& linear_kernels_avxvnni();
const LinearKernels& linear_kernels_avx512();
// For kBF16Pairs only. Reads kTileSlack bytes past the floats.
const LinearKernels& linear_kernels_amx();
constexpr int64_t kTileSlack = 128;

}  // namespace quire
