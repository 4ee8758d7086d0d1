#pragma once
// attention.h's contract written once over an Isa of kernels/simd. A (row, head) pair of the task is a state; states of
// one row are neighbours.
#include <cstdint>
#include <cstring>

#include "kernels/attention/attention.h"
#include "kernels/attention/cpu/kv_ahead.h"
#include "kernels/attention/cpu/kv_page.h"
#include "kernels/attention/cpu/merge_kernel.h"
#include "kernels/attention/cpu/products.h"
#include "kernels/simd/exp.h"
#include "kernels/simd/tanh.h"

namespace quire {

template <class Isa, class Pieces>
class AttentionKernel {
 public:
  static const AttentionKernels& table() {
    static constexpr AttentionKernels kTable{attend, gather, Merge::merge_row, Merge::merge};
    return kTable;
  }

 private:
  using F = typename Isa::F;
  using Merge = MergeKernel<Isa>;
  using Products = AttentionProducts<Isa, Pieces::kAccumulators>;
  using Use = AttentionTask::Use;
  static constexpr float kMinusInfinity = Merge::kMinusInfinity;
  static constexpr int kTogether = Pieces::kAccumulators >= 24 ? 8 : 1;  // vectors of exponentials in step
  // Between what is read and what is fetched from memory meanwhile: keys of a tile, (head, 16 keys) pairs of pages,
  // rows of q and out.
  static constexpr int64_t kKeysAhead = 16, kHeadsAhead = 3, kStatesAhead = 6;

  // Keys and values of one partition; scales null unless the cache has them.
  struct Tile {
    float *k, *v, *k_scales, *v_scales;
    Tile(float* base, const PagedKv& kv)
        : k(base), v(k + kPartitionKeys * int64_t{kv.head_dim}), k_scales(nullptr), v_scales(nullptr) {
      if (kv.scaling == KvScaling::kNone) return;
      k_scales = v + kPartitionKeys * attention_width(kv.v_head_dim);
      v_scales = k_scales + kPartitionKeys;
    }
  };

  // One worker's scratch (attention_scratch_floats): what all KV heads of a task use one after the other.
  struct Scratch {
    float *tile, *wide, *heads;
    Scratch(float* base, const PagedKv& kv)
        : tile(base),
          wide(base + (gathered_floats(kv) + 15) / 16 * 16),
          heads(wide + 16 * attention_width(kv.head_dim)) {}
  };

  // What each KV head has of its own. Values have `width` floats a state, maxima and sums one. part_values: of one
  // row's states, or else of the group of states that is being merged.
  struct HeadScratch {
    float *q, *scores;
    float *part_values, *part_max, *part_sum;
    float *values, *max, *sum;
    float *old_weight, *new_weight;
    float* end;  // where the next head's begins

    HeadScratch(float* base, int64_t states, int64_t part_states, const PagedKv& kv) {
      const int64_t width = attention_width(kv.v_head_dim);
      end = base;
      const auto take = [&](int64_t floats) {
        float* p = end;
        end += (floats + 15) / 16 * 16;
        return p;
      };
      q = take(states * kv.head_dim);
      scores = take(states * kPartitionKeys);
      part_values = take(part_states * width);
      values = take(states * width);
      for (float** lanes : {&part_max, &part_sum, &max, &sum, &old_weight, &new_weight}) *lanes = take(states);
    }
    void clear(int64_t states) const {
      for (float* lanes : {part_max, part_sum, max, sum, old_weight, new_weight}) {
        for (int64_t i = 0; i < states; i += 16) Isa::store(lanes + i, Isa::zero());
      }
    }
  };

  struct Range {
    int64_t begin, end;
  };

  // The task seen from one KV head.
  struct Job {
    const AttentionArgs& args;
    const AttentionTask& task;
    int64_t kv_head, share, states, width;

    int64_t position(int64_t state) const { return task.first_position + state / share; }
    int64_t head(int64_t state) const { return kv_head * share + state % share; }

    // Keys of the partition that starts at first_key which a state sees; empty if begin >= end.
    Range keys(int64_t state, int64_t first_key) const {
      const int64_t newest = position(state) + 1 - first_key;
      const int64_t oldest = args.window > 0 ? newest - args.window : 0;
      return {oldest > 0 ? oldest : 0, newest < kPartitionKeys ? newest : kPartitionKeys};
    }

    // Whether states first .. last see that whole partition: the first has the oldest newest key, the last the newest
    // oldest one.
    bool sees_all(int64_t first, int64_t last, int64_t first_key) const {
      return keys(first, first_key).end == kPartitionKeys && keys(last, first_key).begin == 0;
    }

    // States that see keys of that partition: earlier rows see none of it yet, later rows none of it any more.
    Range seeing(int64_t first_key) const {
      const int64_t blind = first_key - task.first_position;
      Range range{blind > 0 ? blind * share : 0, states};
      if (args.window > 0) {
        const int64_t rows = first_key + kPartitionKeys - 1 + args.window - task.first_position;
        if (rows * share < states) range.end = rows > 0 ? rows * share : 0;
      }
      return range;
    }
  };

  // What becomes of a partition's states: they are left as they are, they are the first of the running ones, or they
  // are merged into those.
  enum class Goal : uint8_t { kParts, kFirst, kMerged };

  // The KV heads of a task that are attended in step.
  struct Heads {
    const AttentionArgs& args;
    const AttentionTask& task;
    int64_t kv_head, count;
    Scratch scratch;

    Job job(int64_t n) const {
      const int64_t share = args.heads / args.kv.kv_heads;
      return {args, task, kv_head + n, share, task.rows * share, attention_width(args.kv.v_head_dim)};
    }
    HeadScratch scratch_of(int64_t n) const {
      const int64_t states = task.rows * int64_t{args.heads / args.kv.kv_heads};
      const int64_t part_states = task.rows > 1 && states > Products::kRows ? Products::kRows : states;
      const HeadScratch first(scratch.heads, states, part_states, args.kv);
      return HeadScratch(scratch.heads + n * (first.end - scratch.heads), states, part_states, args.kv);
    }
  };

  // Rows of heads lie apart, so the processor does not guess where the next one is.
  template <class Rows>
  static void prefetch_state(const Job& job, const Rows& rows, int64_t state, int64_t head_dim) {
    if (state >= job.states) return;
    const int64_t element = block_bytes(rows.dtype);
    const auto* first =
        static_cast<const std::byte*>(rows.data) +
        ((job.task.first_row + state / job.share) * rows.row_stride + job.head(state) * rows.head_stride) * element;
    for (int64_t at = 0; at < head_dim * element; at += 64) Isa::prefetch(first + at);
  }

  static void scale_queries(const Job& job, float* q) {
    const ConstHeadRows& rows = job.args.q;
    const int64_t head_dim = job.args.kv.head_dim;
    for (int64_t i = 0; i < job.states; ++i, q += head_dim) {
      prefetch_state(job, rows, i + kStatesAhead, head_dim);
      const int64_t at = (job.task.first_row + i / job.share) * rows.row_stride + job.head(i) * rows.head_stride;
      if (rows.dtype == DType::kF32) {
        const float* from = static_cast<const float*>(rows.data) + at;
        int64_t d = 0;
        for (; d + 16 <= head_dim; d += 16) Isa::store(q + d, Isa::mul(Isa::load(from + d), Isa::set1(job.args.scale)));
        for (; d < head_dim; ++d) q[d] = from[d] * job.args.scale;
      } else {
        const uint16_t* from = static_cast<const uint16_t*>(rows.data) + at;
        const auto widen = rows.dtype == DType::kF16 ? f16_to_f32 : bf16_to_f32;
        for (int64_t d = 0; d < head_dim; ++d) q[d] = widen(from[d]) * job.args.scale;
      }
    }
  }

  // What comes between a product and the softmax, for the 16-key groups of a row that hold keys [begin, end).
  static void adjust(const Job& job, const Tile& tile, int64_t state, int64_t first_key, Range keys, float* scores) {
    const AttentionArgs& args = job.args;
    const F cap = Isa::set1(args.soft_cap), inverse_cap = Isa::set1(1.0f / args.soft_cap);
    alignas(64) static constexpr float kIota[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int64_t j = keys.begin / 16 * 16; j < keys.end; j += 16) {
      F x = Isa::load(scores + j);
      if (tile.k_scales != nullptr) x = Isa::mul(x, Isa::load(tile.k_scales + j));
      if (args.soft_cap > 0.0f) x = Isa::mul(cap, simd_tanh<Isa>(Isa::mul(x, inverse_cap)));
      if (args.alibi_slopes != nullptr) {
        const auto distance = static_cast<float>(first_key + j - job.position(state));
        x = Isa::fma(Isa::set1(args.alibi_slopes[job.head(state)]), Isa::add(Isa::load(kIota), Isa::set1(distance)), x);
      }
      Isa::store(scores + j, x);
    }
  }

  // The others of the 16-key groups that hold keys [begin, end) become -inf.
  static void mask(float* scores, Range keys) {
    const int64_t padded = (keys.end + 15) / 16 * 16;
    for (int64_t j = keys.begin / 16 * 16; j < keys.begin; ++j) scores[j] = kMinusInfinity;
    for (int64_t j = keys.end; j < padded; ++j) scores[j] = kMinusInfinity;
  }

  [[gnu::always_inline]] static float largest(const float* scores, int64_t begin, int64_t end) {
    F most = Isa::load(scores + begin);
    for (int64_t j = begin + 16; j < end; j += 16) most = Isa::max(most, Isa::load(scores + j));
    return Isa::max_lane(most);
  }

  // Turns kCount vectors of scores into weights and adds them to a total.
  template <int kCount>
  [[gnu::always_inline]] static F exponentials(float* scores, F shift, F total) {
    F x[kCount];
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) x[i] = Isa::sub(Isa::load(scores + i * 16), shift);
    simd_exp_falling<Isa, kCount>(x);
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      Isa::store(scores + i * 16, x[i]);
      total = Isa::add(total, x[i]);
    }
    return total;
  }

  // Turns the scores from `begin` to `end`, whole groups, into weights and returns their sum.
  [[gnu::always_inline]] static float exponentials(float* scores, int64_t begin, int64_t end, float max) {
    const F shift = Isa::max(Isa::set1(max), Isa::set1(Merge::kLowest));  // if all are -inf
    F total = Isa::zero();
    int64_t j = begin;
    for (; j + 16 * kTogether <= end; j += 16 * kTogether) total = exponentials<kTogether>(scores + j, shift, total);
    for (; j < end; j += 16) total = exponentials<1>(scores + j, shift, total);
    const float sum = Isa::sum(total);
    return max == kMinusInfinity ? sum * 0.0f : sum;  // such keys weigh nothing, but a NaN stays one
  }

  // From products to weights for `rows` states from state i on; a state's scores are kPartitionKeys apart. Step by step
  // for all rows: the ends of a row's reductions have long latencies, which the other rows' work hides.
  static void weights_of(const Job& job, const HeadScratch& s, const Tile& tile, int64_t first_key, int64_t i,
                         int rows) {
    const bool adjusted = tile.k_scales != nullptr || job.args.soft_cap > 0.0f || job.args.alibi_slopes != nullptr;
    const auto for_rows = [&](auto fn) {
      for (int r = 0; r < rows; ++r) fn(i + r, s.scores + (i + r) * kPartitionKeys, job.keys(i + r, first_key));
    };
    if (adjusted) {
      for_rows([&](int64_t state, float* row, Range keys) { adjust(job, tile, state, first_key, keys, row); });
    }
    if (job.sees_all(i, i + rows - 1, first_key)) {
      float* row = s.scores + i * kPartitionKeys;
      for (int r = 0; r < rows; ++r) s.part_max[i + r] = largest(row + r * kPartitionKeys, 0, kPartitionKeys);
      for (int r = 0; r < rows; ++r) {
        s.part_sum[i + r] = exponentials(row + r * kPartitionKeys, 0, kPartitionKeys, s.part_max[i + r]);
      }
    } else {
      for_rows([&](int64_t state, float* row, Range keys) {
        mask(row, keys);
        s.part_max[state] = largest(row, keys.begin / 16 * 16, keys.end);
      });
      for_rows([&](int64_t state, float* row, Range keys) {
        s.part_sum[state] = exponentials(row, keys.begin / 16 * 16, (keys.end + 15) / 16 * 16, s.part_max[state]);
      });
    }
    if (tile.v_scales == nullptr) return;
    for_rows([&](int64_t, float* row, Range keys) {
      for (int64_t j = keys.begin / 16 * 16; j < keys.end; j += 16)
        Isa::store(row + j, Isa::mul(Isa::load(row + j), Isa::load(tile.v_scales + j)));
    });
  }

  // Values of `rows` states from state i on over the keys of `clip`, added to what there is if `onto`, by
  // product(first row, rows, begin, end, onto). What a row doesn't see it must not touch: 0 * NaN. So keys that all
  // rows see are taken together, and those before and after row by row. Positions ascend with the states: the first row
  // has the oldest key, the last the newest.
  template <class Product>
  static void weigh(const Job& job, int64_t first_key, int64_t i, int rows, Range clip, bool onto, Product product) {
    const auto keys = [&](int r) {
      const Range seen = job.keys(i + r, first_key);
      return Range{seen.begin > clip.begin ? seen.begin : clip.begin, seen.end < clip.end ? seen.end : clip.end};
    };
    const Range shared{keys(rows - 1).begin, keys(0).end};
    if (shared.begin >= shared.end) {
      for (int r = 0; r < rows; ++r) product(r, 1, keys(r).begin, keys(r).end, onto);
      return;
    }
    const bool older = keys(0).begin < shared.begin;
    for (int r = 0; older && r < rows; ++r) product(r, 1, keys(r).begin, shared.begin, onto);
    product(0, rows, shared.begin, shared.end, onto || older);
    for (int r = 1; r < rows; ++r) {
      if (keys(r).end > shared.end) product(r, 1, shared.end, keys(r).end, true);
    }
  }

  // A pass over the rows takes so many of a partition's keys.
  static int64_t score_keys(const PagedKv& kv) { return kv.head_dim > 64 ? kPartitionKeys / 2 : kPartitionKeys; }
  // Passes of attend_tile().
  static int64_t passes(const PagedKv& kv) {
    return kPartitionKeys / score_keys(kv) + (attention_width(kv.v_head_dim) + Products::kPanel - 1) / Products::kPanel;
  }

  // Softmax states over a partition that lies in `tile`, for states [seeing.begin, seeing.end). All scores come before
  // all values, and all rows take as much of K, then of V, as stays in the L1 cache.
  static void attend_tile(const Job& job, const HeadScratch& s, const Tile& tile, int64_t first_key, Range seeing,
                          Goal goal, KvAhead<Isa> ahead) {
    const int64_t head_dim = job.args.kv.head_dim, width = job.width;
    const auto for_row_groups = [&](auto fn) {
      for (int64_t i = seeing.begin; i < seeing.end; i += Products::kRows)
        fn(i, static_cast<int>(seeing.end - i < Products::kRows ? seeing.end - i : Products::kRows));
    };
    const int64_t block = score_keys(job.args.kv);
    for (int64_t first = 0; first < kPartitionKeys; first += block) {
      for_row_groups([&](int64_t i, int rows) {
        ahead.step();
        const int64_t oldest = job.keys(i, first_key).begin / 16 * 16, newest = job.keys(i + rows - 1, first_key).end;
        const int64_t begin = oldest > first ? oldest : first, end = newest < first + block ? newest : first + block;
        if (begin < end) {
          Products::scores(rows, s.q + i * head_dim, head_dim, tile.k + begin * head_dim, (end - begin + 15) / 16,
                           s.scores + i * kPartitionKeys + begin);
        }
        if (first + block == kPartitionKeys) weights_of(job, s, tile, first_key, i, rows);
      });
    }
    settle_lanes(job, s, seeing, goal);
    for (int64_t first = 0; first < width; first += Products::kPanel) {
      const int64_t columns = Products::panel_width(first, width);
      const float* v = tile.v + first * kPartitionKeys;
      for_row_groups([&](int64_t i, int rows) {
        ahead.step();
        const float* w = s.scores + i * kPartitionKeys;
        const auto weigh_rows = [&](int n, int r, int64_t begin, int64_t end, const typename Products::Into& into,
                                    float* values) {
          Products::weigh(n, w + r * kPartitionKeys, v, columns, begin, end, into, values + r * width, width);
        };
        float* values = s.values + i * width + first;
        if (goal == Goal::kMerged && job.sees_all(i, i + rows - 1, first_key)) {
          return weigh_rows(rows, 0, 0, kPartitionKeys, {.first = s.old_weight + i, .second = s.new_weight + i},
                            values);
        }
        float* target = goal == Goal::kFirst   ? values
                        : goal == Goal::kParts ? s.part_values + i * width + first
                                               : s.part_values + first;
        weigh(job, first_key, i, rows, {0, kPartitionKeys}, false,
              [&](int r, int n, int64_t begin, int64_t end, bool onto) {
                weigh_rows(n, r, begin, end, {.onto = onto}, target);
              });
        if (goal != Goal::kMerged) return;
        for (int64_t r = 0; r < rows; ++r)
          Merge::combine(values + r * width, target + r * width, columns, s.old_weight[i + r], s.new_weight[i + r]);
      });
    }
  }

  // The same for `count` KV heads whose states are one group of rows, straight from the pages: each 16 keys are used as
  // they come, of all heads, which is the order they lie in.
  template <DType kDType>
  static void attend_pages(const Heads& heads, int64_t first_key, Range seeing, int64_t keys_to_come, Goal goal) {
    using Page = KvPage<Isa, Pieces, kDType>;
    const PagedKv& kv = heads.args.kv;
    const Page page(kv);
    float* wide = heads.scratch.wide;
    const int64_t i = seeing.begin;
    const int rows = static_cast<int>(seeing.end - i);
    const Job any = heads.job(0);
    const int64_t begin = any.keys(i, first_key).begin / 16 * 16, end = any.keys(seeing.end - 1, first_key).end;
    const auto source = [&](int64_t head, int64_t j) {
      return first_key + j < keys_to_come
                 ? Page::source(kv, heads.task.block_table, heads.kv_head + head, first_key + j)
                 : typename Page::Source{};
    };
    // In the order that they are used in: the other heads of the same keys, then the next keys.
    const auto upcoming = [&](int64_t h, int64_t j) {
      const int64_t item = h + kHeadsAhead;
      return source(item % heads.count, j + item / heads.count * 16);
    };
    for (int64_t j = begin; j < end; j += 16) {
      for (int64_t h = 0; h < heads.count; ++h) {
        const HeadScratch s = heads.scratch_of(h);
        Products::with_rows(rows, [&](auto n) {
          page.template scores<n>(source(h, j), upcoming(h, j), s.q + i * kv.head_dim,
                                  s.scores + i * kPartitionKeys + j, wide);
        });
      }
    }
    const Tile scales(heads.scratch.tile, kv);
    for (int64_t h = 0; h < heads.count; ++h) {
      load_scales(kv, heads.task.block_table, heads.kv_head + h, first_key, begin, end, scales);
      weights_of(heads.job(h), heads.scratch_of(h), scales, first_key, i, rows);
    }
    for (int64_t j = begin; j < end; j += 16) {
      for (int64_t h = 0; h < heads.count; ++h) {
        const HeadScratch s = heads.scratch_of(h);
        float* values = goal == Goal::kFirst ? s.values + i * any.width : s.part_values;
        const typename Page::Source from = source(h, j), ahead = upcoming(h, j);
        weigh(any, first_key, i, rows, {j, j + 16}, j > begin,
              [&](int r, int count, int64_t first, int64_t last, bool onto) {
                Products::with_rows(count, [&](auto n) {
                  page.template weigh<n>(from, ahead, s.scores + (i + r) * kPartitionKeys + j, first - j, last - j,
                                         onto, values + r * any.width, wide);
                });
              });
      }
    }
    for (int64_t h = 0; h < heads.count; ++h) {
      const HeadScratch s = heads.scratch_of(h);
      settle_lanes(any, s, seeing, goal);
      for (int64_t r = 0; goal == Goal::kMerged && r < rows; ++r) {
        Merge::combine(s.values + (i + r) * any.width, s.part_values + r * any.width, any.width, s.old_weight[i + r],
                       s.new_weight[i + r]);
      }
    }
  }

  static void clear_lanes(const HeadScratch& s, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      s.part_max[i] = kMinusInfinity;
      s.part_sum[i] = 0.0f;
    }
  }

  // Maxima and sums of the running states after a partition, and if it is merged, the weights of both.
  static void settle_lanes(const Job& job, const HeadScratch& s, Range seeing, Goal goal) {
    if (goal == Goal::kFirst) {
      std::memcpy(s.max, s.part_max, static_cast<size_t>(job.states) * sizeof(float));
      std::memcpy(s.sum, s.part_sum, static_cast<size_t>(job.states) * sizeof(float));
    }
    if (goal != Goal::kMerged) return;
    clear_lanes(s, 0, seeing.begin);
    clear_lanes(s, seeing.end, job.states);
    for (int64_t i = 0; i < job.states; i += 16) {
      const typename Merge::Step step =
          Merge::step(Isa::load(s.max + i), Isa::load(s.sum + i), Isa::load(s.part_max + i), Isa::load(s.part_sum + i));
      Isa::store(s.max + i, step.max);
      Isa::store(s.sum + i, step.sum);
      Isa::store(s.old_weight + i, step.first_weight);
      Isa::store(s.new_weight + i, step.second_weight);
    }
  }

  static void start_empty(const Job& job, const HeadScratch& s) {
    for (int64_t i = 0; i < job.states; ++i) {
      s.max[i] = kMinusInfinity;
      s.sum[i] = 0.0f;
    }
    for (int64_t d = 0; d < job.states * job.width; d += 16) Isa::store(s.values + d, Isa::zero());
  }

  // Where the state of `state`, or of the one row's head in partition n of the task, is kept between tasks.
  static float* kept(const Job& job, int64_t n, int64_t head) {
    return job.task.states + (n * job.args.heads + head) * attention_state_floats(job.args.kv.v_head_dim);
  }

  static void store_state(const Job& job, float* state, const float* values, float max, float sum) {
    for (int64_t d = 0; d < job.width; d += 16) Isa::store(state + d, Isa::load(values + d));
    state[job.width] = max;
    state[job.width + 1] = sum;
  }

  static void load_states(const Job& job, const HeadScratch& s) {
    for (int64_t i = 0; i < job.states; ++i) {
      const float* state = kept(job, i / job.share, job.head(i));
      for (int64_t d = 0; d < job.width; d += 16) Isa::store(s.values + i * job.width + d, Isa::load(state + d));
      s.max[i] = state[job.width];
      s.sum[i] = state[job.width + 1];
    }
  }

  static void finish(const Job& job, const HeadScratch& s) {
    const bool keep = job.task.use == Use::kFirst || job.task.use == Use::kMiddle;
    for (int64_t i = 0; i < job.states; ++i) {
      const float* values = s.values + i * job.width;
      if (!keep) prefetch_state(job, job.args.out, i + kStatesAhead, job.args.kv.v_head_dim);
      if (keep) {
        store_state(job, kept(job, i / job.share, job.head(i)), values, s.max[i], s.sum[i]);
      } else {
        Merge::write(job.args, job.task.first_row + i / job.share, job.head(i), values, s.max[i], s.sum[i]);
      }
    }
  }

  static void load_scales(const PagedKv& kv, const int32_t* block_table, int64_t kv_head, int64_t first_key,
                          int64_t begin, int64_t end, const Tile& tile) {
    if (tile.k_scales == nullptr) return;
    for (int64_t j = begin; j < end; ++j) {
      const int64_t key = first_key + j,
                    at = scale_index(kv, block_table[key / kv.block_size], key % kv.block_size, kv_head);
      tile.k_scales[j] = kv.k_scales[at];
      tile.v_scales[j] = kv.v_scales[at];
    }
  }

  // Keys [begin, end) of the partition; begin is a multiple of 16. More will be needed up to key keys_to_come.
  template <DType kDType>
  static void load_tile(const PagedKv& kv, const int32_t* block_table, int64_t kv_head, int64_t first_key,
                        int64_t begin, int64_t end, int64_t keys_to_come, const Tile& tile, float* wide) {
    using Page = KvPage<Isa, Pieces, kDType>;
    const Page page(kv);
    for (int64_t j = begin; j < end; j += 16) {
      const auto source = [&](int64_t key) {
        return key < keys_to_come ? Page::source(kv, block_table, kv_head, key) : typename Page::Source{};
      };
      const typename Page::Source from = source(first_key + j), ahead = source(first_key + j + kKeysAhead);
      page.load_keys(from, ahead, tile.k + j * kv.head_dim, wide);
      page.load_values(from, ahead, end - j < 16 ? end - j : 16, tile.v, j, wide);
    }
    load_scales(kv, block_table, kv_head, first_key, begin, end, tile);
  }

  // The states over partition n of the task, for all its KV heads.
  template <DType kDType>
  static void attend_partition(const Heads& heads, int64_t n, int64_t first_key, Range seeing, Goal goal) {
    if (seeing.begin >= seeing.end) return;
    const AttentionTask& task = heads.task;
    const PagedKv& kv = heads.args.kv;
    const Job job = heads.job(0);
    const int64_t end = (task.first_partition + task.partitions) * int64_t{kPartitionKeys},
                  newest = job.position(job.states - 1), keys_to_come = newest < end ? newest + 1 : end;
    if (task.gathered == nullptr && seeing.end - seeing.begin <= kPageStates) {
      return attend_pages<kDType>(heads, first_key, seeing, keys_to_come, goal);
    }
    const HeadScratch s = heads.scratch_of(0);
    if (task.gathered != nullptr) {
      // Only read from here on.
      auto* gathered = const_cast<float*>(task.gathered) + (n * kv.kv_heads + job.kv_head) * gathered_floats(kv);
      return attend_tile(job, s, Tile(gathered, kv), first_key, seeing, goal, KvAhead<Isa>(kv, nullptr, 0, 0, 0, 1));
    }
    const Tile tile(heads.scratch.tile, kv);
    load_tile<kDType>(kv, task.block_table, job.kv_head, first_key, job.keys(seeing.begin, first_key).begin / 16 * 16,
                      job.keys(seeing.end - 1, first_key).end, keys_to_come, tile, heads.scratch.wide);
    const int64_t next_key = first_key + kPartitionKeys, row_groups = (seeing.end - seeing.begin) / Products::kRows + 1;
    attend_tile(job, s, tile, first_key, seeing, goal,
                KvAhead<Isa>(kv, task.block_table, job.kv_head, next_key,
                             std::min(keys_to_come, next_key + kPartitionKeys), row_groups * passes(kv)));
  }

  template <DType kDType>
  static void attend_typed(const Heads& heads) {
    const AttentionTask& task = heads.task;
    const auto for_heads = [&](auto fn) {
      for (int64_t h = 0; h < heads.count; ++h) fn(heads.job(h), heads.scratch_of(h));
    };
    bool started = task.use == Use::kMiddle || task.use == Use::kLast;
    for_heads([&](const Job& job, const HeadScratch& s) {
      s.clear(job.states);
      scale_queries(job, s.q);
      if (started) load_states(job, s);
    });
    for (int64_t n = 0; n < task.partitions; ++n) {
      const int64_t first_key = (task.first_partition + n) * int64_t{kPartitionKeys};
      const Range seeing = heads.job(0).seeing(first_key);
      const bool all = seeing.begin == 0 && seeing.end == heads.job(0).states;
      const Goal goal = task.use == Use::kPartitions ? Goal::kParts : !started && all ? Goal::kFirst : Goal::kMerged;
      if (goal == Goal::kMerged && !started) for_heads(start_empty);
      attend_partition<kDType>(heads, n, first_key, seeing, goal);
      if (goal == Goal::kParts) {
        for_heads([&](const Job& job, const HeadScratch& s) {
          for (int64_t i = 0; i < job.states; ++i)
            store_state(job, kept(job, n, job.head(i)), s.part_values + i * job.width, s.part_max[i], s.part_sum[i]);
        });
      }
      started = true;
    }
    if (task.use == Use::kPartitions) return;
    for_heads([&](const Job& job, const HeadScratch& s) {
      if (!started) start_empty(job, s);
      finish(job, s);
    });
  }

  // fn with the cache's type as a template argument. The registry admits no other type.
  template <class Fn>
  static void with_dtype(DType dtype, Fn fn) {
    switch (dtype) {
      case DType::kF32:
        return fn.template operator()<DType::kF32>();
      case DType::kBF16:
        return fn.template operator()<DType::kBF16>();
      case DType::kF8E4M3:
        return fn.template operator()<DType::kF8E4M3>();
      case DType::kF8E5M2:
        return fn.template operator()<DType::kF8E5M2>();
      case DType::kI8:
        return fn.template operator()<DType::kI8>();
      default:
        return fn.template operator()<DType::kF16>();
    }
  }

  static void attend(const AttentionArgs& args, const AttentionTask& task, int32_t kv_head, int32_t count,
                     float* scratch) {
    const Heads heads{args, task, kv_head, count, Scratch(scratch, args.kv)};
    with_dtype(args.kv.dtype, [&]<DType kDType>() { attend_typed<kDType>(heads); });
  }

  static void gather(const PagedKv& kv, const int32_t* block_table, int32_t kv_head, int32_t partition, float* gathered,
                     float* scratch) {
    with_dtype(kv.dtype, [&]<DType kDType>() {
      const int64_t first_key = int64_t{partition} * kPartitionKeys;
      load_tile<kDType>(kv, block_table, kv_head, first_key, 0, kPartitionKeys, first_key + kPartitionKeys,
                        Tile(gathered, kv), scratch);
    });
  }
};

}  // namespace quire
