#pragma once
// row_kernels.h written once in GCC's vector types; each including file is compiled for one instruction set and sees
// the widest vectors of it. Everything is in an unnamed namespace and nothing of the standard library is called: the
// linker must not take a function compiled for one instruction set for that of another.
#include <immintrin.h>

#include <cstring>
#include <limits>

#include "sample/row_kernels.h"

namespace quire {
namespace {

#if defined(__AVX512F__)
constexpr size_t kBytes = 64;
#elif defined(__AVX2__)
constexpr size_t kBytes = 32;
#else
constexpr size_t kBytes = 16;
#endif
using F = float __attribute__((vector_size(kBytes)));
using I = int32_t __attribute__((vector_size(kBytes)));
using U = uint32_t __attribute__((vector_size(kBytes)));
using U64 = uint64_t __attribute__((vector_size(kBytes)));
constexpr size_t kLanes = kBytes / 4;
constexpr size_t kParts = kMaximaLanes / kLanes;  // vectors that hold 16 lanes
constexpr size_t kTile = 64;                      // elements that are looked at together
constexpr size_t kTileVectors = kTile / kLanes;
constexpr float kInfinity = std::numeric_limits<float>::infinity(), kLowest = std::numeric_limits<float>::lowest();

template <class To, class From>
inline To cast(const From& from) {
  return reinterpret_cast<const To&>(from);
}
inline F load(const float* p) {
  F v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline F broadcast(float x) { return x - F{}; }
inline float larger(float a, float b) { return a > b ? a : b; }

// One bit for each lane that is all ones.
inline uint32_t mask_of(I lanes) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask(cast<__m512i>(lanes));
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps(cast<__m256>(lanes)));
#else
  return static_cast<uint32_t>(_mm_movemask_ps(cast<__m128>(lanes)));
#endif
}

// Products of the low halves of 64-bit lanes.
inline U64 multiply_low(U64 a, U64 b) {
#if defined(__AVX512F__)
  return cast<U64>(_mm512_mul_epu32(cast<__m512i>(a), cast<__m512i>(b)));
#elif defined(__AVX2__)
  return cast<U64>(_mm256_mul_epu32(cast<__m256i>(a), cast<__m256i>(b)));
#else
  return cast<U64>(_mm_mul_epu32(cast<__m128i>(a), cast<__m128i>(b)));
#endif
}

// fn(p, first, count): `count` elements from index `first` on at p, where kSize may be read: the last are padded with
// -inf.
template <size_t kSize, class Fn>
inline void for_each_tile(const float* row, size_t n, Fn&& fn) {
  size_t i = 0;
  for (; i + kSize <= n; i += kSize) {
    if (!fn(row + i, i, kSize)) return;
  }
  if (i == n) return;
  alignas(64) float last[kSize];
  for (size_t j = 0; j < kSize; ++j) last[j] = i + j < n ? row[i + j] : -kInfinity;
  fn(last, i, n - i);
}

RowMaximum maximum(const float* row, size_t n, float* maxima) {
  float* out = maxima;
  I nan{};
  for_each_tile<kMaximaStride>(row, n, [&](const float* p, size_t, size_t) {
    F best[kParts];
    for (F& b : best) b = broadcast(-kInfinity);
    for (size_t i = 0; i < kMaximaStride; i += kMaximaLanes) {
      for (size_t part = 0; part < kParts; ++part) {
        const F v = load(p + i + part * kLanes);
        best[part] = v > best[part] ? v : best[part];
        nan |= v != v;
      }
    }
    std::memcpy(out, best, sizeof best);
    out += kMaximaLanes;
    return true;
  });
  RowMaximum result;
  for (const float* x = maxima; x != out; ++x) result.value = larger(result.value, *x);
  result.has_nan = mask_of(nan) != 0;
  return result;
}

size_t index_of(const float* row, size_t n, float value) {
  size_t found = n;
  for_each_tile<kTile>(row, n, [&](const float* p, size_t first, size_t count) {
    I any{};
    for (size_t v = 0; v < kTileVectors; ++v) any |= load(p + v * kLanes) == value;
    if (mask_of(any) == 0) return true;
    size_t i = 0;
    while (i < count && p[i] != value) ++i;
    if (i == count) return true;
    found = first + i;
    return false;
  });
  return found;
}

size_t count_above(const float* row, size_t n, float value) {
  I counts{};
  for_each_tile<kTile>(row, n, [&](const float* p, size_t, size_t) {
    for (size_t v = 0; v < kTileVectors; ++v) counts -= load(p + v * kLanes) > value;
    return true;
  });
  size_t sum = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) sum += static_cast<size_t>(counts[lane]);
  return sum;
}

void scale(float* row, size_t n, float shift, float factor) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const F v = (load(row + i) - shift) * factor;
    std::memcpy(row + i, &v, sizeof v);
  }
  for (; i < n; ++i) row[i] = (row[i] - shift) * factor;
}

// exp(x) for x <= 0; 0 below -87 and for NaN. 2^k * exp(r) with |r| <= log(2) / 2, a Taylor polynomial whose next term
// is 5e-9.
inline F exp_negative(F x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const I in_range = x > -87.0f;
  const F t = x * kLog2E + kRound;
  const F k = t - kRound;
  const F r = (x - k * kLn2High) - k * kLn2Low;
  F p = r * (1.0f / 5040) + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // Unsigned: lanes out of range wrap around before they are masked.
  return cast<F>((cast<U>(p) + (cast<U>(t) << 23)) & cast<U>(in_range));
}

// Sixteen float sums over kMaximaStride elements, added up in double: the same order for every width of vector.
double sum_exp(const float* row, size_t n, float shift, float floor) {
  double sum = 0;
  for_each_tile<kMaximaStride>(row, n, [&](const float* p, size_t, size_t) {
    F sums[kParts] = {};
    for (size_t i = 0; i < kMaximaStride; i += kMaximaLanes) {
      for (size_t part = 0; part < kParts; ++part) {
        const F v = load(p + i + part * kLanes);
        const F e = exp_negative(v - shift);
        sums[part] += cast<F>(cast<I>(e) & (v >= floor));
      }
    }
    for (const F& part : sums) {
      for (size_t lane = 0; lane < kLanes; ++lane) sum += static_cast<double>(part[lane]);
    }
    return true;
  });
  return sum;
}

size_t collect(const float* row, size_t n, float floor, Candidate* out) {
  const float least = larger(floor, kLowest);
  size_t found = 0;
  for_each_tile<kTile>(row, n, [&](const float* p, size_t first, size_t) {
    I any{};
    for (size_t v = 0; v < kTileVectors; ++v) any |= load(p + v * kLanes) >= least;
    if (mask_of(any) == 0) return true;
    for (size_t v = 0; v < kTileVectors; ++v) {
      for (uint32_t mask = mask_of(load(p + v * kLanes) >= least); mask != 0; mask &= mask - 1) {
        const size_t i = v * kLanes + static_cast<size_t>(__builtin_ctz(mask));
        out[found].first = p[i];
        out[found++].second = static_cast<int32_t>(first + i);
      }
    }
    return true;
  });
  return found;
}

// The random words of 2 * kLanes neighbouring ids, from block id / 4 on.
struct Words {
  U low, high;  // of the first and the second kLanes ids
};

inline U64 lanes_of_blocks() {
  U64 blocks;
  constexpr size_t kHalf = kBytes / 16;
  for (size_t i = 0; i < kHalf; ++i) {  // so that unpacking pairs of lanes gives ids in order
    blocks[2 * i] = i;
    blocks[2 * i + 1] = kHalf + i;
  }
  return blocks;
}

// A stream as vectors, made once for each row.
struct VectorStream {
  U64 position, choice;
  U64 keys[10][2];
};

inline VectorStream vector_stream(const PhiloxStream& stream) {
  VectorStream result{U64{} + stream.position, U64{} + stream.choice, {}};
  auto key0 = static_cast<uint32_t>(stream.seed), key1 = static_cast<uint32_t>(stream.seed >> 32);
  for (auto& round : result.keys) {
    round[0] = U64{} + key0;
    round[1] = U64{} + key1;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return result;
}

inline Words philox_words(U64 blocks, const VectorStream& stream) {
  // Lanes hold one 32-bit word each; what is in their upper halves is never read.
  U64 x0 = blocks, x1 = stream.position, x2 = stream.choice, x3{};
  const U64 m0 = U64{} + 0xD2511F53u, m1 = U64{} + 0xCD9E8D57u;
#pragma GCC unroll 10
  for (const auto& key : stream.keys) {
    const U64 a = multiply_low(x0, m0), b = multiply_low(x2, m1);
    x0 = (b >> 32) ^ x1 ^ key[0];
    x1 = b;
    x2 = (a >> 32) ^ x3 ^ key[1];
    x3 = a;
  }
  const U64 first = (x0 & 0xffffffffu) | (x1 << 32), second = (x2 & 0xffffffffu) | (x3 << 32);
#if defined(__AVX512F__)
  return {cast<U>(_mm512_unpacklo_epi64(cast<__m512i>(first), cast<__m512i>(second))),
          cast<U>(_mm512_unpackhi_epi64(cast<__m512i>(first), cast<__m512i>(second)))};
#elif defined(__AVX2__)
  return {cast<U>(_mm256_unpacklo_epi64(cast<__m256i>(first), cast<__m256i>(second))),
          cast<U>(_mm256_unpackhi_epi64(cast<__m256i>(first), cast<__m256i>(second)))};
#else
  return {cast<U>(_mm_unpacklo_epi64(cast<__m128i>(first), cast<__m128i>(second))),
          cast<U>(_mm_unpackhi_epi64(cast<__m128i>(first), cast<__m128i>(second)))};
#endif
}

// No smaller than gumbel(word), by at most 0.07 where the noise is large: with d = 1 - u, -log(-log(u)) <= -log(d) as
// -log(u) >= d, and log2(d) >= exponent + mantissa, which is what the bits of d say. d is taken of 24 bits, rounded
// down.
inline F gumbel_bound(U words) {
  const F d = __builtin_convertvector(cast<I>(words >> 8), F) * 0x1p-24f;
  constexpr float kLn2 = 0.69314718f, kRoundingErrors = 1e-4f;
  return (127.0f - __builtin_convertvector(cast<I>(d), F) * 0x1p-23f) * kLn2 + kRoundingErrors;
}

void race_row(const float* row, size_t n, GumbelRace& race) {
  const VectorStream stream = vector_stream(race.stream);
  const U64 lanes = lanes_of_blocks();
  for_each_tile<kTile>(row, n, [&](const float* p, size_t first, size_t) {
    const auto best = static_cast<float>(race.best);
    const float hopeless = larger(race.cut.logit, best - kLargestGumbel - 1e-4f);
    I any{};
    for (size_t v = 0; v < kTileVectors; ++v) any |= load(p + v * kLanes) >= hopeless;
    if (mask_of(any) == 0) return true;
    for (size_t pair = 0; pair < kTileVectors; pair += 2) {
      const size_t offset = pair * kLanes;
      const Words words = philox_words(lanes + (first + offset) / 4, stream);
      const F low = load(p + offset), high = load(p + offset + kLanes);
      const I low_hits = (low + gumbel_bound(words.low) >= best) & (low >= hopeless);
      const I high_hits = (high + gumbel_bound(words.high) >= best) & (high >= hopeless);
      if (mask_of(low_hits | high_hits) == 0) continue;
      uint32_t spelled[2 * kLanes];
      std::memcpy(spelled, &words, sizeof spelled);
      for (uint64_t mask = mask_of(low_hits) | uint64_t{mask_of(high_hits)} << kLanes; mask != 0; mask &= mask - 1) {
        const auto lane = static_cast<size_t>(__builtin_ctzll(mask));
        const auto id = static_cast<int32_t>(first + offset + lane);
        race.offer(p[offset + lane], id, spelled[lane]);
      }
    }
    return true;
  });
}

constexpr RowKernels kKernels = {maximum, index_of, count_above, scale, sum_exp, collect, race_row};

}  // namespace
}  // namespace quire
