#pragma once
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, SC 2011).
#include <array>
#include <cstdint>

namespace quire {

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0], b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(a)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// 1 - u for the uniform number u of a word: exact, never 0 or 1. Kept as the distance from 1, where the winners of a
// Gumbel race come from.
inline double upper_tail(uint32_t word) { return (static_cast<double>(word) + 0.5) * 0x1p-32; }

}  // namespace quire
