#include "kernels/linear/cpu/panel_kernel.h"
#include "kernels/simd/scalar.h"

namespace quire {
namespace {

struct ScalarLanes : ScalarIsa {
  static constexpr int kLanes = 16;
  static constexpr int kFloatTile = 2, kFloatPanels = 1, kCodeTile = 2;

  static F load_u8(const uint8_t* p) {
    return each([&](int i) { return static_cast<float>(p[i]); });
  }
  static I add_int(I a, I b) {
    return each_int([&](int i) { return a.v[i] + b.v[i]; });
  }

  template <int T>
  static void dot_u4(const uint8_t* codes, const int8_t* x, I* sums) {
    for (int t = 0; t < T; ++t) {
      sums[t] = each_int([&](int i) {
        int32_t sum = 0;
        for (int p = 0; p < 4; ++p) {
          for (int c = 0; c < 4; ++c) {
            const int byte = codes[64 * p + 4 * i + c];
            sum += (byte & 15) * x[kGroup * t + 8 * p + c] + (byte >> 4) * x[kGroup * t + 8 * p + 4 + c];
          }
        }
        return sum;
      });
    }
  }

  template <int T>
  static void dot_u5(const uint8_t* codes, const uint8_t* fifth, const int8_t* x, I* sums) {
    dot_u4<T>(codes, x, sums);
    for (int t = 0; t < T; ++t) {
      const I sixteens = each_int([&](int i) {
        int32_t sum = 0;
        for (int k = 0; k < kGroup; ++k)
          sum += (fifth[8 * (k / 4) + i / 2] >> (i % 2 * 4 + k % 4) & 1) * x[kGroup * t + k];
        return 16 * sum;
      });
      sums[t] = add_int(sums[t], sixteens);
    }
  }

  template <int T>
  static void dot_u8(const uint8_t* codes, const int8_t* x, const int32_t* offsets, I* sums) {
    for (int t = 0; t < T; ++t) {
      sums[t] = each_int([&](int i) {
        int32_t sum = offsets[t];
        for (int p = 0; p < 4; ++p) {
          for (int c = 0; c < 4; ++c) sum += codes[64 * p + 4 * i + c] * x[kGroup * t + 4 * p + c];
        }
        return sum;
      });
    }
  }
};

}  // namespace

const LinearKernels& linear_kernels_scalar() { return linear_kernels_of<ScalarLanes, ScalarIsa>(); }

}  // namespace quire
