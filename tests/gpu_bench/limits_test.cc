// What the limits of a GPU are measured with does what it is counted for.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "bench/attention.h"
#include "bench/gpu/limit_kernels.h"
#include "bench/gpu_limits.h"
#include "gpu/device.h"
#include "gpu/memory.h"
#include "gpu/stream.h"

namespace quire {
namespace {

class GpuLimitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = gpu::why_no_device(); !reason.empty()) GTEST_SKIP() << reason;
    gpu::use_device();
  }
};

class GpuLimitKernelsTest : public GpuLimitsTest {
 protected:
  static constexpr size_t kWords = 7 * gpu::kLimitTileBytes / sizeof(uint32_t);
  static std::vector<uint32_t> random_words() {
    std::vector<uint32_t> words(kWords);
    std::mt19937 random(3);
    for (uint32_t& word : words) word = static_cast<uint32_t>(random());
    return words;
  }
  template <class T>
  static gpu::DeviceMemory upload(gpu::Stream& stream, const std::vector<T>& values) {
    gpu::DeviceMemory memory(values.size() * sizeof(T));
    stream.copy_to_device(memory.data(), values.data(), memory.bytes(), "test data");
    return memory;
  }
  template <class T>
  static std::vector<T> download(gpu::Stream& stream, const gpu::DeviceMemory& memory) {
    std::vector<T> values(memory.bytes() / sizeof(T));
    stream.copy_to_host(values.data(), memory.data(), memory.bytes(), "test result");
    stream.wait("test result");
    return values;
  }
};

// A loop that leaves something out would report more than the card can do.
TEST_F(GpuLimitKernelsTest, ReadsEveryWordInEveryPass) {
  gpu::Stream stream;
  const std::vector<uint32_t> words = random_words();
  const gpu::DeviceMemory data = upload(stream, words);
  const uint32_t expected = std::accumulate(words.begin(), words.end(), 0U);
  for (const int loads : {4, 8, 16}) {
    for (const unsigned blocks : {0U, 1U, 5U, 1000U}) {
      for (const int passes : {1, 3}) {
        const gpu::DeviceMemory sums = upload(stream, std::vector<uint32_t>(gpu::kReadSums));
        gpu::read_memory(data.data(), data.bytes(), passes, {loads, blocks}, static_cast<uint32_t*>(sums.data()),
                         stream);
        const auto parts = download<uint32_t>(stream, sums);
        EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), 0U), expected * static_cast<uint32_t>(passes))
            << loads << " loads, " << blocks << " blocks, " << passes << " passes";
      }
    }
  }
}

TEST_F(GpuLimitKernelsTest, CopiesAreWhole) {
  gpu::Stream stream;
  const std::vector<uint32_t> words = random_words();
  const gpu::DeviceMemory from = upload(stream, words), to = upload(stream, std::vector<uint32_t>(kWords));
  gpu::copy_memory(from.data(), to.data(), from.bytes(), stream);
  EXPECT_EQ(download<uint32_t>(stream, to), words);
}

// chain -> chain / 2 + 1, so often, goes to 2 in each of 16 chains.
TEST_F(GpuLimitKernelsTest, MultiplyAddsEndWhereTheyShould) {
  gpu::Stream stream;
  constexpr unsigned kBlocks = 3;
  const gpu::DeviceMemory out(kBlocks * gpu::kMultiplyAddThreads * sizeof(float));
  gpu::multiply_add(10, kBlocks, static_cast<float*>(out.data()), stream);
  for (const float value : download<float>(stream, out)) ASSERT_EQ(value, 32.0f);
}

TEST_F(GpuLimitsTest, RatesAreThere) {
  GpuScope scope = quick_gpu_scope();
  scope.cache = scope.copy = scope.f32 = true;
  scope.products = {{512, 512, 512}, {1 << 20, 1 << 20, 1 << 20}};  // no card has room for the second
  scope.most_bytes = 256 << 20;
  const DeviceLimits limits = measure_gpu_limits(scope);
  EXPECT_TRUE(limits.gpu());
  EXPECT_GT(limits.multiprocessors, 0);
  EXPECT_LE(limits.memory_bytes, 256 << 20);
  ASSERT_EQ(limits.products.size(), 1U);
  for (const MeasuredRate& rate :
       {limits.read_memory, limits.read_cache, limits.copy_memory, limits.fma_f32, limits.products[0].rate}) {
    EXPECT_GT(rate.median, 0.0);
    EXPECT_GE(rate.best, rate.median);
  }
}

TEST_F(GpuLimitsTest, AttentionOfEveryTypePassesItsCheck) {
  AttentionBenchmarkOptions options;
  options.batch = {"3"};
  options.context_len = {"0,130"};
  options.query_len = {"1,17"};
  options.heads = 4;
  options.kv_heads = 2;
  options.head_dim = 64;
  options.kv_cache_dtype = {"auto,float32,float16,fp8,fp8_e5m2,int8_per_token_head"};
  options.kv_cache_layout = {"plain,shuffle"};
  options.check = true;
  options.iters = 2;
  options.layers = 2;
  const auto device = make_gpu_attention_device();
  for (const AttentionRow& row : attention_rows(options, device->automatic_kv_dtype())) {
    const AttentionResult result = device->measure(row, *device->make_backend(row), options, 0);
    ASSERT_TRUE(result.check.has_value());
    EXPECT_GE(result.check->tokens, 2);
    EXPECT_TRUE(result.check->passed()) << row.name << " " << row.kv_cache_dtype << " " << layout_name(row.group.layout)
                                        << " " << result.check->largest_error << " " << result.check->bound;
    EXPECT_EQ(result.seconds.size(), 2U);
    EXPECT_EQ(result.layers, 2);
  }
}

}  // namespace
}  // namespace quire
