#include "emulator/matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace emulator {
namespace {

float of_f16(uint32_t bits) { return static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(bits))); }
float of_bf16(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

template <float (*kWiden)(uint32_t)>
void multiply(std::span<const ProductIn> in, std::span<float4> out) {
  float a[16][16], b[16][8], c[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const ProductIn& part = in[static_cast<size_t>(lane)];
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      const int row = group + (i % 2) * 8, column = pair + (i / 2) * 8;
      a[row][column] = kWiden(part.a[i] & 0xffffu);
      a[row][column + 1] = kWiden(part.a[i] >> 16);
      c[group + i / 2 * 8][pair + i % 2] = part.c[i];
    }
    for (int i = 0; i < 2; ++i) {
      b[pair + i * 8][group] = kWiden(part.b[i] & 0xffffu);
      b[pair + i * 8 + 1][group] = kWiden(part.b[i] >> 16);
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4, pair = lane % 4 * 2;
    out[static_cast<size_t>(lane)] = {c[group][pair], c[group][pair + 1], c[group + 8][pair], c[group + 8][pair + 1]};
  }
}

// An 8-bit float without infinities and with one zero, of which 0x80 is NaN.
template <int kMantissa, int kBias>
float of_fnuz(uint32_t byte) {
  if (byte == 0x80) return std::numeric_limits<float>::quiet_NaN();
  const auto exponent = static_cast<int>((byte & 0x7f) >> kMantissa);
  const auto mantissa = static_cast<float>(byte & ((1u << kMantissa) - 1));
  constexpr auto kOne = static_cast<float>(1 << kMantissa);
  const float magnitude =
      exponent == 0 ? std::ldexp(mantissa / kOne, 1 - kBias) : std::ldexp(1.0f + mantissa / kOne, exponent - kBias);
  return byte >= 0x80 ? -magnitude : magnitude;
}

// The matrices by where the calculator says that their entries are: "A[i][k] GPR", "Lane" and so on.
template <int kDepth, float (*kLeft)(uint32_t), float (*kRight)(uint32_t)>
void multiply_wide(std::span<const WideProductIn> in, std::span<float4> out) {
  constexpr int kBits = kDepth == 16 ? 16 : 8, kInRegister = 32 / kBits, kOfLane = 2 * kInRegister;
  constexpr uint32_t kMask = (1u << kBits) - 1;
  const auto element = [&](const uint32_t(&registers)[2], int k) {
    return registers[k / kInRegister % 2] >> (kBits * (k % kInRegister)) & kMask;
  };
  float a[16][kDepth], b[kDepth][16], d[16][16];
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < kDepth; ++k) {
      const WideProductIn& lane = in[static_cast<size_t>(16 * (k / kOfLane) + i)];
      a[i][k] = kLeft(element(lane.a, k));
      b[k][i] = kRight(element(lane.b, k));
    }
    for (int j = 0; j < 16; ++j) d[i][j] = in[static_cast<size_t>(16 * (i / 4) + j)].d[i % 4];
  }
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < kDepth; ++k) {
      for (int j = 0; j < 16; ++j) d[i][j] += a[i][k] * b[k][j];
    }
  }
  for (int lane = 0; lane < 64; ++lane) {
    const int i = 4 * (lane / 16), j = lane % 16;
    out[static_cast<size_t>(lane)] = {d[i][j], d[i + 1][j], d[i + 2][j], d[i + 3][j]};
  }
}

}  // namespace

float of_fnuz_e4m3(uint32_t byte) { return of_fnuz<3, 8>(byte); }

uint32_t to_fnuz_e4m3(float value) {
  const float magnitude = std::fabs(value);
  if (!(magnitude < 248.0f)) return 0x80;
  int exponent = 0;
  (void)std::frexp(magnitude, &exponent);
  // Steps between neighbours: 2^-10 among subnormal numbers.
  const int step = magnitude == 0.0f ? -10 : std::max(exponent - 4, -10);
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -step)));  // up to 16
  // A subnormal number is its count of steps; else 8 ... 15 steps are the mantissa with its hidden one.
  const uint32_t code = (static_cast<uint32_t>(step + 10) << 3) + steps;
  return code == 0 || value > 0.0f ? code : code | 0x80;
}

void multiply_wide_f16(std::span<const WideProductIn> in, std::span<float4> out) {
  multiply_wide<16, of_f16, of_f16>(in, out);
}
void multiply_wide_bf16(std::span<const WideProductIn> in, std::span<float4> out) {
  multiply_wide<16, of_bf16, of_bf16>(in, out);
}
void multiply_wide_fp8(std::span<const WideProductIn> in, std::span<float4> out) {
  multiply_wide<32, of_fnuz<3, 8>, of_fnuz<3, 8>>(in, out);
}
void multiply_wide_bf8(std::span<const WideProductIn> in, std::span<float4> out) {
  multiply_wide<32, of_fnuz<2, 16>, of_fnuz<3, 8>>(in, out);
}

void multiply_f16(std::span<const ProductIn> in, std::span<float4> out) { multiply<of_f16>(in, out); }
void multiply_bf16(std::span<const ProductIn> in, std::span<float4> out) { multiply<of_bf16>(in, out); }

}  // namespace emulator
