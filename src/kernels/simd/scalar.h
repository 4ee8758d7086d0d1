#pragma once
// Sixteen lanes in portable C++. The three instruction sets (scalar.h, avx2.h, avx512.h) offer the same operations with
// the same rounding, so a kernel written once over `Isa` gives the same bits on all of them.
//   F: 16 floats, I: 16 int32
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"

namespace quire {

struct ScalarIsa {
  struct F {
    float v[16];
  };
  struct I {
    int32_t v[16];
  };

  template <class Fn>
  static F each(Fn fn) {
    F r;
    for (int i = 0; i < 16; ++i) r.v[i] = fn(i);
    return r;
  }
  template <class Fn>
  static I each_int(Fn fn) {
    I r;
    for (int i = 0; i < 16; ++i) r.v[i] = fn(i);
    return r;
  }

  static void prefetch(const void*) {}

  static F zero() { return set1(0.0f); }
  static F set1(float x) {
    return each([&](int) { return x; });
  }
  static F load(const float* p) {
    return each([&](int i) { return p[i]; });
  }
  static void store(float* p, F a) { std::memcpy(p, a.v, sizeof a.v); }
  static F load_f16(const uint16_t* p) {
    return each([&](int i) { return f16_to_f32(p[i]); });
  }
  static F load_bf16(const uint16_t* p) {
    return each([&](int i) { return bf16_to_f32(p[i]); });
  }
  static F load_f8e4m3(const uint8_t* p) {
    return each([&](int i) { return f8e4m3_to_f32(p[i]); });
  }
  static F load_f8e5m2(const uint8_t* p) {
    return each([&](int i) { return f8e5m2_to_f32(p[i]); });
  }
  static F load_i8(const int8_t* p) {
    return each([&](int i) { return static_cast<float>(p[i]); });
  }
  static void store_f16(uint16_t* p, F a) {
    for (int i = 0; i < 16; ++i) p[i] = f32_to_f16(a.v[i]);
  }
  static void store_bf16(uint16_t* p, F a) {
    for (int i = 0; i < 16; ++i) p[i] = f32_to_bf16(a.v[i]);
  }
  // Each of 8 floats twice.
  static F load_twice(const float* p) {
    return each([&](int i) { return p[i / 2]; });
  }
  // Neighbours 2i and 2i + 1 change places.
  static F swap_pairs(F a) {
    return each([&](int i) { return a.v[i ^ 1]; });
  }
  // a - b in even lanes, a + b in odd ones.
  static F sub_add(F a, F b) {
    return each([&](int i) { return i % 2 == 0 ? a.v[i] - b.v[i] : a.v[i] + b.v[i]; });
  }
  static F add(F a, F b) {
    return each([&](int i) { return a.v[i] + b.v[i]; });
  }
  static F sub(F a, F b) {
    return each([&](int i) { return a.v[i] - b.v[i]; });
  }
  static F mul(F a, F b) {
    return each([&](int i) { return a.v[i] * b.v[i]; });
  }
  static F div(F a, F b) {
    return each([&](int i) { return a.v[i] / b.v[i]; });
  }
  static F fma(F a, F b, F c) {
    return each([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
  }
  static F max(F a, F b) {
    return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F min(F a, F b) {
    return each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F abs(F a) {
    return each([&](int i) { return std::fabs(a.v[i]); });
  }
  // Lane by lane: a < b ? x : y.
  static F select_less(F a, F b, F x, F y) {
    return each([&](int i) { return a.v[i] < b.v[i] ? x.v[i] : y.v[i]; });
  }
  static F round(F a) {
    return each([&](int i) { return std::nearbyint(a.v[i]); });
  }
  static F to_float(I a) {
    return each([&](int i) { return static_cast<float>(a.v[i]); });
  }
  static I to_int(F a) {
    return each_int([&](int i) { return static_cast<int32_t>(std::nearbyint(a.v[i])); });
  }
  // x * 2^n for n in [-126, 127].
  static F scale_by_pow2(F x, F n) { return mul(x, pow2(to_int(n))); }
  // 2^n for n in [-126, 127].
  static F pow2(I n) {
    return each([&](int i) { return std::bit_cast<float>((n.v[i] + 127) << 23); });
  }
  // The lower int8 of each lane, which must fit.
  static void store_int8(int8_t* p, I a) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(a.v[i]);
  }

  // Trees: lanes i and i + 8, then + 4, + 2, + 1.
  static float sum(F a) {
    for (int step = 8; step > 0; step /= 2) {
      for (int i = 0; i < step; ++i) a.v[i] += a.v[i + step];
    }
    return a.v[0];
  }
  // Lane j: sum(a[j]).
  static F sum16(const F* a) {
    return each([&](int i) { return sum(a[i]); });
  }
  static float max_lane(F a) {
    float r = a.v[0];
    for (int i = 1; i < 16; ++i) r = a.v[i] > r ? a.v[i] : r;
    return r;
  }
  // The largest magnitude in both; NaN if there is one.
  static float max_magnitude(F a, F b) {
    int32_t r = 0;
    for (const F& x : {a, b}) {
      for (const float lane : x.v) r = std::max(r, std::bit_cast<int32_t>(lane) & 0x7fffffff);
    }
    return std::bit_cast<float>(r);
  }
  static int32_t sum_int(I a) {
    int32_t r = 0;
    for (const int32_t x : a.v) r += x;
    return r;
  }
};

}  // namespace quire
