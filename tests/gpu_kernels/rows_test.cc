#include "base/thread_pool.h"
#include "gpu_kernels/device_case.h"
#include "kernels/activation/gpu/silu_mul.h"
#include "kernels/activation/silu_mul.h"
#include "kernels/embedding/embedding.h"
#include "kernels/embedding/gpu/embedding.h"
#include "kernels/norm/gpu/rms_norm.h"
#include "kernels/norm/rms_norm.h"
#include "kernels/rope/gpu/rope.h"
#include "kernels/rope/rope.h"
#include "kernels/step_input/gpu/step_input.h"

namespace quire::gpu {
namespace {

class Rows : public DeviceCase {
 protected:
  ThreadPool pool_{1};
};

std::string shape_of(int64_t m, int64_t n) { return std::to_string(m) + " x " + std::to_string(n); }

TEST_F(Rows, RmsNormIsThatOfTheCpu) {
  constexpr int64_t kRows = 17;
  for (const int64_t n : {8, 64, 504, 512, 520, 576, 1024, 1032, 2048, 2056, 4096, 4104, 5120, 8192, 8200, 14'336,
                          16'384, 16'392, 40'000}) {
    const std::vector<float> x = random_floats(kRows * n, static_cast<unsigned>(n)), weight = random_floats(n, 2);
    std::vector<float> expected(x.size());
    rms_norm(x.data(), weight.data(), 1e-5f, expected.data(), kRows, n, pool_);
    const DeviceMemory device_x = upload(x), device_weight = upload(weight);
    for (const DType dtype : kActivationTypes) {
      const auto bytes = static_cast<size_t>(n * block_bytes(dtype));
      const auto run = [&](int64_t rows) {
        const DeviceMemory y(static_cast<size_t>(rows) * bytes);
        rms_norm(static_cast<const float*>(device_x.data()), static_cast<const float*>(device_weight.data()), 1e-5f,
                 y.data(), dtype, rows, n, stream());
        return download<std::byte>(y);
      };
      const std::vector<std::byte> all = run(kRows), few = run(3);
      expect_close(dtype, all, expected, 2e-6f, shape_of(kRows, n));
      // The order of the sum doesn't depend on the number of rows.
      EXPECT_EQ(std::memcmp(all.data(), few.data(), few.size()), 0) << n;
    }
  }
}

TEST_F(Rows, SiluMulIsThatOfTheCpu) {
  for (const int64_t n : {8, 136, 1016, 1024, 1032, 1536, 14'336}) {
    for (const int64_t m : {1, 5, 33}) {
      std::vector<float> values = random_floats(m * 2 * n, static_cast<unsigned>(n + m));
      values[0] = -100.0f, values[1] = 100.0f, values[2] = 0.0f, values[3] = -20.0f;
      for (const DType dtype : kActivationTypes) {
        const std::vector<std::byte> narrow = narrowed(dtype, values);
        const std::vector<float> wide = widened(dtype, narrow);
        std::vector<float> expected(static_cast<size_t>(m * n));
        silu_mul(wide.data(), expected.data(), n, m, n, pool_);
        const DeviceMemory gate_up = upload(narrow), y(static_cast<size_t>(m * n * block_bytes(dtype)));
        silu_mul(gate_up.data(), y.data(), dtype, m, n, stream());
        expect_close(dtype, download<std::byte>(y), expected, 1e-6f, shape_of(m, n));
      }
    }
  }
}

TEST_F(Rows, EmbeddingsAreThoseOfTheCpuAndUnknownIdsAreZero) {
  for (const DType dtype : kActivationTypes) {
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{1, 8}, {9, 576}, {5, 4096}, {70'000, 8}}) {
      constexpr int64_t kVocab = 50;
      const std::vector<std::byte> table = narrowed(dtype, random_floats(kVocab * n, 4));
      std::vector<int32_t> ids, known;
      for (int64_t i = 0; i < m; ++i) ids.push_back(static_cast<int32_t>(i * 7 % (kVocab + 2)) - 1);
      for (const int32_t id : ids) known.push_back(id >= 0 && id < kVocab ? id : 0);
      std::vector<float> expected(static_cast<size_t>(m * n));
      EmbeddingTable(table, dtype, n).lookup(known, expected.data(), pool_);
      for (int64_t i = 0; i < m; ++i) {
        const int32_t id = ids[static_cast<size_t>(i)];
        if (id < 0 || id >= kVocab) std::fill_n(expected.begin() + i * n, n, 0.0f);
      }
      const DeviceMemory device_table = upload(table), device_ids = upload(ids);
      const DeviceMemory x(expected.size() * sizeof(float));
      embed(device_table.data(), dtype, kVocab, static_cast<const int32_t*>(device_ids.data()),
            static_cast<float*>(x.data()), m, n, stream());
      expect_same(DType::kF32, download<std::byte>(x), narrowed(DType::kF32, expected), shape_of(m, n));
    }
  }
}

TEST_F(Rows, GatherTakesTheRows) {
  for (const auto& [m, floats] : {std::pair<int64_t, int64_t>{1, 4}, {37, 1028}, {66'000, 4}}) {
    const std::vector<float> x = random_floats(100 * floats, 8);
    std::vector<int32_t> rows;
    std::vector<float> expected;
    for (int64_t i = 0; i < m; ++i) {
      rows.push_back(static_cast<int32_t>(i * 13 % 100));
      expected.insert(expected.end(), x.begin() + rows.back() * floats, x.begin() + (rows.back() + 1) * floats);
    }
    const DeviceMemory device_x = upload(x), device_rows = upload(rows), y(expected.size() * sizeof(float));
    gather_rows(device_x.data(), static_cast<const int32_t*>(device_rows.data()), y.data(), m, floats * 4, stream());
    expect_same(DType::kF32, download<std::byte>(y), narrowed(DType::kF32, expected), shape_of(m, floats));
  }
}

TEST_F(Rows, AnglesAreThoseOfTheCpu) {
  constexpr int64_t kHalf = 64;
  std::vector<float> inv_freq;
  for (int64_t i = 0; i < kHalf; ++i) inv_freq.push_back(std::pow(500'000.0f, -static_cast<float>(i) / kHalf));
  std::vector<int32_t> positions;
  for (int32_t i = 0; i < 500; ++i) positions.push_back(i * (i % 7 == 0 ? 1997 : 3));
  positions.push_back(1 << 30);
  const auto m = static_cast<int64_t>(positions.size());
  for (const double scale : {1.0, 1.2079441541679836}) {
    std::vector<float> cos(static_cast<size_t>(m * kHalf)), sin(cos.size());
    rope_angles(inv_freq.data(), kHalf, positions.data(), m, scale, cos.data(), sin.data(), pool_);
    const DeviceMemory freq = upload(inv_freq), at = upload(positions);
    const DeviceMemory got_cos(cos.size() * sizeof(float)), got_sin(cos.size() * sizeof(float));
    rope_angles(static_cast<const float*>(freq.data()), kHalf, static_cast<const int32_t*>(at.data()), m, scale,
                static_cast<float*>(got_cos.data()), static_cast<float*>(got_sin.data()), stream());
    // Sine and cosine of two libraries may round to neighbouring floats, though hardly ever.
    const auto compare = [](const std::vector<float>& got, const std::vector<float>& expected) {
      int64_t neighbours = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        if (got[i] == expected[i]) continue;
        ++neighbours;
        EXPECT_EQ(got[i], std::nextafter(expected[i], got[i])) << i;
      }
      EXPECT_LE(neighbours, 3);
    };
    compare(download<float>(got_cos), cos);
    compare(download<float>(got_sin), sin);
  }
}

// The fields of a step's input on the host, and what must come of them.
struct StepCase {
  std::vector<int32_t> offsets{0}, kv_lens, rows, staged, sampled, delta_blocks, tables;
  std::vector<BlockTableDelta> deltas;
  std::vector<int32_t> ids, positions;
  std::vector<int64_t> slots;
};

StepCase random_step(int requests, int block_size, int64_t stride, unsigned seed) {
  std::mt19937 random(seed);
  StepCase step;
  step.tables.resize(static_cast<size_t>(requests * 2 * stride));
  for (int32_t& entry : step.tables) entry = static_cast<int32_t>(random() % 1'000'000);
  std::vector<int32_t> tables = step.tables;
  for (int r = 0; r < requests; ++r) {
    const auto row = static_cast<int32_t>(r * 2 + 1);
    const auto kv_len = static_cast<int32_t>(1 + random() % static_cast<unsigned>(stride * block_size));
    const bool padding = r % 11 == 7, empty = r % 11 == 9;
    const int32_t query_len = empty ? 0 : 1 + static_cast<int32_t>(random() % 3 == 0 ? random() % 50 : 0) % kv_len;
    if (r % 3 == 0) {
      const auto first = static_cast<int32_t>(random() % static_cast<unsigned>(stride));
      const auto count = static_cast<int32_t>(1 + random() % static_cast<unsigned>(stride - first));
      step.deltas.push_back({row, first, count, static_cast<int32_t>(step.delta_blocks.size())});
      for (int32_t i = 0; i < count; ++i) {
        step.delta_blocks.push_back(static_cast<int32_t>(random() % 3'000'000));
        tables[static_cast<size_t>(row * stride + first + i)] = step.delta_blocks.back();
      }
    }
    for (int32_t i = 0; i < query_len; ++i) {
      const int32_t position = padding ? 0 : kv_len - query_len + i;
      const bool from_last = random() % 2 == 0;
      step.sampled.push_back(static_cast<int32_t>(random() % 100'000));
      const auto token = static_cast<int32_t>(random() % 100'000);
      step.staged.push_back(from_last ? -static_cast<int32_t>(step.sampled.size()) : token);
      step.ids.push_back(from_last ? step.sampled.back() : token);
      step.positions.push_back(position);
      const int64_t block = tables[static_cast<size_t>(row * stride + position / block_size)];
      step.slots.push_back(padding ? -1 : block * block_size + position % block_size);
    }
    step.offsets.push_back(step.offsets.back() + query_len);
    step.kv_lens.push_back(padding ? 0 : kv_len);
    step.rows.push_back(row);
  }
  for (int i = 0; i < 5; ++i) {  // tokens of no request
    step.staged.push_back(i);
    step.ids.push_back(i);
    step.positions.push_back(0);
    step.slots.push_back(-1);
  }
  return step;
}

TEST_F(Rows, StepInputPlacesTokensWithTheNewBlockTables) {
  for (const int requests : {1, 2, 8, 33, 300}) {
    for (const int block_size : {1, 16, 48}) {
      constexpr int64_t kStride = 37;
      const StepCase step = random_step(requests, block_size, kStride, static_cast<unsigned>(requests + block_size));
      const DeviceMemory offsets = upload(step.offsets), kv_lens = upload(step.kv_lens), rows = upload(step.rows);
      const DeviceMemory staged = upload(step.staged), sampled = upload(step.sampled), deltas = upload(step.deltas);
      const DeviceMemory delta_blocks = upload(step.delta_blocks), tables = upload(step.tables);
      const DeviceMemory ids(step.ids.size() * 4), positions(step.ids.size() * 4), slots(step.ids.size() * 8);
      StepInputArgs args{};
      args.query_offsets = static_cast<int32_t*>(offsets.data());
      args.kv_lens = static_cast<int32_t*>(kv_lens.data());
      args.block_table_rows = static_cast<int32_t*>(rows.data());
      args.staged_ids = static_cast<int32_t*>(staged.data());
      args.sampled = static_cast<int32_t*>(sampled.data());
      args.deltas = static_cast<BlockTableDelta*>(deltas.data());
      args.delta_blocks = static_cast<int32_t*>(delta_blocks.data());
      args.requests = requests;
      args.tokens = static_cast<int32_t>(step.ids.size());
      args.delta_count = static_cast<int32_t>(step.deltas.size());
      args.block_size = block_size;
      args.block_table_stride = kStride;
      args.block_tables = static_cast<int32_t*>(tables.data());
      args.token_ids = static_cast<int32_t*>(ids.data());
      args.positions = static_cast<int32_t*>(positions.data());
      args.slots = static_cast<int64_t*>(slots.data());
      prepare_step(args, stream());
      EXPECT_EQ(download<int32_t>(ids), step.ids) << requests;
      EXPECT_EQ(download<int32_t>(positions), step.positions) << requests;
      EXPECT_EQ(download<int64_t>(slots), step.slots) << requests;
    }
  }
}

}  // namespace
}  // namespace quire::gpu
