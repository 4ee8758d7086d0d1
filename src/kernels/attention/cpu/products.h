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
    with_rows(rows, [&](auto r) { score_groups<r, columns_of(r)>(q, head_dim, panels, groups, scores); });
  }

  // What becomes of a sum of weighed values: it replaces what is in memory, began with that, or is merged into it, row
  // r as sum * second[r] + memory * first[r].
  struct Into {
    bool onto = false;
    const float *first = nullptr, *second = nullptr;

    F start(const float* values) const { return onto ? Isa::load(values) : Isa::zero(); }
    void store(int r, F sum, float* values) const {
      if (first != nullptr) {
        sum = Isa::fma(sum, Isa::set1(second[r]), Isa::mul(Isa::load(values), Isa::set1(first[r])));
      }
      Isa::store(values, sum);
    }
  };

  // Values [first, first + kPanel) of a head lie together for all keys of a tile: so much of V stays in the L1 cache.
  static constexpr int64_t kPanel = 64;
  static constexpr int64_t panel_width(int64_t first, int64_t width) {
    return width - first < kPanel ? width - first : kPanel;
  }
  // Where value d of a key of a tile is. d: a multiple of 16.
  static constexpr int64_t value_index(int64_t key, int64_t d, int64_t width) {
    const int64_t first = d / kPanel * kPanel;
    return first * kPartitionKeys + key * panel_width(first, width) + d - first;
  }

  // values[r] from the sum over keys [begin, end) of w[r][key] * v[key] in a panel of `columns` values; rows of w are
  // kPartitionKeys apart, those of values `width`.
  static void weigh(int rows, const float* w, const float* v, int64_t columns, int64_t begin, int64_t end,
                    const Into& into, float* values, int64_t width) {
    with_rows(rows, [&](auto r) {
      weigh_columns<r, columns_of(r)>(w, v, columns, begin, end, columns / 16, into, values, width);
    });
  }

  // values[r][16 c + lane] from the sum over keys [begin, end) of w[r][key] * row(key, c) for R rows and C vectors;
  // row(key, 0) is called first for each key. Rows of w are kPartitionKeys apart, those of values `width`.
  template <int R, int C, class Row>
  static void weigh_tile(const float* w, int64_t begin, int64_t end, const Into& into, float* values, int64_t width,
                         Row row) {
    F acc[R * C];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) acc[r * C + c] = into.start(values + r * width + c * 16);
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
      for (int c = 0; c < C; ++c) into.store(r, acc[r * C + c], values + r * width + c * 16);
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
  static constexpr int columns_of(int rows) {
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
  static void weigh_columns(const float* w, const float* v, int64_t stride, int64_t begin, int64_t end, int64_t vectors,
                            const Into& into, float* values, int64_t width) {
    while (vectors >= C) {
      weigh_tile<R, C>(w, begin, end, into, values, width,
                       [&](int64_t key, int c) { return Isa::load(v + key * stride + c * 16); });
      vectors -= C;
      v += C * 16;
      values += C * 16;
    }
    if constexpr (C > 1) {
      if (vectors > 0) weigh_columns<R, C / 2>(w, v, stride, begin, end, vectors, into, values, width);
    }
  }
};

}  // namespace quire
