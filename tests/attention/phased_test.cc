// The attention backend against a naive softmax in double, and against itself: a row's bits depend on neither phase,
// batch, layout, threads nor instruction set.
#include "attention/phased.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "attention/registry.h"
#include "base/cpu_isa.h"
#include "base/error.h"
#include "kernels/attention/attention.h"
#include "kernels/kv_write/kv_write.h"

namespace quire {
namespace {

struct Shape {
  int32_t heads, kv_heads, head_dim, block_size;
};

struct Request {
  int32_t context_len, query_len;
};

// One batch with its cache: K and V of all tokens, written through kv_write, blocks in random order.
class World {
 public:
  World(Shape shape, DType dtype, KvLayout layout, std::vector<Request> requests, uint32_t seed, int workers = 2)
      : shape_(shape), requests_(std::move(requests)), pool_(workers) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    int64_t blocks = 0, stride = 1;
    for (const Request& r : requests_) {
      const int64_t needed = (r.context_len + r.query_len + shape.block_size - 1) / shape.block_size;
      blocks += needed;
      stride = std::max(stride, needed);
    }
    kv_ = {nullptr, nullptr, dtype, layout, shape.block_size, shape.kv_heads, shape.head_dim, blocks + 1};
    for (auto* plane : {&k_memory_, &v_memory_})
      plane->assign(static_cast<size_t>(plane_bytes(kv_)), std::byte{0xff});  // NaN in every type
    kv_.k = k_memory_.data();
    kv_.v = v_memory_.data();

    std::vector<int32_t> order(static_cast<size_t>(blocks));
    std::iota(order.begin(), order.end(), 1);
    std::shuffle(order.begin(), order.end(), random);
    stride_ = stride;
    tables_.assign(requests_.size() * static_cast<size_t>(stride), -1);
    size_t next = 0;
    for (size_t i = 0; i < requests_.size(); ++i) {
      const int64_t length = requests_[i].context_len + requests_[i].query_len;
      for (int64_t b = 0; b * shape.block_size < length; ++b)
        tables_[i * static_cast<size_t>(stride) + static_cast<size_t>(b)] = order[next++];
      const auto row = static_cast<size_t>(shape.kv_heads * shape.head_dim);
      std::vector<float>& k = keys_.emplace_back(static_cast<size_t>(length) * row);
      std::vector<float>& v = values_.emplace_back(static_cast<size_t>(length) * row);
      std::vector<float>& q =
          queries_.emplace_back(static_cast<size_t>(requests_[i].query_len * shape.heads * shape.head_dim));
      for (auto* values : {&k, &v, &q}) {
        for (float& x : *values) x = rounded(normal(random), dtype);
      }
      std::vector<int64_t> slots;
      for (int64_t p = 0; p < length; ++p) {
        slots.push_back(int64_t{tables_[i * static_cast<size_t>(stride) + static_cast<size_t>(p / shape.block_size)]} *
                            shape.block_size +
                        p % shape.block_size);
      }
      kv_write(k.data(), static_cast<int64_t>(row), v.data(), static_cast<int64_t>(row), slots.data(), length, kv_,
               pool_);
    }
  }

  AttentionGroup group() const {
    AttentionGroup group;
    group.heads = shape_.heads;
    group.kv_heads = shape_.kv_heads;
    group.head_dim = shape_.head_dim;
    group.scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
    group.kv_dtype = kv_.dtype;
    group.layout = kv_.layout;
    group.block_size = shape_.block_size;
    return group;
  }

  // Output of every request's rows. merged: everything is called extend, whatever it is.
  std::vector<std::vector<float>> run(bool merged = false) {
    const auto backend = make_phased_backend();
    const int32_t n = static_cast<int32_t>(requests_.size());
    std::vector<size_t> order;
    AttentionBatch batch;
    std::vector<int32_t> offsets = {0}, kv_lens, rows;
    const int64_t width = int64_t{shape_.heads} * shape_.head_dim;
    std::vector<float> q;
    for (const Phase phase : {Phase::kDecode, Phase::kExtend, Phase::kPrefill}) {
      PhaseRange& range = phase == Phase::kDecode   ? batch.decode
                          : phase == Phase::kExtend ? batch.extend
                                                    : batch.prefill;
      range.first_request = static_cast<int32_t>(order.size());
      range.first_token = offsets.back();
      for (size_t i = 0; i < requests_.size(); ++i) {
        const Request& r = requests_[i];
        const Phase own = merged ? Phase::kExtend : phase_of(r.context_len, r.query_len, 1);
        if (own != phase) continue;
        order.push_back(i);
        rows.push_back(static_cast<int32_t>(i));
        offsets.push_back(offsets.back() + r.query_len);
        kv_lens.push_back(r.context_len + r.query_len);
        range.max_query_len = std::max(range.max_query_len, r.query_len);
        range.max_kv_len = std::max(range.max_kv_len, r.context_len + r.query_len);
        q.insert(q.end(), queries_[i].begin(), queries_[i].end());
      }
      range.requests = static_cast<int32_t>(order.size()) - range.first_request;
      range.tokens = offsets.back() - range.first_token;
    }
    batch.query_offsets = offsets;
    batch.kv_lens = kv_lens;
    batch.block_tables = tables_.data();
    batch.block_table_stride = stride_;
    batch.block_table_rows = rows;
    const auto plan = backend->make_plan(group(), n, offsets.back());
    backend->plan(batch, *plan);
    Workspace workspace(backend->workspace_bytes(group(), n, offsets.back()));
    std::vector<float> out(static_cast<size_t>(offsets.back() * width), NAN);
    backend->run(*plan, q.data(), width, kv_, out.data(), width, workspace, pool_);
    EXPECT_EQ(workspace.mark(), 0u);
    std::vector<std::vector<float>> result(requests_.size());
    for (size_t i = 0; i < order.size(); ++i) {
      result[order[i]].assign(out.begin() + offsets[i] * width, out.begin() + offsets[i + 1] * width);
    }
    return result;
  }

  // Softmax attention in double over the same (rounded) K and V. Also the sum of |v| weights, for the tolerance.
  void expect_close(const std::vector<std::vector<float>>& out) const {
    const auto d = static_cast<size_t>(shape_.head_dim);
    for (size_t r = 0; r < requests_.size(); ++r) {
      for (int32_t i = 0; i < requests_[r].query_len; ++i) {
        for (int32_t h = 0; h < shape_.heads; ++h) {
          const float* q = queries_[r].data() +
                           (static_cast<size_t>(i) * static_cast<size_t>(shape_.heads) + static_cast<size_t>(h)) * d;
          const auto kv_head = static_cast<size_t>(h / (shape_.heads / shape_.kv_heads));
          std::vector<double> scores;
          double max = -INFINITY, sum = 0, magnitude = 0;
          for (int32_t j = 0; j <= requests_[r].context_len + i; ++j) {
            const float* k =
                keys_[r].data() + (static_cast<size_t>(j) * static_cast<size_t>(shape_.kv_heads) + kv_head) * d;
            double dot = 0, terms = 0;
            for (size_t e = 0; e < d; ++e) {
              dot += static_cast<double>(q[e]) * k[e];
              terms += std::fabs(static_cast<double>(q[e]) * k[e]);
            }
            const double scale = static_cast<double>(group().scale);
            scores.push_back(dot * scale);
            magnitude = std::max(magnitude, terms * scale);
            max = std::max(max, scores.back());
          }
          for (double& s : scores) sum += s = std::exp(s - max);
          for (size_t e = 0; e < d; ++e) {
            double expected = 0, absolute = 0;
            for (size_t j = 0; j < scores.size(); ++j) {
              const double v = values_[r][(j * static_cast<size_t>(shape_.kv_heads) + kv_head) * d + e];
              expected += scores[j] / sum * v;
              absolute += scores[j] / sum * std::fabs(v);
            }
            // f32: a score is off by at most eps * (terms of its dot), a weight by that relative error, a sum of n by n
            // eps; 8 for the rest.
            constexpr double kEps = 0x1p-24;
            const double tolerance =
                kEps * absolute *
                    (2 * magnitude * static_cast<double>(d) / 16 + static_cast<double>(scores.size()) / 16 + 64) +
                1e-30;
            const float got =
                out[r][(static_cast<size_t>(i) * static_cast<size_t>(shape_.heads) + static_cast<size_t>(h)) * d + e];
            ASSERT_NEAR(got, expected, tolerance)
                << "request " << r << ", row " << i << ", head " << h << ", dim " << e;
          }
        }
      }
    }
  }

  // The request alone, with its own K and V.
  World(const World& other, size_t request)
      : shape_(other.shape_),
        requests_{other.requests_[request]},
        pool_(1),
        kv_(other.kv_),
        tables_(other.tables_.begin() + static_cast<std::ptrdiff_t>(request) * other.stride_,
                other.tables_.begin() + static_cast<std::ptrdiff_t>(request + 1) * other.stride_),
        stride_(other.stride_),
        queries_{other.queries_[request]} {}

  size_t size() const { return requests_.size(); }

 private:
  static float rounded(float x, DType dtype) {
    return dtype == DType::kF16 ? f16_to_f32(f32_to_f16(x)) : dtype == DType::kBF16 ? bf16_to_f32(f32_to_bf16(x)) : x;
  }

  Shape shape_;
  std::vector<Request> requests_;
  ThreadPool pool_;
  PagedKv kv_;
  std::vector<std::byte> k_memory_, v_memory_;
  std::vector<int32_t> tables_;
  int64_t stride_ = 0;
  std::vector<std::vector<float>> keys_, values_, queries_;
};

std::vector<Request> random_requests(std::mt19937& random) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  std::vector<Request> requests;
  for (int n = pick(1, 6); n > 0; --n) {
    const int kind = pick(0, 3);
    const int context = pick(0, 9) == 0 ? pick(500, 1100) : pick(1, 140);
    requests.push_back(kind == 0   ? Request{0, pick(1, 70)}
                       : kind == 1 ? Request{context, pick(2, 40)}
                                   : Request{context, 1});
  }
  return requests;
}

Shape random_shape(std::mt19937& random) {
  constexpr Shape kShapes[] = {{4, 4, 64, 16}, {9, 3, 64, 16},  {7, 1, 32, 32}, {8, 2, 128, 48}, {5, 1, 80, 16},
                               {6, 1, 96, 32}, {14, 2, 72, 16}, {2, 1, 8, 16},  {28, 4, 128, 16}};
  return kShapes[std::uniform_int_distribution<size_t>(0, std::size(kShapes) - 1)(random)];
}

TEST(Phased, RandomMixedBatchesEqualANaiveSoftmax) {
  std::mt19937 random(5);
  for (int round = 0; round < 300 && !HasFailure(); ++round) {
    const Shape shape = random_shape(random);
    const DType dtype = round % 3 == 0 ? DType::kF32 : round % 3 == 1 ? DType::kF16 : DType::kBF16;
    World world(shape, dtype, round % 2 == 0 ? KvLayout::kPlain : KvLayout::kShuffle, random_requests(random),
                static_cast<uint32_t>(round));
    SCOPED_TRACE(testing::Message() << "round " << round << ": " << shape.heads << "/" << shape.kv_heads << " heads of "
                                    << shape.head_dim);
    world.expect_close(world.run());
  }
}

TEST(Phased, BitsDoNotDependOnPhaseLayoutBatchOrThreads) {
  std::mt19937 random(6);
  for (int round = 0; round < 60 && !HasFailure(); ++round) {
    const Shape shape = random_shape(random);
    const DType dtype = round % 3 == 0 ? DType::kF32 : round % 3 == 1 ? DType::kF16 : DType::kBF16;
    const auto requests = random_requests(random);
    const auto seed = static_cast<uint32_t>(round);
    World plain(shape, dtype, KvLayout::kPlain, requests, seed),
        shuffle(shape, dtype, KvLayout::kShuffle, requests, seed, 3);
    const auto expected = plain.run();
    EXPECT_EQ(plain.run(/*merged=*/true), expected) << "split equals merged";
    EXPECT_EQ(shuffle.run(), expected) << "shuffle equals plain";
    for (size_t i = 0; i < plain.size(); ++i)
      EXPECT_EQ(World(plain, i).run()[0], expected[i]) << "alone equals in a batch";
  }
}

TEST(Phased, LongDecodesAreSplitWithTheSameBits) {
  for (const int32_t context : {511, 512, 513, 1024, 3000}) {
    World world({4, 2, 64, 16}, DType::kF16, KvLayout::kPlain, {{context, 1}}, 1);
    const auto decode = world.run();
    EXPECT_EQ(world.run(/*merged=*/true), decode) << context;
    world.expect_close(decode);
  }
}

TEST(AttentionKernels, InstructionSetsAgreeBitForBit) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  for (const int32_t head_dim : {64, 80, 8}) {
    PagedKv kv{nullptr, nullptr, DType::kF16, KvLayout::kPlain, 16, 1, head_dim, 40};
    std::vector<uint16_t> k(static_cast<size_t>(40 * 16 * head_dim)), v(k.size());
    for (auto* plane : {&k, &v}) {
      for (uint16_t& x : *plane) x = f32_to_f16(normal(random));
    }
    kv.k = k.data();
    kv.v = v.data();
    std::vector<int32_t> table(40);
    std::iota(table.begin(), table.end(), 0);
    std::vector<float> q(static_cast<size_t>(5 * 2 * head_dim));
    for (float& x : q) x = normal(random);
    AttentionArgs args{2, 0.3f, kv, q.data(), 2 * head_dim, nullptr, 2 * head_dim};
    const AttentionTask task{table.data(), 0, 5, 600, 0, 2, -1};
    std::vector<float> scratch(static_cast<size_t>(attention_scratch_floats(2, 1, head_dim))), expected(q.size()),
        out(q.size());
    args.out = expected.data();
    attention_kernels_scalar().attend(args, task, 0, nullptr, scratch.data());
    args.out = out.data();
    for (const CpuIsa isa : {CpuIsa::kAvx2, CpuIsa::kAvx512}) {
      if (!cpu_has(isa)) continue;
      std::fill(out.begin(), out.end(), NAN);
      (isa == CpuIsa::kAvx2 ? attention_kernels_avx2() : attention_kernels_avx512())
          .attend(args, task, 0, nullptr, scratch.data());
      EXPECT_EQ(out, expected) << cpu_isa_name(isa) << ", head size " << head_dim;
    }
  }
}

// Blocks past 2^31 elements are addressed in 64 bits.
TEST(Phased, LargeBlockNumbersGiveTheSameAsSmallOnes) {
  const Shape shape{8, 8, 128, 16};
  PagedKv kv{nullptr, nullptr, DType::kF16, KvLayout::kPlain, 16, 8, 128, 131072};
  Workspace k(static_cast<size_t>(plane_bytes(kv))),
      v(static_cast<size_t>(plane_bytes(kv)));  // 4 GiB each, of which few pages are touched
  kv.k = k.take<std::byte>(k.capacity());
  kv.v = v.take<std::byte>(v.capacity());
  ThreadPool pool(1);
  std::vector<float> rows(32 * 8 * 128), q(8 * 128), out(8 * 128), far(8 * 128);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (auto* values : {&rows, &q}) {
    for (float& x : *values) x = normal(random);
  }
  const auto backend = make_phased_backend();
  AttentionGroup group{shape.heads, shape.kv_heads, shape.head_dim, 0.1f, DType::kF16, KvLayout::kPlain, 16};
  const auto plan = backend->make_plan(group, 1, 1);
  Workspace workspace(backend->workspace_bytes(group, 1, 1));
  const auto attend = [&](std::vector<int32_t> table, std::vector<float>& result) {
    std::vector<int64_t> slots;
    for (int64_t i = 0; i < 32; ++i) slots.push_back(int64_t{table[static_cast<size_t>(i / 16)]} * 16 + i % 16);
    kv_write(rows.data(), 1024, rows.data(), 1024, slots.data(), 32, kv, pool);
    const std::vector<int32_t> offsets = {0, 1}, kv_lens = {32}, table_rows = {0};
    AttentionBatch batch{offsets, kv_lens, table.data(), 2, table_rows, slots, {0, 1, 0, 1, 1, 32}, {}, {}};
    backend->plan(batch, *plan);
    backend->run(*plan, q.data(), 1024, kv, result.data(), 1024, workspace, pool);
  };
  attend({0, 1}, out);
  attend({65536, 131071}, far);
  EXPECT_EQ(far, out);
}

TEST(Phased, PaddedRowsGiveZeroAndEmptyBatchesNothing) {
  const auto backend = make_phased_backend();
  AttentionGroup group{2, 1, 16, 1.0f, DType::kF32, KvLayout::kPlain, 16};
  const auto plan = backend->make_plan(group, 2, 2);
  Workspace workspace(backend->workspace_bytes(group, 2, 2));
  std::vector<float> cache(16 * 16, 1.0f), q(2 * 32, 1.0f), out(2 * 32, NAN);
  PagedKv kv{cache.data(), cache.data(), DType::kF32, KvLayout::kPlain, 16, 1, 16, 1};
  ThreadPool pool(2);
  const std::vector<int32_t> offsets = {0, 1, 2}, kv_lens = {3, 0}, rows = {0, 0}, table = {0};
  const std::vector<int64_t> slots = {2, -1};
  AttentionBatch batch{offsets, kv_lens, table.data(), 1, rows, slots, {0, 2, 0, 2, 1, 3}, {}, {}};
  backend->plan(batch, *plan);
  backend->run(*plan, q.data(), 32, kv, out.data(), 32, workspace, pool);
  for (size_t i = 0; i < 32; ++i) EXPECT_FLOAT_EQ(out[i], 1.0f);
  for (size_t i = 32; i < 64; ++i) EXPECT_EQ(out[i], 0.0f);
  backend->plan({}, *plan);
  backend->run(*plan, nullptr, 0, kv, nullptr, 0, workspace, pool);
}

TEST(Phased, PlanningManyDecodesIsQuick) {
  const auto backend = make_phased_backend();
  AttentionGroup group{32, 8, 128, 1.0f, DType::kF16, KvLayout::kPlain, 16};
  const auto plan = backend->make_plan(group, 256, 256);
  std::vector<int32_t> offsets(257), kv_lens(256, 1000), rows(256), tables(256 * 64);
  std::iota(offsets.begin(), offsets.end(), 0);
  std::iota(rows.begin(), rows.end(), 0);
  const std::vector<int64_t> slots(256, 0);
  AttentionBatch batch{offsets, kv_lens, tables.data(), 64, rows, slots, {0, 256, 0, 256, 1, 1000}, {}, {}};
  double best = 1;
  for (int i = 0; i < 200; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    backend->plan(batch, *plan);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(best, 20e-6);
#else
  EXPECT_LT(best, 2e-3);
#endif
}

TEST(Registry, NamesAliasesAndReasons) {
  AttentionGroup group{4, 2, 64, 1.0f, DType::kF16, KvLayout::kPlain, 16};
  for (const char* name : {"", "auto", "PHASED", "ROCM_AITER_FA"})
    EXPECT_EQ(make_attention_backend(name, group)->name(), "PHASED");
  const auto message = [&](const char* name) -> std::string {
    try {
      make_attention_backend(name, group);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(message("FLASHINFER").find("there is no backend FLASHINFER. Backends: PHASED (alias ROCM_AITER_FA): fits"),
            std::string::npos);
  group.block_size = 24;
  group.heads = 33;
  EXPECT_NE(message("PHASED").find("Block size must be a multiple of 16., 33 query heads can't share 2 KV heads"),
            std::string::npos);
  EXPECT_NE(message("auto").find("No valid attention backend found"), std::string::npos);
}

}  // namespace
}  // namespace quire
