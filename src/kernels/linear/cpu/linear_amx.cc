// Products of bfloat16 weights on AMX tiles. A row of x becomes two bfloat16 rows, its values rounded and what that
// left over, so 16 bits of each value count and a product is exact to 2^-18 of its terms. The two rows are neighbours
// in a tile, and their sums are added when all columns have gone by. A tile adds even and odd columns apart and a tile
// register holds a (row of x, row of W) sum from the first column to the last: a value depends on no other row of x.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "kernels/linear/packed_format.h"
#include "kernels/simd/avx512.h"

namespace quire {
namespace {

constexpr int64_t kTileBytes = 64;  // of a row of a tile register
constexpr int kMostRows = 8;        // of x in a tile register of 16 rows

// The layout that LDTILECFG reads.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Registers 0 to 3: sums, [2 q + p]; 4, 5: x, [q]; 6, 7: weights, [p].
class TileSession {
 public:
  explicit TileSession(int64_t rows_of_x) {
    TileConfig config;
    for (int i = 0; i < 8; ++i) {
      config.row_bytes[i] = kTileBytes;
      config.rows[i] = static_cast<uint8_t>(i < 6 ? 2 * rows_of_x : 16);
    }
    _tile_loadconfig(&config);
  }
  ~TileSession() { _tile_release(); }
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;
};

struct TileOfX {
  int64_t first, rows;
  const std::byte* parts;  // of its columns' first group
  TileOfX(const PanelJob& job, int64_t tile)
      : first(job.tiles.begin(tile)),
        rows(job.tiles.begin(tile + 1) - first),
        parts(reinterpret_cast<const std::byte*>(job.x.floats + first * job.in)) {}
  int64_t group_bytes() const { return 2 * rows * kTileBytes; }
};

void store(const PanelJob& job, const float (&sums)[2 * kMostRows][kPanelRows], const TileOfX& x, int64_t panel) {
  const int64_t rows = std::min(kPanelRows, job.rows - panel * kPanelRows);
  const auto present = static_cast<__mmask16>((1U << rows) - 1);
  float* y = job.y + x.first * job.ldy + panel * kPanelRows;
  for (int64_t t = 0; t < x.rows; ++t, y += job.ldy) {
    __m512 sum = _mm512_add_ps(_mm512_loadu_ps(sums[t]), _mm512_loadu_ps(sums[x.rows + t]));
    if (job.accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(present, y), sum);
    _mm512_mask_storeu_ps(y, present, sum);
  }
}

// kPanels neighbouring panels against kTiles neighbouring tiles.
template <int kPanels, int kTiles>
void multiply_block(const PanelJob& job, int64_t panel, int64_t tile) {
  constexpr int64_t kStep = kGroup * kPanelRows * 2, kAhead = 4096;
  const TileOfX x0(job, tile), x1(job, tile + kTiles - 1);
  const int64_t bytes = panel_bytes(PanelFormat::kBF16Pairs, job.in), step0 = x0.group_bytes(),
                step1 = x1.group_bytes();
  const std::byte* w0 = job.panels + panel * bytes;
  const std::byte* w1 = w0 + (kPanels - 1) * bytes;
  const std::byte *parts0 = x0.parts, *parts1 = x1.parts;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < job.in; k += kGroup, w0 += kStep, w1 += kStep, parts0 += step0, parts1 += step1) {
    _tile_loadd(4, parts0, kTileBytes);
    _tile_loadd(6, w0, kTileBytes);
    for (int64_t i = 0; i < kStep; i += 64) _mm_prefetch(reinterpret_cast<const char*>(w0 + kAhead + i), _MM_HINT_T0);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kPanels == 2) {
      _tile_loadd(7, w1, kTileBytes);
      for (int64_t i = 0; i < kStep; i += 64) _mm_prefetch(reinterpret_cast<const char*>(w1 + kAhead + i), _MM_HINT_T0);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kTiles == 2) {
      _tile_loadd(5, parts1, kTileBytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kPanels == 2) _tile_dpbf16ps(3, 5, 7);
    }
  }
  alignas(64) float sums[4][2 * kMostRows][kPanelRows];
  _tile_stored(0, sums[0], kTileBytes);
  store(job, sums[0], x0, panel);
  if constexpr (kPanels == 2) {
    _tile_stored(1, sums[1], kTileBytes);
    store(job, sums[1], x0, panel + 1);
  }
  if constexpr (kTiles == 2) {
    _tile_stored(2, sums[2], kTileBytes);
    store(job, sums[2], x1, panel);
    if constexpr (kPanels == 2) {
      _tile_stored(3, sums[3], kTileBytes);
      store(job, sums[3], x1, panel + 1);
    }
  }
}

template <int kPanels>
void pass(const PanelJob& job, int64_t panel) {
  int64_t tile = job.first_tile;
  for (; tile + 2 <= job.last_tile; tile += 2) multiply_block<kPanels, 2>(job, panel, tile);
  if (tile < job.last_tile) multiply_block<kPanels, 1>(job, panel, tile);
}

void multiply(const PanelJob& job) {
  const TileSession session((job.tiles.m + job.tiles.count - 1) / job.tiles.count);
  int64_t panel = 0;
  for (; panel + 2 <= job.panel_count; panel += 2) pass<2>(job, panel);
  if (panel < job.panel_count) pass<1>(job, panel);
}

void pack(const float* x, int64_t in, int64_t first, int64_t rows, int64_t t, const PackedRows& packed) {
  auto* parts = reinterpret_cast<uint16_t*>(packed.floats + first * in);
  for (int64_t k = 0; k < in; k += kGroup, parts += 2 * rows * kGroup) {
    for (int64_t i = 0; i < kGroup; i += 16) {
      const __m512 value = Avx512Isa::load(x + k + i);
      uint16_t* rounded = parts + t * kGroup + i;
      Avx512Isa::store_bf16(rounded, value);
      Avx512Isa::store_bf16(rounded + rows * kGroup, Avx512Isa::sub(value, Avx512Isa::load_bf16(rounded)));
    }
  }
}

}  // namespace

const LinearKernels& linear_kernels_amx() {
  static constexpr LinearKernels kTable{kMostRows, 0, multiply, pack, nullptr};
  return kTable;
}

}  // namespace quire
