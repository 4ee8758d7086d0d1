#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <new>
#include <nlohmann/json.hpp>

#include "attention/attention_case.h"
#include "attention/check.h"
#include "attention/phased.h"
#include "attention/phased_plan.h"
#include "kernels/kv_write/kv_write.h"

// Counts allocations, so that a test can show that plan() and run() make none. Not inlined: GCC 12 takes an inlined
// pair of these for a mismatch.
namespace {
std::atomic<long> allocations{0};  // NOLINT: operator new has nowhere else to count
}
[[gnu::noinline]] void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
// The library's own would take from another heap than ours under asan; std::stable_sort uses it.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace quire {
namespace {

using testing::make_group;
using testing::make_requests;
using testing::Step;

TEST(Plan, EmptyPhasesHaveNoWork) {
  const auto backend = make_phased_backend();
  const AttentionGroup group = make_group(4, 2, 64);
  PhasedPlan plan(group, ExtendStrategy::kPaged, 8, 128);
  const Step decodes(group, make_requests(group, {{10, 1}, {20, 1}}, 1), 1);
  backend->plan(decodes.batch(), plan);
  EXPECT_EQ(plan.decodes().range.requests, 2);
  EXPECT_TRUE(plan.tiles().empty());
  const int32_t tile = attention_tile_rows(group.heads, kv_of(group, 0));
  const Step prefills(group, make_requests(group, {{0, tile + 1}, {0, 3}}, 1), 1);
  backend->plan(prefills.batch(), plan);
  EXPECT_EQ(plan.decodes().range.requests, 0);
  EXPECT_EQ(plan.tiles().size(), 3u);
  backend->plan({}, plan);
  EXPECT_TRUE(plan.tiles().empty());

  ThreadPool pool(2);
  Workspace workspace(backend->workspace_bytes(group, 8, 128));
  backend->run(plan, {}, {decodes.args().kv}, {}, workspace, pool);  // touches neither q nor out
}

// A page that ends a read or a write with a fault: what plan() must not look at.
class ForbiddenPage {
 public:
  ForbiddenPage() : memory_(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~ForbiddenPage() { munmap(memory_, 4096); }
  ForbiddenPage(const ForbiddenPage&) = delete;
  ForbiddenPage& operator=(const ForbiddenPage&) = delete;
  template <class T>
  std::span<const T> span(size_t n) const {
    return {static_cast<const T*>(memory_), n};
  }

 private:
  void* memory_;
};

#ifdef NDEBUG  // debug builds check the batch, and read it for that
TEST(Plan, DecodesArePlannedWithoutReadingALength) {
  const ForbiddenPage page;
  const AttentionGroup group = make_group(32, 8, 128, DType::kF16);
  PhasedPlan plan(group, ExtendStrategy::kGather, 256, 4096);
  const auto backend = make_phased_backend(ExtendStrategy::kGather);
  AttentionBatch batch{page.span<int32_t>(257),
                       page.span<int32_t>(256),
                       page.span<int32_t>(1).data(),
                       64,
                       page.span<int32_t>(256),
                       page.span<int64_t>(256),
                       {0, 256, 0, 256, 1, 5000},
                       {},
                       {}};
  backend->plan(batch, plan);
  EXPECT_EQ(plan.decodes().range.requests, 256);
  EXPECT_EQ(plan.decodes().pieces, 1);
  // The tables of the other phases are as they were made.
  EXPECT_TRUE(plan.tiles().empty() && plan.idle().empty() && plan.gather_rounds().empty());
  batch.decode = {0, 2, 0, 2, 1, 5000};
  backend->plan(batch, plan);
  EXPECT_GT(plan.decodes().pieces, 1);
}
#endif

// Rows are cut along the keys where they are few and long.
TEST(Plan, DecodesAreCutWhereTheyAreFewAndLong) {
  const auto backend = make_phased_backend();
  AttentionGroup group = make_group(9, 3, 64);
  const auto pieces = [&](int32_t requests, int32_t max_query_len, int32_t max_kv_len) {
    PhasedPlan plan(group, ExtendStrategy::kPaged, 256, 256);
    plan.plan_decodes({}, {0, requests, 0, requests * max_query_len, max_query_len, max_kv_len});
    return plan.decodes().pieces;
  };
  EXPECT_EQ(pieces(1, 1, 256), 1);
  EXPECT_EQ(pieces(1, 1, 257), 3);    // all of its partitions
  EXPECT_EQ(pieces(1, 1, 5000), 40);  // all of them
  EXPECT_EQ(pieces(8, 1, 5000), 8);   // 64 pieces in all
  EXPECT_EQ(pieces(40, 1, 5000), 2);
  EXPECT_EQ(pieces(64, 1, 5000), 1);
  EXPECT_EQ(pieces(2, 3, 5000), 1);
  group.window = 100;  // two partitions at most
  EXPECT_EQ(pieces(1, 1, 5000), 1);
  group.window = 1000;
  EXPECT_EQ(pieces(1, 1, 5000), 9);
}

// What graph capture needs: a plan for a fixed batch is run again with other lengths, blocks and padding in the same
// buffers, and gives what a plan of its own gives.
TEST(Plan, IsReplayedWithOtherContents) {
  const auto backend = make_phased_backend();
  ThreadPool pool(3);
  for (const int32_t window : {0, 150}) {
    for (const int32_t requests : {2, 12}) {  // cut along the keys, and not
      testing::Shape shape(make_group(6, 3, 64, DType::kF16, KvLayout::kShuffle));
      shape.group.window = window;
      constexpr int32_t kMaxKvLen = 900, kStride = (kMaxKvLen + 15) / 16;
      const auto n = static_cast<size_t>(requests);
      std::vector<int32_t> offsets(n + 1), kv_lens(n), rows(n), tables(n * kStride);
      std::vector<int64_t> slots(n);
      std::iota(offsets.begin(), offsets.end(), 0);
      std::iota(rows.begin(), rows.end(), 0);
      const AttentionBatch batch{
          offsets, kv_lens, tables.data(), kStride, rows, slots, {0, requests, 0, requests, 1, kMaxKvLen}, {}, {}};
      const auto plan = backend->make_plan(shape.view(), requests, requests);
      Workspace workspace(backend->workspace_bytes(shape.view(), requests, requests));
      std::fill(kv_lens.begin(), kv_lens.end(), kMaxKvLen);
      backend->plan(batch, *plan);
      std::mt19937 random(5);
      for (int replay = 0; replay < 6; ++replay) {
        std::vector<testing::Lengths> lengths;
        for (int32_t i = 0; i < requests; ++i)
          lengths.push_back({1 + static_cast<int32_t>(random() % (kMaxKvLen - 1)), 1});
        const Step step(shape, make_requests(shape, lengths, random()), random());
        const auto expected = step.run(*backend, pool);
        for (size_t i = 0; i < n; ++i) {
          kv_lens[i] = step.batch().kv_lens[i];
          rows[i] = static_cast<int32_t>(n - 1 - i);
          const int32_t* from =
              step.batch().block_tables + step.batch().block_table_rows[i] * step.batch().block_table_stride;
          std::copy_n(from, (kv_lens[i] + 15) / 16, tables.begin() + rows[i] * kStride);
        }
        const bool padded = replay % 2 == 1;
        if (padded) kv_lens[n - 1] = 0;
        const auto got = step.run(*backend, *plan, workspace, pool);
        for (size_t i = 0; i < n; ++i) {
          if (padded && i == n - 1) {
            EXPECT_EQ(got[i], std::vector<float>(6 * 64, 0.0f));
          } else {
            EXPECT_TRUE(testing::same_bits(got[i], expected[i])) << "replay " << replay << ", request " << i;
          }
        }
      }
    }
  }
}

TEST(Plan, PaddedRowsGiveZero) {
  const AttentionGroup group = make_group(2, 1, 16);
  for (const auto& backend : {make_phased_backend(), make_joined_backend()}) {
    const auto plan = backend->make_plan(group, 3, 3);
    Workspace workspace(backend->workspace_bytes(group, 3, 3));
    std::vector<float> cache(16 * 16, 1.0f), q(3 * 32, 1.0f), out(3 * 32, NAN);
    PagedKv kv = kv_of(group, 1);
    kv.k = kv.v = cache.data();
    ThreadPool pool(2);
    const std::vector<int32_t> offsets = {0, 1, 2, 3}, kv_lens = {0, 3, 0}, rows = {0, 0, 0}, table = {0};
    const std::vector<int64_t> slots = {-1, 2, -1};
    const AttentionBatch batch{offsets, kv_lens, table.data(), 1, rows, slots, {0, 3, 0, 3, 1, 3}, {}, {}};
    backend->plan(batch, *plan);
    backend->run(*plan, {q.data(), 32, 16}, {kv}, {out.data(), 32, 16}, workspace, pool);
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], i / 32 == 1 ? 1.0f : 0.0f) << i;
    EXPECT_EQ(workspace.mark(), 0u);
  }
}

TEST(Plan, PlanAndRunAllocateNothing) {
  const auto backend = make_phased_backend();
  const AttentionGroup group = make_group(4, 2, 64, DType::kF16);
  ThreadPool pool(2);
  const Step step(group, make_requests(group, {{900, 1}, {3, 1}, {40, 9}, {0, 70}}, 1), 1);
  const auto plan = backend->make_plan(group, step.requests(), step.tokens());
  Workspace workspace(backend->workspace_bytes(group, step.requests(), step.tokens()));
  std::vector<float> q(static_cast<size_t>(step.tokens() * 256), 0.5f), out(q.size());
  const long before = allocations.load();
  for (int i = 0; i < 3; ++i) {
    backend->plan(step.batch(), *plan);
    backend->run(*plan, {q.data(), 256, 64}, {step.args().kv}, {out.data(), 256, 64}, workspace, pool);
  }
  EXPECT_EQ(allocations.load(), before);
}

TEST(Plan, ManyDecodesArePlannedQuickly) {
  const auto backend = make_phased_backend();
  const AttentionGroup group = make_group(32, 8, 128, DType::kF16);
  const auto plan = backend->make_plan(group, 256, 256);
  std::vector<int32_t> offsets(257), rows(256);
  const std::vector<int32_t> kv_lens(256, 1000), tables(256 * 64);
  std::iota(offsets.begin(), offsets.end(), 0);
  std::iota(rows.begin(), rows.end(), 0);
  const std::vector<int64_t> slots(256, 0);
  const AttentionBatch batch{offsets, kv_lens, tables.data(), 64, rows, slots, {0, 256, 0, 256, 1, 1000}, {}, {}};
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

// vllm#50427: offsets past 2^31 elements. Pages are touched on use, so the address space costs nothing.
TEST(Addresses, LargeBlockNumbers) {
  ThreadPool pool(2);
  for (const KvLayout layout : {KvLayout::kPlain, KvLayout::kShuffle}) {
    const AttentionGroup group = make_group(8, 8, 128, DType::kF16, layout);
    PagedKv kv = kv_of(group, 131072);
    const auto plane = static_cast<size_t>(k_plane_bytes(kv));
    ASSERT_GE(plane, size_t{4} << 30);
    Workspace k_memory(plane), v_memory(plane);
    kv.k = k_memory.take<std::byte>(plane);
    kv.v = v_memory.take<std::byte>(plane);
    const testing::RequestData request(group, {31, 1}, 3);
    const auto backend = make_phased_backend();
    const auto plan = backend->make_plan(group, 1, 1);
    Workspace workspace(backend->workspace_bytes(group, 1, 1));
    const auto attend = [&](const std::vector<int32_t>& table) {
      std::vector<int64_t> slots;
      for (int64_t t = 0; t < 32; ++t) slots.push_back(table[static_cast<size_t>(t / 16)] * int64_t{16} + t % 16);
      kv_write({request.k.data(), 1024, 128}, {request.v.data(), 1024, 128}, slots.data(), 32, kv, pool);
      const std::vector<int32_t> offsets = {0, 1}, kv_lens = {32}, rows = {0};
      const AttentionBatch batch{offsets, kv_lens, table.data(), 2, rows, {slots.data() + 31, 1}, {0, 1, 0, 1, 1, 32},
                                 {},      {}};
      std::vector<float> out(1024, NAN);
      backend->plan(batch, *plan);
      backend->run(*plan, {request.q.data(), 1024, 128}, {kv}, {out.data(), 1024, 128}, workspace, pool);
      return out;
    };
    EXPECT_EQ(attend({65536, 131071}), attend({0, 1}));
  }
}

TEST(Addresses, Cases) {
  std::ifstream file(QUIRE_TEST_DATA "/attention/address.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 6u);
  for (const auto& c : cases) {
    // K and V side by side is a head size twice as long to the address functions.
    AttentionGroup group = make_group(1, c["kv_heads"], c["head_dim"].get<int32_t>() * c["interleave"].get<int32_t>());
    group.block_size = c["block_size"];
    const PagedKv kv = kv_of(group, int64_t{1} << 20);
    const int64_t expected = c["element_offset"];
    EXPECT_EQ(PlainLayout::k(kv, c["block"], 0, 0, 0), expected) << c["id"];
    EXPECT_EQ(ShuffleLayout::k(kv, c["block"], 0, 0, 0), expected) << c["id"];
    EXPECT_EQ(ShuffleLayout::v(kv, c["block"], 0, 0, 0), expected) << c["id"];
    EXPECT_EQ(expected > INT32_MAX, c["overflows_int32"].get<bool>());
  }
}

TEST(Check, NamesTheBrokenRule) {
  std::vector<int32_t> offsets = {0, 1, 4, 9}, kv_lens = {8, 20, 5}, rows = {0, 1, 2};
  std::vector<int64_t> slots(9, 0);
  const AttentionBatch good{
      offsets, kv_lens, nullptr, 0, rows, slots, {0, 1, 0, 1, 1, 8}, {1, 1, 1, 3, 3, 20}, {2, 1, 4, 5, 5, 5}};
  EXPECT_NO_THROW(check_batch(good));
  const auto message = [&](const std::function<void(AttentionBatch&)>& damage) -> std::string {
    AttentionBatch batch = good;
    damage(batch);
    try {
      check_batch(batch);
    } catch (const std::logic_error& error) {
      return error.what();
    }
    return "accepted";
  };
  const auto expect = [&](const char* part, const std::function<void(AttentionBatch&)>& damage) {
    const std::string got = message(damage);
    EXPECT_NE(got.find(part), std::string::npos) << got;
  };
  expect("phases must follow each other", [](AttentionBatch& b) { std::swap(b.decode, b.extend); });
  expect("phases must cover the batch", [](AttentionBatch& b) { b.prefill = {}; });
  expect("request 1: in the wrong phase", [&](AttentionBatch& b) {
    static const std::vector<int32_t> lens = {8, 3, 5};
    b.kv_lens = lens;
  });
  expect("request 2: more queries than keys", [&](AttentionBatch& b) {
    static const std::vector<int32_t> lens = {8, 20, 4};
    b.kv_lens = lens;
  });
  expect("more keys than the phase's max_kv_len", [](AttentionBatch& b) { b.extend.max_kv_len = 19; });
  expect("more queries than the phase's max_query_len", [](AttentionBatch& b) { b.prefill.max_query_len = 4; });
  expect("one slot a token", [](AttentionBatch& b) { b.slots = b.slots.first(8); });
  expect("one block table row a request", [](AttentionBatch& b) { b.block_table_rows = b.block_table_rows.first(2); });
  expect("a phase's tokens", [](AttentionBatch& b) { b.decode.tokens = 2; });
}

}  // namespace
}  // namespace quire
