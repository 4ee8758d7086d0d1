#pragma once
// How a packed weight lies in memory: panels of 16 rows, one lane a row. In a panel, columns ascend:
//   kF32   [in][16] floats             kBF16  [in][16] bfloat16
//   kU4    for each group of 32 columns: 16 f16 scales, 16 f16 minima, 4 x 64 bytes; byte 4*row + c of the p-th 64 holds the code of column
//          8p + c in its low and of column 8p + 4 + c in its high half. w = scale * code + min
//   kU8    for each group of 32: 16 f16 scales, 8 x 64 bytes; byte 4*row + c of the p-th 64 is column 4p + c. w = scale * (code - 128)
//   kU6    for each group of 32: 2 x 16 f32 scales (columns 0-15, 16-31), 8 x 64 bytes as kU8. w = scale * (code - 32)
#include <cstddef>
#include <cstdint>

namespace quire {

enum class PanelFormat : uint8_t { kF32, kBF16, kU4, kU8, kU6 };

constexpr int64_t kPanelRows = 16;
constexpr int64_t kGroup = 32;  // columns that share a scale of x
constexpr int64_t kU4GroupBytes = 64 + 256, kU8GroupBytes = 32 + 512, kU6GroupBytes = 128 + 512;
constexpr int kU8Offset = 128, kU6Offset = 32;

constexpr int64_t panel_bytes(PanelFormat format, int64_t in) {
  switch (format) {
    case PanelFormat::kF32: return in * kPanelRows * 4;
    case PanelFormat::kBF16: return in * kPanelRows * 2;
    case PanelFormat::kU4: return in / kGroup * kU4GroupBytes;
    case PanelFormat::kU8: return in / kGroup * kU8GroupBytes;
    case PanelFormat::kU6: return in / kGroup * kU6GroupBytes;
  }
  return 0;
}

// x as the kernels read it: floats for kF32 and kBF16, else int8 with a scale for each row and group and integer sums of each half group.
struct QuantizedRows {
  const int8_t* codes;   // [m, in]
  const float* scales;   // [m, in / 32]
  const int32_t* sums;   // [m, in / 16]
};

// One call: a run of panels of one format against all rows of x.
struct PanelJob {
  PanelFormat format;
  const std::byte* panels;  // the first panel of the run
  int64_t panel_count;
  int64_t rows;             // rows of the run that exist: 16 * panel_count or up to 15 fewer
  int64_t in;
  const float* x;
  int64_t ldx;
  QuantizedRows quantized;
  float* y;                 // column of the run's first row
  int64_t ldy;
  int64_t m;
  bool accumulate;
};

// One instruction set's kernels.
struct LinearKernels {
  void (*multiply)(const PanelJob& job);
  // x [n] to int8: scale = absmax / 127, codes to nearest even; n a multiple of 32.
  void (*quantize_row)(const float* x, int64_t n, int8_t* codes, float* scales, int32_t* sums);
};

const LinearKernels& linear_kernels_scalar();
const LinearKernels& linear_kernels_avx2();
const LinearKernels& linear_kernels_avx512();

}  // namespace quire
