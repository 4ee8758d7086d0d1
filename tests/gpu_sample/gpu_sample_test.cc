// The sampler on the GPU answers as the one on the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <random>

#include "gpu_sample/gpu_sampler.h"
#include "share.h"

namespace quire {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  uint32_t bits() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    auto x = static_cast<uint32_t>(state_ >> 32);
    x ^= x >> 16;
    x *= 0x7feb352du;
    return x ^ x >> 15;
  }
  int32_t below(int32_t n) {
    return static_cast<int32_t>(static_cast<uint64_t>(bits()) * static_cast<uint64_t>(n) >> 32);
  }
  bool chance(int32_t one_in) { return below(one_in) == 0; }
  double unit() { return (bits() + 0.5) * 0x1p-32; }
  // Near enough to a normal distribution, with tails to 6.9.
  float normal() {
    const float sum = static_cast<float>(unit() + unit() + unit() + unit());
    return (sum - 2.0f) * 1.7320508f * (chance(64) ? 2.0f : 1.0f);
  }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<int32_t>(values.size()))];
  }

 private:
  uint64_t state_;
};

std::vector<float> random_logits(Random& random, int32_t vocab) {
  std::vector<float> row(static_cast<size_t>(vocab));
  const float deviation = random.one_of({0.0001f, 0.3f, 1.0f, 1.0f, 3.0f, 3.0f, 10.0f});
  for (float& x : row) x = random.normal() * deviation;
  switch (random.below(14)) {
    case 0:  // ties
      for (float& x : row) x = std::round(x * 2) / 2;
      break;
    case 1:  // ties of bf16
      for (float& x : row) {
        uint32_t bits = 0;
        std::memcpy(&bits, &x, 4);
        bits &= 0xffff0000u;
        std::memcpy(&x, &bits, 4);
      }
      break;
    case 2:
      std::fill(row.begin(), row.end(), random.one_of({0.0f, -0.0f, -1.5f, 1e30f, -1e30f}));
      break;
    case 3:  // mostly masked
      for (float& x : row) x = random.chance(10) ? x : -kInfinity;
      break;
    case 4:
      for (float& x : row) x *= 1e30f;
      break;
    case 5:  // a few stand out
      for (int i = 0; i < 5; ++i) row[static_cast<size_t>(random.below(vocab))] += 20.0f * deviation;
      break;
    case 6:
      if (random.chance(2)) row[static_cast<size_t>(random.below(vocab))] = std::nanf("");
      if (random.chance(3)) std::fill(row.begin(), row.end(), -kInfinity);
      if (random.chance(3)) row[static_cast<size_t>(random.below(vocab))] = kInfinity;
      break;
    default:
      break;
  }
  return row;
}

std::vector<int32_t> random_ids(Random& random, int32_t vocab, int32_t n) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  const int32_t range = random.chance(2) ? vocab : std::min(vocab, 50);
  for (int32_t& id : ids) id = random.below(range);
  return ids;
}

Request random_request(Random& random, int32_t vocab) {
  Request r;
  SamplingParams& p = r.params;
  p.temperature = random.one_of({0.0, 0.0, 1.0, 1.0, 0.7, 2.0, 0.01, 1.1e-5});
  if (random.chance(3)) p.top_k = random.one_of<int64_t>({1, 2, 5, 50, 50, 128, 129, 900, 5000, 200000, -1});
  if (random.chance(3)) p.top_p = random.one_of({0.9, 0.999, 0.5, 0.1, 0.95, 1e-6, 0.9999999});
  if (random.chance(4)) p.min_p = random.one_of({0.05, 0.2, 1.0, 1e-4});
  if (random.chance(3)) p.logprobs = random.one_of({0, 1, 5, 20, 128, 300});
  r.prompt = random_ids(random, vocab, random.one_of({1, 30, 3000}));
  r.output = random_ids(random, vocab, random.one_of({0, 1, 20, 2000}));
  if (random.chance(3)) {
    if (random.chance(2)) p.repetition_penalty = random.one_of({1.3, 0.8, 1.05});
    if (random.chance(2)) p.frequency_penalty = random.one_of({0.37, -0.61, 2.0});
    if (random.chance(2)) p.presence_penalty = random.one_of({0.43, -1.9});
    if (random.chance(3)) {
      p.allowed_token_ids = random_ids(random, vocab, random.one_of({1, 3, 200}));
    }
    if (random.chance(3)) {
      for (const int32_t id : random_ids(random, vocab, 5)) p.bad_words.push_back({id});
      if (!r.output.empty()) p.bad_words.push_back({r.output.back(), random.below(vocab)});
    }
    if (random.chance(3)) {
      p.min_tokens = 30;
      r.stop_ids = random_ids(random, vocab, 3);
    }
    if (random.chance(3)) {
      std::vector<int32_t> ids = random_ids(random, vocab, random.one_of({1, 20, 1000}));
      std::sort(ids.begin(), ids.end());
      ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
      for (const int32_t id : ids) p.logit_bias.emplace_back(id, random.normal() * 3);
    }
  }
  r.seed = static_cast<uint64_t>(random.bits()) << 32 | random.bits();
  r.choice = static_cast<uint32_t>(random.below(4));
  r.logits = random_logits(random, vocab);
  return r;
}

std::string text_of(const Request& r) {
  const SamplingParams& p = r.params;
  char text[300];
  (void)std::snprintf(
      text, sizeof text,
      "T %g k %ld p %g min_p %g logprobs %d rep %g freq %g pres %g allowed %zu bad %zu min %ld bias %zu "
      "prompt %zu output %zu",
      p.temperature, static_cast<long>(p.top_k), p.top_p, p.min_p, p.logprobs.value_or(-1), p.repetition_penalty,
      p.frequency_penalty, p.presence_penalty, p.allowed_token_ids.size(), p.bad_words.size(),
      static_cast<long>(p.min_tokens), p.logit_bias.size(), r.prompt.size(), r.output.size());
  return text;
}

struct Tally {
  int rows = 0, wrong = 0, rounding = 0, with_top_p = 0;
};

// Whether the answers differ only as the sums of exp may be rounded at the edge of top_p.
bool within_rounding(const Request& r, int32_t token, SamplerScratch& scratch) {
  if (r.params.greedy() || r.params.top_p >= 1) return false;
  for (const double factor : {1 - 1e-6, 1 + 1e-6}) {
    Request other = r;
    other.params.top_p *= factor;
    if (other.on_cpu(scratch).token == token) return true;
  }
  return false;
}

void compare(const Request& r, const SampleResult& got, size_t row, int32_t vocab, SamplerScratch& scratch,
             Tally& tally) {
  const SampleResult expected = r.on_cpu(scratch);
  ++tally.rows;
  tally.with_top_p += !r.params.greedy() && r.params.top_p < 1 ? 1 : 0;
  if (got.token != expected.token) {
    if (within_rounding(r, got.token, scratch)) {
      ++tally.rounding;
    } else if (++tally.wrong <= 12) {
      ADD_FAILURE() << "row " << row << " of vocab " << vocab << ": token " << got.token << " instead of "
                    << expected.token << "; " << text_of(r) << "; logits " << r.logits[0] << " " << r.logits[1];
    }
    return;
  }
  if (got.logprobs.has_value() != expected.logprobs.has_value()) {
    ADD_FAILURE() << "row " << row << ": log-probabilities are there or not";
    return;
  }
  if (!got.logprobs) return;
  const TokenLogprobs &a = *got.logprobs, &b = *expected.logprobs;
  std::string trouble;
  const auto near = [](float x, float y) { return x == y || std::abs(x - y) <= 1e-5f + 1e-6f * std::abs(y); };
  if (!near(a.token.logprob, b.token.logprob))
    trouble = "logprob " + std::to_string(a.token.logprob) + " not " + std::to_string(b.token.logprob);
  if (a.token.rank != b.token.rank)
    trouble += " rank " + std::to_string(a.token.rank) + " not " + std::to_string(b.token.rank);
  if (a.top.size() != b.top.size()) trouble += " number of the best";
  for (size_t i = 0; i < std::min(a.top.size(), b.top.size()) && trouble.size() < 100; ++i) {
    if (a.top[i].id != b.top[i].id)
      trouble +=
          " id " + std::to_string(i) + ": " + std::to_string(a.top[i].id) + " not " + std::to_string(b.top[i].id);
    if (!near(a.top[i].logprob, b.top[i].logprob))
      trouble += " top logprob " + std::to_string(i) + ": " + std::to_string(a.top[i].logprob) + " not " +
                 std::to_string(b.top[i].logprob);
  }
  if (!trouble.empty() && ++tally.wrong <= 12) {
    ADD_FAILURE() << "row " << row << " of vocab " << vocab << ": " << trouble << "; " << text_of(r);
  }
}

class GpuSample : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = gpu::why_no_device();
    if (!reason.empty()) GTEST_SKIP() << reason;
    gpu::use_device();
  }
};

TEST_F(GpuSample, RandomRowsAreSampledAsOnTheCpu) {
  GpuSampler sampler(300, 152064);
  SamplerScratch scratch;
  Tally tally;
  uint64_t seed = 0;
  struct Shape {
    int32_t vocab, rows, padding, batches;
  };
  for (Shape shape : {Shape{1000, 1, 0, 20}, Shape{1000, 300, 24, 4}, Shape{1003, 40, 0, 5}, Shape{8192, 60, 0, 3},
                      Shape{8193, 60, 3, 3}, Shape{32000, 64, 0, 4}, Shape{49153, 37, 0, 3}, Shape{128256, 8, 0, 12},
                      Shape{128256, 70, 0, 2}, Shape{152064, 33, 0, 2}}) {
    shape.rows = testing::share_of(shape.rows);
    shape.batches = testing::share_of(shape.batches);
    const Tally before = tally;
    for (int batch = 0; batch < shape.batches; ++batch) {
      Random random(++seed);
      std::vector<Request> requests;
      for (int i = 0; i < shape.rows; ++i) requests.push_back(random_request(random, shape.vocab));
      std::vector<const Request*> order;
      for (const Request& r : requests) order.push_back(&r);
      const std::vector<SampleResult> got = sampler.run(order, shape.vocab, shape.padding);
      for (size_t i = 0; i < requests.size(); ++i) compare(requests[i], got[i], i, shape.vocab, scratch, tally);
      // The same rows in another order: the same answers.
      std::vector<size_t> places(requests.size());
      std::iota(places.begin(), places.end(), size_t{0});
      std::reverse(places.begin(), places.end());
      std::rotate(places.begin(), places.begin() + shape.rows / 3, places.end());
      for (size_t i = 0; i < places.size(); ++i) order[i] = &requests[places[i]];
      const std::vector<SampleResult> again = sampler.run(order, shape.vocab, shape.padding);
      int differing = 0;
      for (size_t i = 0; i < places.size(); ++i) {
        const SampleResult &a = again[i], &b = got[places[i]];
        bool same = a.token == b.token && a.logprobs.has_value() == b.logprobs.has_value();
        if (same && a.logprobs) {
          same = a.logprobs->token.logprob == b.logprobs->token.logprob &&
                 a.logprobs->token.rank == b.logprobs->token.rank;
          for (size_t k = 0; k < a.logprobs->top.size(); ++k) {
            same &= a.logprobs->top[k].id == b.logprobs->top[k].id &&
                    a.logprobs->top[k].logprob == b.logprobs->top[k].logprob;
          }
        }
        differing += same ? 0 : 1;
      }
      EXPECT_EQ(differing, 0) << "rows whose answer depends on their place, of " << shape.rows;
    }
    std::printf("vocab %d rows %d: %d rows, %d wrong, %d of %d with top_p differ by rounding\n", shape.vocab,
                shape.rows, tally.rows - before.rows, tally.wrong - before.wrong, tally.rounding - before.rounding,
                tally.with_top_p - before.with_top_p);
    (void)std::fflush(stdout);
  }
  EXPECT_TRUE(sampler.fits());
  EXPECT_EQ(tally.wrong, 0);
  EXPECT_LE(tally.rounding, tally.with_top_p / 200 + 1);
}

TEST_F(GpuSample, GivenTokensHaveLogprobs) {
  GpuSampler sampler(64, 50000);
  SamplerScratch scratch;
  Tally tally;
  Random random(99);
  std::vector<Request> requests;
  std::vector<const Request*> order;
  for (int i = 0; i < 64; ++i) {
    requests.push_back(random_request(random, 50000));
    if (random.chance(3)) continue;
    requests.back().given = random.below(50000);
    requests.back().params.logprobs = random.one_of({0, 3, 200});
  }
  for (const Request& r : requests) order.push_back(&r);
  const std::vector<SampleResult> got = sampler.run(order, 50000, 0);
  for (size_t i = 0; i < requests.size(); ++i) compare(requests[i], got[i], i, 50000, scratch, tally);
  EXPECT_EQ(tally.wrong, 0);
}

// More chunks than one block takes up the best of.
TEST_F(GpuSample, LargeVocabularies) {
  GpuSampler sampler(24, 700001);
  SamplerScratch scratch;
  Tally tally;
  Random random(123);
  for (const int32_t vocab : {262144, 262145, 700001}) {
    std::vector<Request> requests;
    std::vector<const Request*> order;
    for (int i = 0; i < testing::share_of(24); ++i) requests.push_back(random_request(random, vocab));
    for (const Request& r : requests) order.push_back(&r);
    const std::vector<SampleResult> got = sampler.run(order, vocab, 0);
    for (size_t i = 0; i < requests.size(); ++i) compare(requests[i], got[i], i, vocab, scratch, tally);
  }
  EXPECT_EQ(tally.wrong, 0);
}

TEST_F(GpuSample, WholeVocabulary) {
  GpuSampler sampler(4, 32000);
  SamplerScratch scratch;
  Tally tally;
  Random random(77);
  std::vector<Request> requests(3);
  for (Request& r : requests) {
    r.logits = random_logits(random, 9001);
    r.params.logprobs = -1;
  }
  requests[1].params.logprobs = 5000;
  const std::vector<SampleResult> got = sampler.run({&requests[0], &requests[1], &requests[2]}, 9001, 0);
  for (size_t i = 0; i < requests.size(); ++i) compare(requests[i], got[i], i, 9001, scratch, tally);
  EXPECT_EQ(tally.wrong, 0);
}

TEST_F(GpuSample, Timings) {
  constexpr int32_t kVocab = 128256;
  GpuSampler sampler(256, kVocab);
  Random random(5);
  std::vector<float> logits(kVocab);
  struct Mode {
    const char* name;
    double temperature;
    int64_t top_k;
    double top_p;
    int32_t logprobs;
    double repetition;
  };
  for (const float deviation : {2.0f, 5.0f}) {
    for (float& x : logits) x = random.normal() * deviation;
    for (const Mode mode :
         {Mode{"greedy", 0, 0, 1, -1, 1}, Mode{"temperature 1", 1, 0, 1, -1, 1},
          Mode{"top_k 50 top_p 0.9", 1, 50, 0.9, -1, 1}, Mode{"top_k 50", 1, 50, 1, -1, 1},
          Mode{"top_p 0.9", 1, 0, 0.9, -1, 1}, Mode{"greedy logprobs 5", 0, 0, 1, 5, 1},
          Mode{"greedy repetition 1000", 0, 0, 1, -1, 1.2}, Mode{"temperature 1 repetition 1000", 1, 0, 1, -1, 1.2},
          Mode{"top_k 500 top_p 0.9", 1, 500, 0.9, -1, 1}, Mode{"temperature 1 logprobs 20", 1, 0, 1, 20, 1}}) {
      for (const int32_t rows : {1, 8, 64, 256}) {
        Request request;
        request.params.temperature = mode.temperature;
        request.params.top_k = mode.top_k;
        request.params.top_p = mode.top_p;
        request.params.repetition_penalty = mode.repetition;
        if (mode.logprobs >= 0) request.params.logprobs = mode.logprobs;
        request.output = random_ids(random, kVocab, 1000);
        request.logits = logits;
        sampler.place(std::vector<const Request*>(static_cast<size_t>(rows), &request), kVocab, 0);
        constexpr int kCalls = 20;
        const gpu::Graph graph = sampler.stream().capture([&] {
          for (int i = 0; i < kCalls; ++i) sampler.enqueue();
        });
        gpu::Event begin, end;
        float best = 1e9f;
        for (int repeat = 0; repeat < 5; ++repeat) {
          sampler.stream().record(begin);
          sampler.stream().launch(graph, "timing");
          sampler.stream().record(end);
          sampler.stream().wait("timing");
          best = std::min(best, gpu::milliseconds_between(begin, end) * 1e3f / kCalls);
        }
        std::printf("deviation %g, %s, %d rows: %.2f us, %.0f GB/s\n", static_cast<double>(deviation), mode.name, rows,
                    static_cast<double>(best), rows * 4e-3 * kVocab / static_cast<double>(best));
      }
    }
  }
}

}  // namespace
}  // namespace quire
