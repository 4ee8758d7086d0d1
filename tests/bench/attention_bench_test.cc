#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "attention/registry.h"
#include "base/error.h"
#include "bench/attention.h"
#include "bench/attention_step.h"

namespace quire {
namespace {

class AttentionOptionsTest : public ::testing::Test {
 protected:
  AttentionOptionsTest() { add_attention_benchmark_options(table_, options_); }
  std::vector<AttentionRow> rows(const std::vector<std::string>& args) {
    table_.parse(args);
    return attention_rows(options_);
  }
  std::string error(const std::vector<std::string>& args) {
    try {
      table_.parse(args);
      run_attention_benchmark(options_);
    } catch (const Error& e) {
      kind_ = e.kind();
      return e.what();
    }
    return "no error";
  }
  AttentionBenchmarkOptions options_;
  OptionTable table_{"quire bench attention", ""};
  ErrorKind kind_ = ErrorKind::kInternal;
};

std::vector<std::string> names(const std::vector<AttentionRow>& rows) {
  std::vector<std::string> out;
  for (const AttentionRow& row : rows) out.push_back(row.name);
  return out;
}

TEST_F(AttentionOptionsTest, DefaultIsTheFirstFivePresets) {
  const std::vector<AttentionRow> standard = rows({});
  size_t in_parts = 0;
  for (const char* preset : {"decode", "window", "prefill", "extend", "mixed"}) {
    options_ = {};
    const std::vector<AttentionRow> part = rows({"--preset", preset});
    EXPECT_GE(part.size(), 1U) << preset;
    in_parts += part.size();
  }
  EXPECT_EQ(standard.size(), in_parts);
  const std::vector<std::string> all = names(standard);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size()) << "a name must stand for one row";
  for (const char* name :
       {"9/3x64 decode 8 x 1 on 2048", "32/8x128 prefill 1 x 2048", "9/3x64 decode 64 x 1 on 128 to 4096",
        "9/3x64 decode 64 x 1 on 4096, window 512", "9/3x64 mixed 24 x 1 on 2048, 2 x 256 on 2048, 1 x 512"}) {
    EXPECT_NE(std::find(all.begin(), all.end(), name), all.end()) << name;
  }
}

TEST_F(AttentionOptionsTest, PresetsTakeOtherHeads) {
  const auto got =
      rows({"--preset=mixed,window", "--heads", "4", "--kv-heads", "2", "--head-dim", "32", "--window", "0"});
  ASSERT_EQ(got.size(), 3U);
  for (const AttentionRow& row : got) {
    EXPECT_EQ(row.group.heads, 4);
    EXPECT_EQ(row.group.kv_heads, 2);
    EXPECT_EQ(row.group.head_dim, 32);
    EXPECT_EQ(row.group.window, 0);
    EXPECT_FLOAT_EQ(row.group.scale, 1.0f / std::sqrt(32.0f));
  }
}

TEST_F(AttentionOptionsTest, ListsCombine) {
  const auto got = rows({"--batch", "1,8", "--context-len", "0", "100", "--query-len", "1,16"});
  EXPECT_EQ(names(got),
            (std::vector<std::string>{"9/3x64 prefill 1 x 1", "9/3x64 prefill 8 x 1", "9/3x64 decode 1 x 1 on 100",
                                      "9/3x64 decode 8 x 1 on 100", "9/3x64 prefill 1 x 16", "9/3x64 prefill 8 x 16",
                                      "9/3x64 extend 1 x 16 on 100", "9/3x64 extend 8 x 16 on 100"}));
  options_ = {};
  const auto ways =
      rows({"--batch=2", "--kv-cache-dtype", "auto,fp8,int8_per_token_head", "--kv-cache-layout=plain,shuffle",
            "--attention-backend", "PHASED,CPU_ATTN", "--extend-strategy", "paged,gather", "--soft-cap=30"});
  EXPECT_EQ(ways.size(), 3U * 2 * 2 * 2);
  EXPECT_EQ(ways.front().kv_cache_dtype, "float16");
  EXPECT_EQ(ways.front().group.kv_dtype, DType::kF16);
  EXPECT_EQ(ways.back().group.kv_scaling, KvScaling::kTokenHead);
  EXPECT_EQ(ways.back().group.layout, KvLayout::kShuffle);
  EXPECT_EQ(ways.back().backend, "CPU_ATTN");
  EXPECT_EQ(ways.back().strategy, ExtendStrategy::kGather);
  EXPECT_EQ(ways.back().name, "9/3x64 decode 2 x 1 on 2048, soft cap 30");
}

TEST_F(AttentionOptionsTest, Refusals) {
  EXPECT_EQ(error({"--batch", "8,0"}), "--batch 0: must be from 1 to 65536");
  EXPECT_EQ(kind_, ErrorKind::kInvalidArgument);
  options_ = {};
  EXPECT_EQ(error({"--context-len", "1,"}), "--context-len : must be from 0 to 16777216");
  options_ = {};
  EXPECT_EQ(error({"--query-len", "7x"}), "--query-len 7x: must be from 1 to 1048576");
  options_ = {};
  EXPECT_EQ(error({"--preset", "decod"}),
            "--preset decod: must be one of default, decode, window, prefill, extend, mixed, sdpa, h200");
  options_ = {};
  EXPECT_NE(error({"--preset", "decode", "--batch", "1"}).find("--preset: can't go with --batch"), std::string::npos);
  options_ = {};
  EXPECT_NE(error({"--batch", "1", "--kv-cache-dtype", "float8"}).find("--kv-cache-dtype float8"), std::string::npos);
  options_ = {};
  EXPECT_NE(error({"--batch", "1", "--attention-backend", "FLASH"}).find("PHASED"), std::string::npos);
  options_ = {};
  EXPECT_NE(error({"--batch", "1", "--kv-heads", "2"}).find("9 query heads can't share 2 KV heads"), std::string::npos);
  options_ = {};
  EXPECT_EQ(error({"--batch", "1", "--output-json", "/nonexistent/x.json"}),
            "--output-json /nonexistent/x.json: cannot be written (No such file or directory)");
}

// The rows that bench/gpu compares with other programs' figures.
TEST_F(AttentionOptionsTest, PeersRowsAreThoseOfThePreset) {
  std::ifstream file(QUIRE_TEST_DATA "/../../bench/gpu/peers.json");
  const auto peers = nlohmann::json::parse(file);
  std::vector<std::string> wanted;
  for (const auto& row : peers["attention"]) wanted.push_back(row["row"]);
  std::vector<std::string> got = names(rows({"--preset", "h200"}));
  std::sort(wanted.begin(), wanted.end());
  std::sort(got.begin(), got.end());
  EXPECT_EQ(got, wanted);
}

AttentionRow small_row(std::vector<RequestGroup> step) {
  AttentionBenchmarkOptions options;
  options.batch = {"1"};
  options.heads = 4;
  options.kv_heads = 2;
  options.head_dim = 24;
  AttentionRow row = attention_rows(options).front();
  row.step = std::move(step);
  return row;
}

// 16 million tokens for each of 65,536 requests.
TEST(AttentionStep, TooMuchMemoryIsSaidBeforeItIsTaken) {
  ThreadPool pool(1);
  try {
    AttentionStep step(small_row({{65536, 1, 1 << 24, 1 << 24}}), 1024, 0, pool);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kResourceExhausted);
    EXPECT_NE(std::string(e.what()).find("GiB"), std::string::npos);
  }
}

TEST(AttentionWork, CountsWhatQueriesSee) {
  for (const int32_t window : {0, 1, 5, 40, 100}) {
    for (const auto& [query_len, context_len] :
         {std::pair{1, 30}, {1, 0}, {9, 0}, {64, 0}, {3, 38}, {20, 35}, {50, 60}}) {
      AttentionRow row = small_row({{3, query_len, context_len, context_len}});
      row.group.window = window;
      int64_t pairs = 0, oldest = context_len + query_len;
      for (int64_t position = context_len; position < context_len + query_len; ++position) {
        const int64_t seen = window > 0 ? std::min<int64_t>(window, position + 1) : position + 1;
        pairs += seen;
        oldest = std::min(oldest, position + 1 - seen);
      }
      const AttentionWork work = attention_work(row);
      SCOPED_TRACE(::testing::Message() << "window " << window << ", " << query_len << " on " << context_len);
      EXPECT_EQ(work.requests, 3);
      EXPECT_EQ(work.tokens, 3 * query_len);
      EXPECT_EQ(work.kv_tokens, 3 * (context_len + query_len - oldest));
      EXPECT_EQ(work.flop, 3.0 * static_cast<double>(pairs) * 4 * 2 * (24 + 24));
      EXPECT_EQ(work.kv_bytes, static_cast<double>(work.kv_tokens) * 2 * (24 + 24) * 2);
    }
  }
}

// Hands on to a backend, then changes one number of the output.
class DamagingBackend final : public AttentionBackend {
 public:
  DamagingBackend(const AttentionBackend& backend, float factor) : backend_(backend), factor_(factor) {}
  std::string_view name() const override { return "DAMAGED"; }
  std::unique_ptr<AttentionPlan> make_plan(const AttentionGroup& group, int32_t max_requests,
                                           int32_t max_tokens) const override {
    return backend_.make_plan(group, max_requests, max_tokens);
  }
  void plan(const AttentionBatch& batch, AttentionPlan& plan) const override { backend_.plan(batch, plan); }
  size_t workspace_bytes(const AttentionGroup& group, int32_t max_requests, int32_t max_tokens) const override {
    return backend_.workspace_bytes(group, max_requests, max_tokens);
  }
  void run(const AttentionPlan& plan, const ConstHeadRows& q, const AttentionLayer& layer, const HeadRows& out,
           Workspace& workspace, ThreadPool& pool) const override {
    backend_.run(plan, q, layer, out, workspace, pool);
    static_cast<float*>(out.data)[3] *= factor_;
  }

 private:
  const AttentionBackend& backend_;
  float factor_;
};

AttentionBenchmarkOptions quick() {
  AttentionBenchmarkOptions options;
  options.iters = 3;
  options.layers = 2;
  options.check = true;
  return options;
}

const std::vector<RequestGroup> kMixed = {{3, 1, 130, 300}, {2, 17, 140, 140}, {1, 33, 0, 0}};

TEST(MeasureAttention, ChecksPassInEveryWay) {
  ThreadPool pool(2);
  AttentionBenchmarkOptions options;
  options.batch = {"1"};
  options.heads = 4;
  options.kv_heads = 2;
  options.head_dim = 24;
  options.kv_cache_dtype = {"float32,float16,bfloat16,fp8,fp8_e5m2,int8_per_token_head"};
  options.kv_cache_layout = {"plain,shuffle"};
  options.attention_backend = {"PHASED,CPU_ATTN"};
  options.extend_strategy = {"paged,gather"};
  for (const int32_t window : {0, 50}) {
    options.window = window;
    options.soft_cap = window;
    for (AttentionRow& row : attention_rows(options)) {
      row.step = kMixed;
      const auto backend = make_attention_backend(row.backend, row.group, row.strategy);
      const AttentionResult result = measure_attention(row, *backend, quick(), 0, pool);
      ASSERT_TRUE(result.check.has_value());
      EXPECT_GT(result.check->tokens, 10);
      EXPECT_TRUE(result.check->passed()) << row.kv_cache_dtype << " " << row.backend << " "
                                          << result.check->largest_error << " " << result.check->bound;
      EXPECT_EQ(result.seconds.size(), 3U);
      EXPECT_EQ(result.layers, 2);
    }
  }
}

TEST(MeasureAttention, DamageFailsTheCheck) {
  ThreadPool pool(1);
  const AttentionRow row = small_row(kMixed);
  const auto backend = make_attention_backend("", row.group);
  std::vector<AttentionResult> results = {measure_attention(row, *backend, quick(), 0, pool)};
  EXPECT_TRUE(checks_passed(results));
  for (const float factor : {1.01f, NAN}) {
    const AttentionResult damaged = measure_attention(row, DamagingBackend(*backend, factor), quick(), 0, pool);
    EXPECT_FALSE(damaged.check->passed()) << factor;
    results.push_back(damaged);
    EXPECT_FALSE(checks_passed(results));
    EXPECT_NE(attention_text(damaged, {}).find("FAILED"), std::string::npos);
    results.pop_back();
  }
  AttentionBenchmarkOptions unchecked = quick();
  unchecked.check = false;
  results.push_back(measure_attention(row, DamagingBackend(*backend, NAN), unchecked, 0, pool));
  EXPECT_FALSE(results.back().check.has_value());
  EXPECT_TRUE(checks_passed(results));
}

// 1,000 keys of 192 bytes a layer: as many layers as fill 2 x L3, at most 32.
TEST(MeasureAttention, LayersExceedTheCache) {
  ThreadPool pool(1);
  const AttentionRow row = small_row({{1, 1, 999, 999}});
  EXPECT_EQ(attention_work(row).kv_bytes, 192000);
  EXPECT_EQ(AttentionStep(row, 0, 0, pool).layers(), 1);
  EXPECT_EQ(AttentionStep(row, 0, 250000, pool).layers(), 3);
  EXPECT_EQ(AttentionStep(row, 0, 1 << 30, pool).layers(), 32);
  EXPECT_EQ(AttentionStep(row, 5, 1 << 30, pool).layers(), 5);
}

TEST(AttentionReport, ShareOfTheLimitThatBounds) {
  DeviceLimits limits;
  limits.last_cache_bytes = 1000000;
  limits.cache_bytes = 100000;
  limits.read_memory.best = 10;
  limits.read_cache.best = 40;
  limits.fma_f32.best = 100;
  AttentionResult result;
  result.layers = 1;
  result.work.kv_bytes = 2e6;
  result.work.flop = 1e6;
  result.seconds = {4e-4, 9e-4, 1e-4};
  LimitShare limit = limit_share(result, limits);
  EXPECT_EQ(limit.bound, LimitShare::Bound::kReadMemory);
  EXPECT_NEAR(limit.share, 0.5, 1e-9);  // 200 us of 400
  result.work.kv_bytes = 8e5;
  limit = limit_share(result, limits);
  EXPECT_EQ(limit.bound, LimitShare::Bound::kReadCache);
  EXPECT_NEAR(limit.share, 0.05, 1e-9);
  result.work.flop = 3e7;
  limit = limit_share(result, limits);
  EXPECT_EQ(limit.bound, LimitShare::Bound::kFma);
  EXPECT_NEAR(limit.share, 0.75, 1e-9);
  limits.cache_bytes = 0;  // not known: all reads are from memory
  result.work.flop = 0;
  EXPECT_EQ(limit_share(result, limits).bound, LimitShare::Bound::kReadMemory);
}

TEST(AttentionReport, OfAGpu) {
  DeviceLimits limits;
  limits.card = "A card";
  limits.read_memory.best = 4000;
  limits.fma_f32.best = 60000;
  limits.products = {{8, 8, 8, {600000, 600000}}};
  AttentionResult result;
  result.row = small_row(kMixed);
  result.layers = 1;
  result.work.kv_bytes = 4e9;
  result.work.flop = 1.2e12;
  result.seconds = {4e-3};
  LimitShare limit = limit_share(result, limits);
  EXPECT_EQ(limit.bound, LimitShare::Bound::kProduct);
  EXPECT_NEAR(limit.share, 0.5, 1e-9);
  const std::string line = attention_text(result, limits);
  EXPECT_NE(line.find("4000.0 us"), std::string::npos) << line;
  EXPECT_NE(line.find("50 %  product"), std::string::npos) << line;
  result.work.flop = 1e11;
  EXPECT_EQ(limit_share(result, limits).bound, LimitShare::Bound::kReadMemory);
  result.row.group.kv_dtype = DType::kF32;  // no matrix units
  result.work.flop = 1.2e12;
  EXPECT_EQ(limit_share(result, limits).bound, LimitShare::Bound::kFma);
}

TEST(AttentionBatch, ContextsOfRaggedRequests) {
  RequestGroup group{5, 1, 100, 1600};
  const StepBatch ratios(small_row({group}));
  group.spread = RequestGroup::Spread::kDifferences;
  const StepBatch differences(small_row({group}));
  const std::vector<int32_t> expected_ratios = {101, 201, 401, 801, 1601};
  const std::vector<int32_t> expected_differences = {101, 476, 851, 1226, 1601};
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(ratios.kv_len(i), expected_ratios[static_cast<size_t>(i)]);
    EXPECT_EQ(differences.kv_len(i), expected_differences[static_cast<size_t>(i)]);
    EXPECT_EQ(ratios.request_of(static_cast<int32_t>(i)), i);
  }
}

TEST(AttentionReport, Json) {
  ThreadPool pool(1);
  DeviceLimits limits;
  limits.read_memory.best = 10;
  limits.fma_f32.best = 100;
  limits.threads = 1;
  AttentionRow row = small_row(kMixed);
  const auto backend = make_attention_backend("", row.group);
  AttentionBenchmarkOptions options = quick();
  std::vector<AttentionResult> results = {measure_attention(row, *backend, options, 0, pool)};
  options.check = false;
  results.push_back(measure_attention(row, *backend, options, 0, pool));
  const auto json = nlohmann::json::parse(attention_json(results, limits));
  EXPECT_EQ(json["limits"]["read_memory_gb_s"]["best"], 10);
  ASSERT_EQ(json["rows"].size(), 2U);
  const auto& first = json["rows"][0];
  EXPECT_EQ(first["name"], row.name);
  EXPECT_EQ(first["heads"], 4);
  EXPECT_EQ(first["kv_cache_dtype"], "float16");
  EXPECT_EQ(first["kv_cache_layout"], "plain");
  EXPECT_EQ(first["attention_backend"], "PHASED");
  EXPECT_EQ(first["extend_strategy"], "paged");
  EXPECT_EQ(first["requests"], 6);
  EXPECT_EQ(first["tokens"], 3 + 2 * 17 + 33);
  EXPECT_EQ(first["iters"], 3);
  for (const char* positive :
       {"median_seconds", "least_seconds", "plan_seconds", "kv_gb_s", "gflop_s", "share", "flop"})
    EXPECT_GT(first[positive].get<double>(), 0.0) << positive;
  EXPECT_TRUE(first["check"]["passed"].get<bool>());
  EXPECT_LE(first["check"]["largest_error"].get<double>(), first["check"]["bound"].get<double>());
  EXPECT_TRUE(json["rows"][1]["check"].is_null());
}

}  // namespace
}  // namespace quire
