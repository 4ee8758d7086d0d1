#pragma once
// Products of 16 x 16 tiles by a wave, the same to a kernel whatever the vendor. Included by GPU sources only.
//
//   sums[16, 16] += left[16, k] * right[k, 16]
//
// `left` is given by its rows and `right` by its columns: the 16 lines of an operand. The lanes of a wave stand in four
// groups. A lane has kLines lines (line(lane, n)) and of each the elements that its group has of the depth k. Of the
// sums it has the same kLines columns, and of each the 4 rows that are its group's: just what an operand of 16-bit
// elements has of a depth of 16. So sums, rounded, are the right operand of the next product as they are, and a column
// is spread over the lanes that differ in the group only.
//
// Nothing in a product depends on which k is which, as long as both operands agree. So an operand of a depth of 32 is
// loaded by packs: group g has elements 8 g ... 8 g + 7 of a line, 16 bytes that become two operands of a depth of 16
// (the first four elements and the last four), or 8 bytes that are one of a depth of 32. Nor does it matter which line
// is which: with line_of_tile() two tiles of sums make 32 rows, of which group g has the neighbours 8 g ... 8 g + 7.
#include <type_traits>

#include "gpu/matrix_instructions.h"

namespace quire::gpu {

// AMD: lane l has line l % 16 and is of group l / 16. NVIDIA: lines l / 4 and 8 more, group l % 4; the instruction's
// left operand is our right one and its result the transpose of ours, so that the lanes of a column are neighbours.
#if defined(__HIP_PLATFORM_AMD__)
constexpr int kLines = 1;
__device__ inline int group_of(int lane) { return lane / 16; }
__device__ inline int line_of(int lane, int) { return lane % 16; }
// Of the 16 rows, or of a depth of 16, that which is element e of a group.
__device__ inline int depth_of(int group, int e) { return 4 * group + e; }
// The group that has it, and as which element.
__device__ inline int group_of_depth(int depth) { return depth / 4; }
__device__ inline int element_of_depth(int depth) { return depth % 4; }
#else
constexpr int kLines = 2;
__device__ inline int group_of(int lane) { return lane % 4; }
__device__ inline int line_of(int lane, int n) { return lane / 4 + 8 * n; }
__device__ inline int depth_of(int group, int e) { return 2 * group + e % 2 + e / 2 * 8; }
__device__ inline int group_of_depth(int depth) { return depth % 8 / 2; }
__device__ inline int element_of_depth(int depth) { return depth % 2 + depth / 8 * 2; }
#endif

// Which of 32 rows is line `line` of tile `tile`, 0 or 1, so that the sums of the two tiles are of neighbouring rows:
// element e of group g is row 8 g + 4 tile + e.
__device__ inline int row_of_line(int tile, int line) {
  return 8 * group_of_depth(line) + 4 * tile + element_of_depth(line);
}

// An operand: of depth 16 with elements of 16 bits, of depth 32 with elements of 8.
struct MatrixOperand {
  uint32_t words[kLines][2];
};
// [line][element]
using MatrixTile = float[kLines][4];

template <class T>
__device__ inline void multiply(T type, MatrixTile& sums, const MatrixOperand& left, const MatrixOperand& right) {
#if defined(__HIP_PLATFORM_AMD__)
  multiply(type, sums[0], left.words[0], right.words[0]);
#else
  // The tile by halves of its rows.
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    float c[4] = {sums[0][2 * n], sums[0][2 * n + 1], sums[1][2 * n], sums[1][2 * n + 1]};
    const uint32_t a[4] = {right.words[0][0], right.words[1][0], right.words[0][1], right.words[1][1]};
    multiply(type, c, a, left.words[n][0], left.words[n][1]);
    sums[0][2 * n] = c[0], sums[0][2 * n + 1] = c[1], sums[1][2 * n] = c[2], sums[1][2 * n + 1] = c[3];
  }
#endif
}

// Both halves of a line's pack of 8 elements of 16 bits.
__device__ inline void set_line(MatrixOperand (&operands)[2], int n, const uint4& pack) {
  operands[0].words[n][0] = pack.x, operands[0].words[n][1] = pack.y;
  operands[1].words[n][0] = pack.z, operands[1].words[n][1] = pack.w;
}

// A tile of sums, rounded, as the right operand over its rows.
template <class T>
__device__ inline MatrixOperand rounded_operand(const MatrixTile& sums) {
  MatrixOperand operand;
#pragma unroll
  for (int n = 0; n < kLines; ++n) {
    operand.words[n][0] = bits_of_pair<T>(sums[n][0], sums[n][1]);
    operand.words[n][1] = bits_of_pair<T>(sums[n][2], sums[n][3]);
  }
  return operand;
}

// Over the lanes that share a column; each gets the result.
#if defined(__HIP_PLATFORM_AMD__)
constexpr int kGroupStep = 16;
#else
constexpr int kGroupStep = 1;
#endif
__device__ inline float groups_max(float value) {
  value = fmaxf(value, shuffle_xor(value, kGroupStep));
  return fmaxf(value, shuffle_xor(value, 2 * kGroupStep));
}
__device__ inline float groups_sum(float value) {
  value += shuffle_xor(value, kGroupStep);
  return value + shuffle_xor(value, 2 * kGroupStep);
}
__device__ inline uint32_t groups_max(uint32_t value) {
  value = max(value, shuffle_xor(value, kGroupStep));
  return max(value, shuffle_xor(value, 2 * kGroupStep));
}

// Four bytes of OCP's e4m3 or e5m2 for an instruction that reads them as fnuz, as which they mean half as much: -0
// becomes 0; what is NaN or infinite becomes NaN.
template <class F8>
__device__ inline uint32_t ocp_as_fnuz(uint32_t bytes) {
  const uint32_t magnitudes = bytes & 0x7f7f7f7f;
  // The high bit of a byte says whether its magnitude is at least that of the first code that is no number.
  constexpr uint32_t kFirst = std::is_same_v<F8, F8E4M3> ? 0x7f : 0x7c;
  const uint32_t invalid = (magnitudes + (0x80 - kFirst) * 0x01010101u) & 0x80808080;
  bytes &= (magnitudes + 0x7f7f7f7f) | 0x7f7f7f7f;
  return invalid == 0 ? bytes : (bytes & ~((invalid >> 7) * 0xff)) | invalid;
}

}  // namespace quire::gpu
