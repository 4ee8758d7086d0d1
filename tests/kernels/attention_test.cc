#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "kernels/attention/merge.h"
#include "kernels/simd/exp.h"
#include "kernels/simd/scalar.h"
#include "kernels/simd/tanh.h"
#include "share.h"

namespace quire {
namespace {

const AttentionKernels& kernels_for(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx2:
      return attention_kernels_avx2();
    case CpuIsa::kAvx512:
      return attention_kernels_avx512();
    default:
      return attention_kernels_scalar();
  }
}

std::vector<CpuIsa> isas() {
  std::vector<CpuIsa> list;
  for (const CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    if (cpu_has(isa)) list.push_back(isa);
  }
  return list;
}

// Floats in memory as the kernels want it: aligned to 64 bytes.
struct AlignedFloats {
  explicit AlignedFloats(int64_t n) : storage(static_cast<size_t>(n + 16), 0.0f) {
    const auto address = reinterpret_cast<uintptr_t>(storage.data());
    data = storage.data() + (64 - address % 64) % 64 / sizeof(float);
  }
  std::vector<float> storage;
  float* data;
};

// Random bits that are finite values of the type.
void fill_plane(DType dtype, std::vector<std::byte>& plane, std::mt19937& random) {
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < plane.size(); i += static_cast<size_t>(block_bytes(dtype))) {
    const float x = normal(random);
    uint32_t bits = 0;
    switch (dtype) {
      case DType::kF16:
        bits = f32_to_f16(x);
        break;
      case DType::kBF16:
        bits = f32_to_bf16(x);
        break;
      case DType::kF8E4M3:
        bits = f32_to_f8e4m3(x);
        break;
      case DType::kF8E5M2:
        bits = f32_to_f8e5m2(x);
        break;
      case DType::kI8:
        bits = static_cast<uint8_t>(random());
        break;
      default:
        bits = std::bit_cast<uint32_t>(x);
    }
    std::memcpy(plane.data() + i, &bits, static_cast<size_t>(block_bytes(dtype)));
  }
}

TEST(AttentionKernels, InstructionSetsGiveTheSameBits) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  uint32_t n = 0, tried = 0;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kI8}) {
    for (const KvLayout layout : {KvLayout::kPlain, KvLayout::kShuffle}) {
      for (const int32_t head_dim : {8, 64, 72, 128}) {
        for (const int32_t share : {1, 3, 7}) {
          if (++tried % static_cast<uint32_t>(testing::case_stride()) != 0) continue;
          constexpr int32_t kBlocks = 24, kHeads = 2;
          PagedKv kv;
          kv.dtype = dtype;
          kv.layout = layout;
          kv.block_size = 16;
          kv.kv_heads = kHeads;
          kv.head_dim = kv.v_head_dim = head_dim;
          kv.blocks = kBlocks;
          std::vector<float> scales(kBlocks * kHeads * 16);
          for (float& x : scales) x = std::abs(normal(random)) * (dtype == DType::kI8 ? 0.02f : 1.0f);
          if (block_bytes(dtype) == 1) {
            kv.scaling = KvScaling::kTokenHead;
            kv.k_scales = kv.v_scales = scales.data();
          }
          std::vector<std::byte> k(static_cast<size_t>(k_plane_bytes(kv))), v(static_cast<size_t>(v_plane_bytes(kv)));
          fill_plane(dtype, k, random);
          fill_plane(dtype, v, random);
          kv.k = k.data();
          kv.v = v.data();
          std::vector<int32_t> table(kBlocks);
          std::iota(table.begin(), table.end(), 0);
          std::shuffle(table.begin(), table.end(), random);
          constexpr int32_t kRows = 5;
          const int32_t heads = kHeads * share;
          std::vector<float> q(static_cast<size_t>(kRows * heads * head_dim)), slopes(static_cast<size_t>(heads)),
              sinks(static_cast<size_t>(heads));
          for (auto* values : {&q, &slopes, &sinks}) {
            for (float& x : *values) x = normal(random);
          }
          AttentionArgs args;
          args.heads = heads;
          args.scale = 0.3f;
          args.kv = kv;
          args.q = {q.data(), int64_t{heads} * head_dim, head_dim};
          args.out = {nullptr, int64_t{heads} * head_dim, head_dim};
          ++n;
          if (n % 2 == 0) args.soft_cap = 2.0f;
          if (n % 3 == 0) args.alibi_slopes = slopes.data();
          if (n % 5 == 0) args.sinks = sinks.data();
          if (n % 7 == 0) args.window = 150;
          // Rows on both sides of a partition's bound, and one decode row by partitions.
          AttentionTask tile, pieces;
          tile.block_table = pieces.block_table = table.data();
          tile.rows = kRows;
          tile.first_position = 254;
          tile.partitions = 3;
          pieces.rows = 1;
          pieces.first_position = 300;
          pieces.first_partition = 1;
          pieces.partitions = 2;
          pieces.use = AttentionTask::Use::kPartitions;
          std::vector<std::vector<float>> outs, partials;
          for (const CpuIsa isa : isas()) {
            AlignedFloats scratch(attention_scratch_floats(heads, kv));
            std::vector<float>& out = outs.emplace_back(q.size(), NAN);
            args.out.data = out.data();
            for (int32_t h = 0; h < kHeads; ++h) kernels_for(isa).attend(args, tile, h, 1, scratch.data);
            const int64_t states = 2 * heads * attention_state_floats(head_dim);
            AlignedFloats partial(states);
            pieces.states = partial.data;
            for (int32_t h = 0; h < kHeads; ++h) kernels_for(isa).attend(args, pieces, h, 1, scratch.data);
            partials.emplace_back(partial.data, partial.data + states);
          }
          for (size_t i = 1; i < outs.size(); ++i) {
            EXPECT_EQ(outs[i], outs[0]) << cpu_isa_name(isas()[i]) << ", head size " << head_dim << ", ratio " << share
                                        << ", " << dtype_name(dtype);
            EXPECT_EQ(partials[i], partials[0]) << cpu_isa_name(isas()[i]) << ", head size " << head_dim << ", ratio "
                                                << share << ", " << dtype_name(dtype);
          }
        }
      }
    }
  }
}

TEST(AttentionKernels, TanhIsWithinItsError) {
  double worst = 0.0;
  for (double x = -12.0; x <= 12.0; x += 3.1e-5 * testing::case_stride()) {
    const auto at = static_cast<float>(x);
    const double exact = std::tanh(static_cast<double>(at));
    if (exact == 0.0) continue;
    worst = std::max(worst, std::abs((simd_tanh<ScalarIsa>(ScalarIsa::set1(at)).v[0] - exact) / exact));
  }
  EXPECT_LT(worst, 4e-7);
  const auto tanh_of = [](float x) { return simd_tanh<ScalarIsa>(ScalarIsa::set1(x)).v[0]; };
  EXPECT_EQ(tanh_of(0.0f), 0.0f);
  EXPECT_EQ(tanh_of(1e30f), 1.0f);
  EXPECT_EQ(tanh_of(-1e30f), -1.0f);
  EXPECT_TRUE(std::isnan(tanh_of(NAN)));
}

// As exp.h states.
TEST(AttentionKernels, ExpIsWithinItsError) {
  double worst = 0.0;
  for (double x = -70.0; x <= 0.0; x += 1.7e-4 * testing::case_stride()) {
    float lanes[16];
    ScalarIsa::store(lanes, simd_exp<ScalarIsa>(ScalarIsa::set1(static_cast<float>(x))));
    const double exact = std::exp(static_cast<double>(static_cast<float>(x)));
    worst = std::max(worst, std::abs(lanes[0] - exact) / exact);
  }
  EXPECT_LT(worst, 3e-7);
  const auto exp_of = [](float x) { return simd_exp<ScalarIsa>(ScalarIsa::set1(x)).v[0]; };
  EXPECT_EQ(exp_of(0.0f), 1.0f);
  EXPECT_EQ(exp_of(-__builtin_inff()), 0.0f);
  EXPECT_EQ(exp_of(-1e30f), 0.0f);
  EXPECT_TRUE(std::isnan(exp_of(NAN)));
}

// As exp.h states, however many at a time.
TEST(AttentionKernels, FallingExpIsWithinItsError) {
  const auto exp_of = [](float x) {
    ScalarIsa::F lanes[2] = {ScalarIsa::set1(x), ScalarIsa::set1(x)}, one[1] = {lanes[0]};
    simd_exp_falling<ScalarIsa, 2>(lanes);
    simd_exp_falling<ScalarIsa, 1>(one);
    EXPECT_EQ(std::bit_cast<uint32_t>(lanes[1].v[15]), std::bit_cast<uint32_t>(one[0].v[0])) << x;
    return lanes[0].v[3];
  };
  double near = 0.0, far = 0.0;
  for (double x = -86.8; x <= 0.0; x += 1.7e-4 * testing::case_stride()) {
    const auto at = static_cast<float>(x);
    const double exact = std::exp(static_cast<double>(at)), error = std::abs(exp_of(at) - exact) / exact;
    double& worst = at < -30.0f ? far : near;
    worst = std::max(worst, error);
  }
  EXPECT_LT(near, 3e-7);
  EXPECT_LT(far, 4e-7);
  EXPECT_EQ(exp_of(0.0f), 1.0f);
  for (const float x : {-86.9f, -87.5f, -1e30f, -__builtin_inff()}) {
    EXPECT_TRUE(std::isnormal(exp_of(x))) << x;
    EXPECT_LT(exp_of(x), 1.9e-38f) << x;
  }
  EXPECT_TRUE(std::isnan(exp_of(NAN)));
}

// Scores of -inf in one partition, or in all: as a decode from its pages, by partitions, and among other rows.
TEST(AttentionKernels, OverflownPartitionsAreTheSameInAllWays) {
  constexpr int32_t kHeadDim = 16, kBlocks = 24, kRows = 8;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<int32_t> table(kBlocks);
  std::iota(table.begin(), table.end(), 0);
  struct Case {
    float value;
    int32_t all, position, partitions;
  };
  for (const auto& [value, all, position, partitions] : std::vector<Case>{{1.0f, 0, 300, 3},
                                                                          {1.0f, 1, 300, 3},
                                                                          {1.0f, 1, 100, 1},
                                                                          {__builtin_inff(), 0, 300, 3},
                                                                          {__builtin_inff(), 1, 300, 3},
                                                                          {__builtin_inff(), 1, 100, 1}}) {
    std::vector<float> k(kBlocks * 16 * kHeadDim), v(k.size()), q(kRows * kHeadDim, 4.0f);
    for (size_t i = 0; i < k.size(); ++i) {
      const size_t key = i / kHeadDim;
      const bool lost = all == 1 || (key >= kPartitionKeys && key < 2 * kPartitionKeys);
      k[i] = lost ? -3e38f : normal(random);
      v[i] = lost ? value : normal(random);
    }
    AttentionArgs args;
    args.heads = 1;
    args.kv.dtype = DType::kF32;
    args.kv.block_size = 16;
    args.kv.kv_heads = 1;
    args.kv.head_dim = args.kv.v_head_dim = kHeadDim;
    args.kv.blocks = kBlocks;
    args.kv.k = reinterpret_cast<std::byte*>(k.data());
    args.kv.v = reinterpret_cast<std::byte*>(v.data());
    args.q = {q.data(), kHeadDim, kHeadDim};
    for (const CpuIsa isa : isas()) {
      AlignedFloats scratch(attention_scratch_floats(1, args.kv)),
          states(partitions * attention_state_floats(kHeadDim));
      std::vector<std::vector<float>> outs(3, std::vector<float>(kRows * kHeadDim));
      AttentionTask task;
      task.block_table = table.data();
      task.rows = 1;
      task.first_position = position;
      task.partitions = partitions;
      const auto attend = [&](size_t way) {
        args.out = {outs[way].data(), kHeadDim, kHeadDim};
        kernels_for(isa).attend(args, task, 0, 1, scratch.data);
      };
      attend(0);
      task.use = AttentionTask::Use::kPartitions;
      task.states = states.data;
      attend(1);
      kernels_for(isa).merge_row(args, 0, 0, states.data, partitions);
      task.use = AttentionTask::Use::kWhole;
      task.rows = kRows;
      task.first_position = position - kRows + 1;
      attend(2);
      outs[2].erase(outs[2].begin(), outs[2].end() - kHeadDim);
      for (size_t d = 0; d < kHeadDim; ++d) {
        SCOPED_TRACE(std::string(cpu_isa_name(isa)) + ", value " + std::to_string(value));
        EXPECT_EQ(std::isnan(outs[0][d]), std::isinf(value));
        if (std::isinf(value)) {
          EXPECT_TRUE(std::isnan(outs[1][d]) && std::isnan(outs[2][d]));
        } else {
          EXPECT_EQ(outs[1][d], outs[0][d]);
          EXPECT_EQ(outs[2][d], outs[0][d]);
          if (all == 1) {
            EXPECT_EQ(outs[0][d], 0.0f);
          }
        }
      }
    }
  }
}

float number(const nlohmann::json& value) {
  return value.is_string() ? std::stof(value.get<std::string>()) : value.get<float>();
}

TEST(AttentionMerge, Cases) {
  std::ifstream file(QUIRE_TEST_DATA "/attention/lse_merge.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 9u);
  for (const CpuIsa isa : isas()) {
    for (const auto& c : cases) {
      SCOPED_TRACE(c["id"].get<std::string>() + " " + std::string(cpu_isa_name(isa)));
      constexpr int32_t kHeadDim = 2;
      const int64_t stride = attention_state_floats(kHeadDim) + 3, width = attention_width(kHeadDim);
      std::vector<float> states(c["parts"].size() * static_cast<size_t>(stride), 0.0f);
      for (size_t i = 0; i < c["parts"].size(); ++i) {
        float* state = states.data() + static_cast<int64_t>(i) * stride;
        for (int32_t d = 0; d < kHeadDim; ++d) state[d] = number(c["parts"][i]["out"][static_cast<size_t>(d)]);
        state[width] = number(c["parts"][i]["lse"]);
        state[width + 1] = 1.0f;
      }
      float out[kHeadDim], lse;
      kernels_for(isa).merge(states.data(), stride, static_cast<int32_t>(c["parts"].size()), kHeadDim, out, &lse);
      for (int32_t d = 0; d < kHeadDim; ++d) EXPECT_NEAR(out[d], number(c["merged_out"][static_cast<size_t>(d)]), 1e-6);
      const float expected = number(c["merged_lse"]);
      if (std::isinf(expected)) {
        EXPECT_EQ(lse, expected);
      } else {
        EXPECT_NEAR(lse, expected, 1e-6 * std::max(1.0f, std::abs(expected)));
      }
    }
  }
}

// The op takes values of any size.
TEST(AttentionMerge, WideValues) {
  constexpr int32_t kWide = 3 * kMaxHeadDim + 24;
  const int64_t width = attention_width(kWide), stride = attention_state_floats(kWide);
  std::vector<float> states(static_cast<size_t>(2 * stride)), out(kWide, NAN);
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t d = 0; d < kWide; ++d)
      states[static_cast<size_t>(i * stride + d)] = static_cast<float>(d + 1) * (i == 0 ? 1.0f : 3.0f);
    states[static_cast<size_t>(i * stride + width)] = 2.0f;
    states[static_cast<size_t>(i * stride + width + 1)] = 1.0f;
  }
  for (const CpuIsa isa : isas()) {
    float lse = 0.0f;
    kernels_for(isa).merge(states.data(), stride, 2, kWide, out.data(), &lse);
    for (int32_t d = 0; d < kWide; ++d) ASSERT_FLOAT_EQ(out[static_cast<size_t>(d)], static_cast<float>(2 * (d + 1)));
    EXPECT_NEAR(lse, 2.0f + std::log(2.0f), 1e-6f);
  }
}

// A part that overflowed is not a part without keys.
TEST(AttentionMerge, NanSumReachesTheResult) {
  const int64_t width = attention_width(8), stride = attention_state_floats(8);
  for (const float max : {0.5f, __builtin_inff(), -__builtin_inff()}) {
    std::vector<float> states(static_cast<size_t>(2 * stride), 1.0f);
    states[static_cast<size_t>(stride + width)] = max;
    states[static_cast<size_t>(stride + width + 1)] = NAN;
    float out[8];
    merge_attention_states(states.data(), stride, 2, 8, out, nullptr);
    EXPECT_TRUE(std::isnan(out[0])) << max;
  }
}

}  // namespace
}  // namespace quire
