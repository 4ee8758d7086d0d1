#pragma once
// The two products of attention as register tiles: scores = q k and values = w v. Each result has one accumulator, and
// what it sums comes in ascending order, so it does not depend on the tile that it was computed in.
//
// GCC 12 unrolls loops over registers at -O2 only when told to; without it the accumulators live in memory.
#include <cstdint>

#include "kernels/attention/attention.h"

namespace quire {

// kAccumulators: vectors of 16 floats that a tile may hold.
template <class Isa, int kAccumulators>
struct AttentionProducts {
  using F = typename Isa::F;
  static constexpr int kRows = kPageStates;  // most rows of a tile

  // scores[r][16 g + lane] = sum over d of q[r][d] * panels[g][d][lane] for g < groups; rows of scores are
  // kPartitionKeys apart.
  static void scores(int rows, const float* q, int64_t head_dim, const float* panels, int64_t groups, float* scores) {
    with_rows(rows, [&](auto r) { score_groups<r, columns(r)>(q, head_dim, panels, groups, scores); });
  }

  // values[r] = (onto ? values[r] : 0) + sum over keys [begin, end) of w[r][key] * v[key]; rows of w are kPartitionKeys
  // apart, those of v and values `width`.
  static void weigh(int rows, const float* w, const float* v, int64_t begin, int64_t end, int64_t width, bool onto,
                    float* values) {
    with_rows(rows, [&](auto r) { weigh_columns<r, columns(r)>(w, v, begin, end, width, width / 16, onto, values); });
  }

  // values[r][16 c + lane] = (onto ? values[..] : 0) + sum over keys [begin, end) of w[r][key] * row(key, c) for R rows
  // and C vectors; row(key, 0) is called first for each key. Rows of w are kPartitionKeys apart, those of values
  // `width`.
  template <int R, int C, class Row>
  static void weigh_tile(const float* w, int64_t begin, int64_t end, bool onto, float* values, int64_t width, Row row) {
    F acc[R * C];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) acc[r * C + c] = onto ? Isa::load(values + r * width + c * 16) : Isa::zero();
    }
    for (int64_t key = begin; key < end; ++key) {
      F v[C];
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) v[c] = row(key, c);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const F x = Isa::set1(w[r * kPartitionKeys + key]);
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) acc[r * C + c] = Isa::fma(x, v[c], acc[r * C + c]);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) Isa::store(values + r * width + c * 16, acc[r * C + c]);
    }
  }

  template <int N>
  struct Constant {
    constexpr operator int() const { return N; }
  };

  // fn(a constant that is `rows`).
  template <class Fn>
  static void with_rows(int rows, Fn fn) {
    switch (rows) {
      case 1:
        return fn(Constant<1>{});
      case 2:
        return fn(Constant<2>{});
      case 3:
        return fn(Constant<3>{});
      case 4:
        return fn(Constant<4>{});
      case 5:
        return fn(Constant<5>{});
      default:
        return fn(Constant<6>{});
    }
  }

 private:
  static constexpr int columns(int rows) {
    int n = 1;
    while (2 * n * rows <= kAccumulators && n < 8) n *= 2;
    return n;
  }

  template <int R, int C>
  static void score_groups(const float* q, int64_t head_dim, const float* panels, int64_t groups, float* scores) {
    while (groups >= C) {
      score_tile<R, C>(q, head_dim, panels, scores);
      groups -= C;
      panels += C * 16 * head_dim;
      scores += C * 16;
    }
    if constexpr (C > 1) {
      if (groups > 0) score_groups<R, C / 2>(q, head_dim, panels, groups, scores);
    }
  }

  template <int R, int C>
  static void score_tile(const float* q, int64_t head_dim, const float* panels, float* scores) {
    F acc[R * C];
#pragma GCC unroll 32
    for (int i = 0; i < R * C; ++i) acc[i] = Isa::zero();
    for (int64_t d = 0; d < head_dim; ++d) {
      F k[C];
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) k[c] = Isa::load(panels + (c * head_dim + d) * 16);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const F x = Isa::set1(q[r * head_dim + d]);
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) acc[r * C + c] = Isa::fma(x, k[c], acc[r * C + c]);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) Isa::store(scores + r * kPartitionKeys + c * 16, acc[r * C + c]);
    }
  }

  template <int R, int C>
  static void weigh_columns(const float* w, const float* v, int64_t begin, int64_t end, int64_t width, int64_t vectors,
                            bool onto, float* values) {
    while (vectors >= C) {
      weigh_tile<R, C>(w, begin, end, onto, values, width,
                       [&](int64_t key, int c) { return Isa::load(v + key * width + c * 16); });
      vectors -= C;
      v += C * 16;
      values += C * 16;
    }
    if constexpr (C > 1) {
      if (vectors > 0) weigh_columns<R, C / 2>(w, v, begin, end, width, vectors, onto, values);
    }
  }
};

}  // namespace quire
