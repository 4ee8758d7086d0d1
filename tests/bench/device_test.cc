#include "bench/device.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "bench/attention.h"
#include "bench/cache_sizes.h"
#include "bench/device_kernels.h"
#include "gpu/device.h"

namespace quire {
namespace {

struct Kernels {
  CpuIsa isa;
  const DeviceKernels& (*kernels)();
};

class DeviceKernelsTest : public ::testing::TestWithParam<Kernels> {
 protected:
  void SetUp() override {
    if (!cpu_has(GetParam().isa)) GTEST_SKIP() << "no " << cpu_isa_name(GetParam().isa) << " on this machine";
  }
  static constexpr size_t kBytes = 16 * DeviceKernels::kLineBytes;
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  static std::unique_ptr<std::byte, Free> memory(uint8_t first) {
    std::unique_ptr<std::byte, Free> data(
        static_cast<std::byte*>(std::aligned_alloc(DeviceKernels::kLineBytes, kBytes)));
    for (size_t i = 0; i < kBytes; ++i) data.get()[i] = static_cast<std::byte>(first + i * 7);
    return data;
  }
};

// A loop that leaves something out would report more than the machine can do.
TEST_P(DeviceKernelsTest, ReadDependsOnEveryWord) {
  const DeviceKernels& kernels = GetParam().kernels();
  const auto data = memory(1);
  const uint64_t all = kernels.read(data.get(), kBytes);
  for (size_t i = 0; i < kBytes; i += sizeof(uint64_t)) {
    data.get()[i] ^= std::byte{0x40};
    EXPECT_NE(kernels.read(data.get(), kBytes), all) << i;
    data.get()[i] ^= std::byte{0x40};
  }
  EXPECT_EQ(kernels.read(data.get(), kBytes), all);
}

TEST_P(DeviceKernelsTest, CopiesAreWhole) {
  const DeviceKernels& kernels = GetParam().kernels();
  const auto from = memory(1);
  for (const auto copy : {kernels.copy, kernels.copy_streaming}) {
    const auto to = memory(99);
    copy(from.get(), to.get(), kBytes);
    EXPECT_TRUE(std::equal(from.get(), from.get() + kBytes, to.get()));
  }
}

// Three times one in every lane and step.
TEST_P(DeviceKernelsTest, Int8CountsItsOperations) {
  const DeviceKernels& kernels = GetParam().kernels();
  for (const int64_t steps : {1, 5}) {
    EXPECT_EQ(kernels.dot_int8(steps), 3 * static_cast<double>(steps) * kernels.dot_int8_operations / 2);
  }
  EXPECT_GT(kernels.fma_f32(3), 0.0f);
}

INSTANTIATE_TEST_SUITE_P(Isas, DeviceKernelsTest,
                         ::testing::Values(Kernels{CpuIsa::kScalar, device_kernels_scalar},
                                           Kernels{CpuIsa::kAvx2, device_kernels_avx2},
                                           Kernels{CpuIsa::kAvx512, device_kernels_avx512}),
                         [](const auto& test) { return std::string(cpu_isa_name(test.param.isa)); });

TEST(DeviceLimits, SmallMeasurement) {
  ThreadPool pool(2);
  const DeviceLimits limits = measure_device_limits(pool, {.most_bytes = 4 << 20});
  EXPECT_EQ(limits.threads, 2);
  EXPECT_LE(limits.memory_bytes, 4 << 20);
  EXPECT_LE(limits.cache_bytes, limits.memory_bytes);
  for (const MeasuredRate& rate : {limits.read_memory, limits.copy_memory, limits.fma_f32, limits.dot_int8}) {
    EXPECT_GT(rate.median, 0.0);
    EXPECT_GE(rate.best, rate.median);
  }
}

TEST(DeviceLimits, CacheSizesFitEachOther) {
  const CacheSizes sizes = cache_sizes();
  EXPECT_GE(sizes.l2, 0);
  EXPECT_GE(sizes.l3_total, sizes.l3);
}

TEST(DeviceReport, TextAndJson) {
  DeviceLimits limits;
  limits.isa = "avx2";
  limits.int8_instructions = "some instructions";
  limits.threads = 2;
  limits.last_cache_bytes = 32 << 20;
  limits.memory_bytes = 128 << 20;
  limits.read_memory = {13.5, 12.0};
  limits.fma_f32 = {182, 180};
  const std::string shorter = device_text(limits);
  EXPECT_EQ(shorter.find("copy"), std::string::npos);
  EXPECT_EQ(shorter.find("inside L3"), std::string::npos);
  auto json = nlohmann::json::parse(device_json(limits));
  EXPECT_EQ(json["threads"], 2);
  EXPECT_EQ(json["read_memory_gb_s"], (nlohmann::json{{"best", 13.5}, {"median", 12.0}}));
  EXPECT_TRUE(json.contains("read_cache_gb_s"));
  for (const char* not_measured : {"read_cache_gb_s", "copy_memory_gb_s", "dot_int8_gop_s"})
    EXPECT_TRUE(json[not_measured].is_null()) << not_measured;

  limits.cache_bytes = 4 << 20;
  limits.read_cache = {39, 38};
  limits.copy_memory = {15.5, 15};
  limits.dot_int8 = {345, 340};
  const std::string text = device_text(limits);
  for (const char* part : {"avx2, 2 threads", "read, 128 MiB", "13.5 (12.0) GB/s", "read inside L3, 4 of 32 MiB",
                           "182.0 (180.0) GFLOP/s", "some instructions", "345.0 (340.0) GOP/s"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  json = nlohmann::json::parse(device_json(limits));
  EXPECT_EQ(json["read_cache_gb_s"]["best"], 39);
  EXPECT_EQ(json["dot_int8_gop_s"]["median"], 340);
}

TEST(DeviceReport, OfAGpu) {
  DeviceLimits limits;
  limits.card = "A card";
  limits.architecture = "compute capability 9.0";
  limits.multiprocessors = 132;
  limits.card_bytes = int64_t{1} << 30;
  limits.last_cache_bytes = 50 << 20;
  limits.cache_bytes = 12 << 20;
  limits.memory_bytes = int64_t{4} << 30;
  limits.read_memory = {4290, 4280};
  limits.read_cache = {9000, 8990};
  limits.fma_f32 = {60000, 59000};
  limits.products = {{64, 32, 16, {483000, 480000}}, {8, 8, 8, {690000, 689000}}};
  EXPECT_EQ(limits.best_product(), 690000);
  const std::string text = device_text(limits);
  for (const char* part :
       {"A card, compute capability 9.0, 132 multiprocessors, 1024 MiB", "read, 4096 MiB", "4290.0 (4280.0) GB/s",
        "read inside L2, 12 of 50 MiB", "bf16 product 64 x 32 x 16", "483.0 (480.0) TFLOP/s", "60.0 (59.0) TFLOP/s"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  for (const char* part : {"copy", "int8", "thread"}) EXPECT_EQ(text.find(part), std::string::npos) << text;
  const auto json = nlohmann::json::parse(device_json(limits));
  EXPECT_EQ(json["card"], "A card");
  EXPECT_EQ(json["l2_bytes"], 50 << 20);
  EXPECT_EQ(json["read_memory_gb_s"], (nlohmann::json{{"best", 4290}, {"median", 4280}}));
  EXPECT_TRUE(json["copy_memory_gb_s"].is_null());
  EXPECT_EQ(json["products_bf16"][1]["gflop_s"]["best"], 690000);
  for (const char* of_the_cpu : {"threads", "isa", "l3_bytes", "dot_int8_gop_s"})
    EXPECT_FALSE(json.contains(of_the_cpu)) << of_the_cpu;
}

TEST(DeviceOptions, WhichDevice) {
  EXPECT_FALSE(wants_gpu("cpu"));
  EXPECT_EQ(wants_gpu("auto"), gpu::why_no_device().empty());
  if (gpu::why_no_device().empty()) return;
  for (const auto& run : {+[](const std::string& device) { run_device_benchmark({.device = device}); },
                          +[](const std::string& device) {
                            AttentionBenchmarkOptions options;
                            options.device = device;
                            run_attention_benchmark(options);
                          }}) {
    try {
      run("cuda");
      FAIL() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kUnavailable);
      EXPECT_EQ(e.param(), "device");
      EXPECT_NE(std::string(e.what()).find("no GPU can be used: "), std::string::npos);
    }
  }
}

TEST(DeviceOptions, ThreadsHaveAShortName) {
  DeviceBenchmarkOptions options;
  OptionTable table("quire bench device", "");
  add_device_benchmark_options(table, options);
  table.parse(std::vector<std::string>{"-t", "3", "--output-json", "x.json"});
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(thread_count(options.threads), 3);
  EXPECT_EQ(options.output_json, "x.json");
  table.parse(std::vector<std::string>{"--threads", "auto"});
  EXPECT_EQ(options.threads, 0);
  EXPECT_GE(thread_count(0), 1);
  EXPECT_THROW(table.parse(std::vector<std::string>{"-t", "0x"}), Error);
}

TEST(DeviceOptions, FileIsOpenedBeforeTheMeasurement) {
  DeviceBenchmarkOptions options;
  options.output_json = "/nonexistent/x.json";
  try {
    run_device_benchmark(options);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "--output-json /nonexistent/x.json: cannot be written (No such file or directory)");
  }
}

}  // namespace
}  // namespace quire
