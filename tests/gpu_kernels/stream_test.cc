#include <stdexcept>

#include "base/error.h"
#include "gpu_kernels/device_case.h"
#include "kernels/embedding/gpu/embedding.h"
#include "kernels/fill/gpu/fill.h"

namespace quire::gpu {
namespace {

class StreamCase : public DeviceCase {
 protected:
  int64_t times(TransferCount::Kind kind, std::string_view name) {
    for (const TransferCount& count : stream().counts()) {
      if (count.kind == kind && count.name == name) return count.times;
    }
    return 0;
  }
};

TEST_F(StreamCase, ACapturedGraphDoesNothingUntilLaunchedAndThenReadsWhatIsThere) {
  const DeviceMemory weights(4096 * 4), copy(4096 * 4);
  stream().zero(weights.data(), weights.bytes());
  stream().zero(copy.data(), copy.bytes());
  const Graph graph = stream().capture([&] {
    convert(weights.data(), DType::kF32, copy.data(), DType::kBF16, 4096, stream());
    convert(copy.data(), DType::kBF16, static_cast<float*>(weights.data()), DType::kF32, 100, stream());
  });
  ASSERT_TRUE(graph);
  for (uint64_t key = 1; key <= 3; ++key) {
    fill_dummy(weights.data(), DType::kF32, 4096, key, 0, stream());
    const std::vector<float> before = download<float>(weights);
    stream().launch(graph, "replay");
    const std::vector<float> after = download<float>(weights);
    for (size_t i = 0; i < 4096; ++i) {
      ASSERT_EQ(after[i], i < 100 ? bf16_to_f32(f32_to_bf16(before[i])) : before[i]) << key << " " << i;
    }
  }
  EXPECT_EQ(times(TransferCount::Kind::kGraph, "replay"), 3);
  EXPECT_EQ(times(TransferCount::Kind::kKernel, "kernel"), 3);  // the three fills: not what was captured
}

TEST_F(StreamCase, CopiesAndWaitsAreCountedByName) {
  const std::vector<int32_t> values(100, 7);
  PinnedMemory pinned(400);
  const DeviceMemory memory(400);
  stream().copy_to_device(memory.data(), values.data(), 400, "weights");
  stream().copy_to_device(memory.data(), values.data(), 40, "weights");
  stream().copy_to_host(pinned.data(), memory.data(), 400, "tokens");
  stream().wait("tokens");
  const Event begin, end;
  stream().record(begin);
  stream().record(end);
  stream().wait(end, "event");
  EXPECT_GE(milliseconds_between(begin, end), 0.0f);
  EXPECT_EQ(std::memcmp(pinned.data(), values.data(), 400), 0);
  EXPECT_EQ(times(TransferCount::Kind::kToDevice, "weights"), 2);
  EXPECT_EQ(stream().counts().front().bytes, 440);
  EXPECT_EQ(times(TransferCount::Kind::kToHost, "tokens"), 1);
  EXPECT_EQ(times(TransferCount::Kind::kWait, "tokens"), 1);
  EXPECT_EQ(times(TransferCount::Kind::kWait, "event"), 1);
  stream().reset_counts();
  EXPECT_TRUE(stream().counts().empty());
}

TEST_F(StreamCase, AStreamIsUsableAfterAFailedCapture) {
  EXPECT_THROW(stream().capture([] { throw std::runtime_error("no"); }), std::runtime_error);
  const DeviceMemory memory(64);
  fill_dummy(memory.data(), DType::kF32, 16, 1, 0, stream());
  EXPECT_NE(download<float>(memory)[3], 0.0f);
  EXPECT_EQ(times(TransferCount::Kind::kKernel, "kernel"), 1);
}

TEST_F(StreamCase, AStreamWaitsForAnotherOnTheDevice) {
  constexpr int64_t kCount = 64 << 20;
  Stream other;
  const DeviceMemory first(kCount * 4), second(kCount * 4);
  const Event filled;
  fill_dummy(first.data(), DType::kF32, kCount, 5, 0, stream());
  stream().record(filled);
  other.wait_on_device(filled);
  other.copy_on_device(second.data(), first.data(), kCount * 4);
  other.wait("other");
  EXPECT_EQ(download<float>(second), download<float>(first));
}

TEST_F(StreamCase, MoreMemoryThanThereIsIsAnErrorWithTheBytes) {
  constexpr size_t kAbsurd = size_t{1} << 50;
  try {
    DeviceMemory memory(kAbsurd);
    ADD_FAILURE() << "a petabyte was had";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kResourceExhausted);
    EXPECT_NE(std::string(error.what()).find(std::to_string(kAbsurd)), std::string::npos) << error.what();
  }
  const DeviceMemory memory(64);  // the failure is forgotten
  fill_dummy(memory.data(), DType::kF32, 16, 1, 0, stream());
  EXPECT_NE(download<float>(memory)[3], 0.0f);
}

TEST_F(StreamCase, TheDeviceDescribesItself) {
  const DeviceInfo info = use_device();
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.major, 7);
  EXPECT_GT(info.multiprocessors, 0);
  EXPECT_GT(info.total_bytes, free_device_bytes() / 2);
}

}  // namespace
}  // namespace quire::gpu
