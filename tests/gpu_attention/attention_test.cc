#include <gtest/gtest.h>

#include "gpu_attention/device_step.h"
#include "gpu_attention/random_case.h"

namespace quire {
namespace {

using testing::DeviceBatch;
using testing::DeviceCache;
using testing::DeviceCopy;
using testing::HostMemoryBackend;
using testing::Lengths;
using testing::make_group;
using testing::make_requests;
using testing::RandomCase;
using testing::RequestData;
using testing::same_bits;
using testing::Shape;
using testing::Step;

using Outputs = std::vector<std::vector<float>>;

class GpuAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = gpu::why_no_device(); !reason.empty()) GTEST_SKIP() << reason;
    device_ = gpu::use_device();
    stream_ = std::make_unique<gpu::Stream>();
    backend_ = make_gpu_phased_backend(*stream_, device_);
  }

  HostMemoryBackend phased() const { return {*stream_, *backend_}; }

  gpu::DeviceInfo device_;
  std::unique_ptr<gpu::Stream> stream_;
  std::unique_ptr<AttentionBackend> backend_;
  ThreadPool pool_{1};
};

// Step::error allows for arithmetic in f32 and one rounding of the output. Where K, V and q are of 16 bits the weights
// may be rounded to them too. The portable kernels round them to bf16 over a cache of 8 bits if q is not f32: eight
// times as much as to f16.
double allowed(const Shape& shape, bool portable = gpu::platform() == "HIP") {
  if (shape.io == DType::kF32) return 1.0;
  if (block_bytes(shape.group.kv_dtype) == 1) return !portable ? 1.0 : shape.io == DType::kF16 ? 9.0 : 2.0;
  return shape.io == shape.group.kv_dtype ? 2.0 : 1.0;
}

TEST_F(GpuAttention, RandomMixedBatches) {
  const auto gathering = make_gpu_phased_backend(*stream_, device_, ExtendStrategy::kGather);
  const HostMemoryBackend phased(*stream_, *backend_), joined(*stream_, *backend_, true),
      gathered(*stream_, *gathering, true);
  double worst = 0.0, worst_joined = 0.0, worst_gathered = 0.0;
  int failures = 0;
  for (uint32_t i = 0; i < testing::test_batches(500) && failures < 40; ++i) {
    const RandomCase c = testing::random_case(i);
    const Step step(c.shape, c.requests, i, c.decode_threshold);
    const Outputs got = step.run(phased, pool_);
    std::string where;
    const double error = step.error(got, &where) / allowed(c.shape);
    worst = std::max(worst, error);
    EXPECT_LE(error, 1.0) << "case " << i << ": " << describe(c) << "; " << where;
    const Outputs whole = step.run(joined, pool_);
    const double joined_error = step.error(whole, &where) / allowed(c.shape);
    worst_joined = std::max(worst_joined, joined_error);
    EXPECT_LE(joined_error, 1.0) << "joined, case " << i << ": " << describe(c) << "; " << where;
    const double gathered_error = step.error(step.run(gathered, pool_), &where) / allowed(c.shape);
    worst_gathered = std::max(worst_gathered, gathered_error);
    EXPECT_LE(gathered_error, 1.0) << "gathered, case " << i << ": " << describe(c) << "; " << where;
    EXPECT_FALSE(step.touched_outside()) << "case " << i << ": " << describe(c);
    failures += error <= 1.0 && joined_error <= 1.0 && gathered_error <= 1.0 ? 0 : 1;
  }
  std::printf("worst share of the tolerance: %.3f, phases joined %.3f, context gathered %.3f\n", worst, worst_joined,
              worst_gathered);
}

// The kernels that every vendor has, whatever the card would choose.
TEST_F(GpuAttention, RandomMixedBatchesOnPortableKernels) {
  constexpr auto kPortable = gpu::AttentionKernelChoice::kPortable;
  const auto paging = make_gpu_phased_backend(*stream_, device_, ExtendStrategy::kPaged, kPortable);
  const auto gathering = make_gpu_phased_backend(*stream_, device_, ExtendStrategy::kGather, kPortable);
  const HostMemoryBackend phased(*stream_, *paging), joined(*stream_, *paging, true),
      gathered(*stream_, *gathering, true);
  double worst[3] = {};
  int failures = 0;
  for (uint32_t i = 0; i < testing::test_batches(500) && failures < 40; ++i) {
    const RandomCase c = testing::random_matrix_case(i);
    const Step step(c.shape, c.requests, i, c.decode_threshold);
    const HostMemoryBackend* const backends[] = {&phased, &joined, &gathered};
    for (int b = 0; b < 3; ++b) {
      std::string where;
      const double error = step.error(step.run(*backends[b], pool_), &where) / allowed(c.shape, true);
      worst[b] = std::max(worst[b], error);
      EXPECT_LE(error, 1.0) << "backend " << b << ", case " << i << ": " << describe(c) << "; " << where;
      failures += error <= 1.0 ? 0 : 1;
    }
    EXPECT_FALSE(step.touched_outside()) << "case " << i << ": " << describe(c);
  }
  std::printf("worst share of the tolerance: %.3f, phases joined %.3f, context gathered %.3f\n", worst[0], worst[1],
              worst[2]);
}

// Long contexts, of which a decode takes pieces.
TEST_F(GpuAttention, LongDecodes) {
  const HostMemoryBackend phased(*stream_, *backend_);
  for (const KvLayout layout : {KvLayout::kPlain, KvLayout::kShuffle}) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      for (const int32_t head_dim : {64, 128}) {
        for (const auto& lengths : {std::vector<Lengths>{{8191, 1}},
                                    {{255, 1}},
                                    {{256, 1}, {257, 1}},
                                    {{383, 1}, {384, 1}, {385, 1}, {1, 1}, {1500, 1}, {700, 9}},
                                    std::vector<Lengths>(37, Lengths{130, 1})}) {
          Shape shape(make_group(8, 2, head_dim, dtype, layout));
          shape.io = dtype;
          const Step step(shape, make_requests(shape, lengths, 77), 6);
          std::string where;
          EXPECT_LE(step.error(step.run(phased, pool_), &where), allowed(shape))
              << dtype_name(dtype) << ", head size " << head_dim << ", " << lengths.size() << " requests, first "
              << lengths[0].context << "; " << where;
        }
      }
    }
  }
}

// Few rows on long contexts: cut along the keys, or on contexts gathered in more rounds than one.
TEST_F(GpuAttention, LongContexts) {
  const auto gathering = make_gpu_phased_backend(*stream_, device_, ExtendStrategy::kGather);
  const HostMemoryBackend phased(*stream_, *backend_), gathered(*stream_, *gathering);
  for (const int32_t window : {0, 17000}) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      Shape shape(make_group(2, 1, 64, dtype, dtype == DType::kF32 ? KvLayout::kShuffle : KvLayout::kPlain));
      shape.io = dtype;
      shape.group.window = window;
      shape.sinks = {0.5f, 2.0f};
      const Step step(shape, make_requests(shape, {{20000, 3}, {200, 4}, {15000, 5}, {9000, 2}, {0, 7}, {3, 2}}, 21),
                      6);
      std::string where;
      EXPECT_LE(step.error(step.run(phased, pool_), &where), allowed(shape)) << window << " " << where;
      EXPECT_LE(step.error(step.run(gathered, pool_), &where), allowed(shape))
          << "gathered, " << window << " " << where;
    }
  }
}

// Many requests, so that threads take several each when they look for their work.
TEST_F(GpuAttention, ManyRequests) {
  const HostMemoryBackend phased(*stream_, *backend_);
  std::mt19937 random(5);
  for (const size_t requests : {129u, 700u}) {
    Shape shape(make_group(4, 2, 64, DType::kBF16));
    shape.io = DType::kBF16;
    std::vector<Lengths> lengths;
    for (size_t i = 0; i < requests; ++i) lengths.push_back({1 + static_cast<int32_t>(random() % 600), 1});
    const Step step(shape, make_requests(shape, lengths, 3), 6);
    EXPECT_LE(step.error(step.run(phased, pool_)), allowed(shape)) << requests;
  }
}

TEST_F(GpuAttention, PaddingGivesZeros) {
  const HostMemoryBackend phased(*stream_, *backend_);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Shape shape(make_group(8, 2, 128, dtype));
    shape.io = dtype;
    const Step step(shape, make_requests(shape, {{100, 1}, {7, 1}, {600, 1}, {0, 1}, {0, 9}, {33, 1}, {0, 2}}, 8), 6);
    const AttentionGroup group = shape.view();
    const auto plan = phased.make_plan(group, step.requests(), step.tokens());
    AttentionBatch batch = step.batch();
    std::vector<int32_t> lens(batch.kv_lens.begin(), batch.kv_lens.end());
    lens[1] = lens[3] = lens[5] = 0;  // two decodes, and a request of nine rows
    batch.kv_lens = lens;
    phased.plan(batch, *plan);
    HeadRows out = step.args().out;
    std::vector<std::byte> memory(static_cast<size_t>(step.tokens() * out.row_stride * block_bytes(dtype)),
                                  std::byte{0xff});
    out.data = memory.data();
    Workspace workspace(0);
    phased.run(*plan, step.args().q, {step.args().kv, nullptr}, out, workspace, pool_);
    for (size_t r = 0; r < lens.size(); ++r) {
      for (int32_t row = batch.query_offsets[r]; row < batch.query_offsets[r + 1]; ++row) {
        for (int32_t h = 0; h < group.heads; ++h) {
          for (int32_t d = 0; d < group.v_head_dim; d += 9) {
            const float x = testing::get(memory.data(), dtype, row * out.row_stride + h * out.head_stride + d);
            if (lens[r] == 0) {
              EXPECT_EQ(x, 0.0f) << r;
            } else {
              EXPECT_TRUE(std::isfinite(x) && x != 0.0f) << "request " << r << " head " << h << " dim " << d;
            }
          }
        }
      }
    }
  }
}

// Decode steps whose contents replace those of the step that was captured.
class ReplayBackend final : public AttentionBackend {
 public:
  // Captures the step with room for `largest`.
  ReplayBackend(gpu::Stream& stream, const AttentionBackend& backend, const Shape& shape, const Step& largest)
      : stream_(stream),
        batch_(stream, largest.batch()),
        cache_(stream, largest.args().kv),
        q_(rows_bytes(largest, largest.args().q.row_stride)),
        out_(rows_bytes(largest, largest.args().out.row_stride)),
        sinks_(stream, shape.sinks.data(), shape.sinks.size() * sizeof(float)),
        plan_(backend.make_plan(shape.view(), largest.requests(), largest.tokens())),
        scratch_(backend.workspace_bytes(shape.view(), largest.requests(), largest.tokens())) {
    backend.plan(batch_.view(), *plan_);
    ConstHeadRows q = largest.args().q;
    HeadRows out = largest.args().out;
    q.data = q_.data();
    out.data = out_.data();
    Workspace workspace(scratch_.data(), scratch_.bytes());
    ThreadPool pool(1);
    stream_.wait("test data");
    graph_ = stream_.capture([&] {
      backend.run(*plan_, q, {cache_.view(), sinks_.as<const float>()}, out, workspace, pool);
    });
  }

  void set(const Step& step) { step_ = &step; }
  std::string_view name() const override { return "replay"; }
  std::unique_ptr<AttentionPlan> make_plan(const AttentionGroup&, int32_t, int32_t) const override { return nullptr; }
  void plan(const AttentionBatch&, AttentionPlan&) const override {}
  size_t workspace_bytes(const AttentionGroup&, int32_t, int32_t) const override { return 0; }

  // The step's own batch, as set() says.
  void run(const AttentionPlan&, const ConstHeadRows& q, const AttentionLayer& layer, const HeadRows& out, Workspace&,
           ThreadPool&) const override {
    const AttentionBatch& from = step_->batch();
    const AttentionBatch& to = batch_.view();
    const auto put = [&](const auto* where, const auto* what, size_t bytes) {
      stream_.copy_to_device(const_cast<void*>(static_cast<const void*>(where)), what, bytes, "test data");
    };
    put(to.kv_lens.data(), from.kv_lens.data(), from.kv_lens.size_bytes());
    put(to.query_offsets.data(), from.query_offsets.data(), from.query_offsets.size_bytes());
    put(to.block_table_rows.data(), from.block_table_rows.data(), from.block_table_rows.size_bytes());
    for (size_t row = 0; row < from.kv_lens.size(); ++row) {
      put(to.block_tables + static_cast<int64_t>(row) * to.block_table_stride,
          from.block_tables + static_cast<int64_t>(row) * from.block_table_stride,
          static_cast<size_t>(from.block_table_stride) * sizeof(int32_t));
    }
    put(cache_.view().k, layer.kv.k, static_cast<size_t>(k_plane_bytes(layer.kv)));
    put(cache_.view().v, layer.kv.v, static_cast<size_t>(v_plane_bytes(layer.kv)));
    put(q_.data(), q.data, rows_bytes(*step_, q.row_stride));
    put(out_.data(), out.data, rows_bytes(*step_, out.row_stride));
    stream_.launch(graph_, "step");
    stream_.copy_to_host(out.data, out_.data(), rows_bytes(*step_, out.row_stride), "test result");
    stream_.wait("test result");
  }

 private:
  static size_t rows_bytes(const Step& step, int64_t row_stride) {
    return static_cast<size_t>(step.tokens() * row_stride * block_bytes(step.args().q.dtype));
  }

  gpu::Stream& stream_;
  DeviceBatch batch_;
  DeviceCache cache_;
  gpu::DeviceMemory q_, out_;
  DeviceCopy sinks_;
  std::unique_ptr<AttentionPlan> plan_;
  gpu::DeviceMemory scratch_;
  gpu::Graph graph_;
  const Step* step_ = nullptr;
};

TEST_F(GpuAttention, CapturedDecodesServeOtherLengths) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    Shape shape(make_group(8, 2, 128, dtype));
    shape.io = dtype;
    shape.sinks.assign(8, 0.5f);
    const Step largest(shape, make_requests(shape, std::vector<Lengths>(6, Lengths{2000, 1}), 1), 6);
    ReplayBackend replay(*stream_, *backend_, shape, largest);
    struct NoPlan final : AttentionPlan {
    } none;
    Workspace workspace(0);
    for (const auto& lengths : {std::vector<Lengths>(6, Lengths{2000, 1}),
                                {{1, 1}, {2, 1}, {15, 1}, {16, 1}, {63, 1}, {64, 1}},
                                {{1900, 1}, {1, 1}, {1, 1}, {700, 1}, {127, 1}, {128, 1}},
                                {{50, 1}, {60, 1}, {70, 1}, {80, 1}, {90, 1}, {1999, 1}}}) {
      const Step step(shape, make_requests(shape, lengths, 5), 6);
      replay.set(step);
      for (int again = 0; again < 2; ++again)
        EXPECT_LE(step.error(step.run(replay, none, workspace, pool_)), allowed(shape)) << lengths[0].context;
    }
  }
}

// A NaN of one request reaches no other.
TEST_F(GpuAttention, NanStaysInItsRequest) {
  const HostMemoryBackend phased(*stream_, *backend_);
  for (const DType dtype : {DType::kF16, DType::kF32}) {
    Shape shape(make_group(4, 2, 64, dtype));
    shape.io = dtype;
    const std::vector<RequestData> good = make_requests(shape, {{600, 1}, {140, 20}, {0, 30}, {30, 1}}, 4);
    const Outputs expected = Step(shape, good, 6).run(phased, pool_);
    for (const bool in_key : {false, true}) {
      for (size_t bad = 0; bad < good.size(); ++bad) {
        std::vector<RequestData> requests = good;
        (in_key ? requests[bad].k : requests[bad].q)[3] = std::numeric_limits<float>::quiet_NaN();
        const Outputs got = Step(shape, requests, 6).run(phased, pool_);
        for (size_t r = 0; r < good.size(); ++r) {
          if (r == bad) {
            EXPECT_TRUE(std::isnan(got[r][0])) << dtype_name(dtype) << " request " << r;
          } else {
            EXPECT_TRUE(same_bits(expected[r], got[r])) << dtype_name(dtype) << " request " << r;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire
