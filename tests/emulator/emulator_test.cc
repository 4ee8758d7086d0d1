// That the emulator computes what a device would, and says so when a kernel is wrong.
#include "emulator/faults.h"
#include "gpu_kernels/device_case.h"

namespace quire::gpu {
namespace {

class Emulator : public DeviceCase {
 protected:
  // What is said of a launch; empty if it is fine.
  std::string said(const std::function<void()>& work) {
    try {
      work();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }
  std::string said_of(Mistake mistake) {
    const DeviceMemory out(128 * 4);
    stream().zero(out.data(), out.bytes());
    return said([&] { make_mistake(mistake, static_cast<int32_t*>(out.data()), stream()); });
  }
  std::string said_of(Handing handing) {
    const DeviceMemory out(128 * 4);
    return said([&] { hand_on(handing, 128, static_cast<int32_t*>(out.data()), stream()); });
  }
};

void expect_has(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << "no " << part << " in: " << text;
}

TEST_F(Emulator, ThreadsHandOnBehindABarrier) {
  for (const int threads : {1, 64, 128, 1000, 1024}) {
    const DeviceMemory out(static_cast<size_t>(threads) * 4);
    hand_on(Handing::kWithBarrier, threads, static_cast<int32_t*>(out.data()), stream());
    const std::vector<int32_t> got = download<int32_t>(out);
    for (int i = 0; i < threads; ++i) ASSERT_EQ(got[static_cast<size_t>(i)], (i + 1) % threads) << threads;
  }
  EXPECT_EQ(said_of(Handing::kWithinWave), "");
}

TEST_F(Emulator, AMissingBarrierIsARace) {
  expect_has(said_of(Handing::kWithoutBarrier),
             {"race", "of dynamic shared memory", "faults.cu:", "hand_on_kernel", "no barrier between"});
  expect_has(said_of(Handing::kWithinWaveWithoutBarrier), {"race"});
  expect_has(said_of(Mistake::kLateRead), {"race", "read at", "writes"});
}

TEST_F(Emulator, DivergenceIsAFault) {
  expect_has(said_of(Mistake::kBarrierInBranch), {"divergent barrier", "return", "faults.cu:"});
  expect_has(said_of(Mistake::kOtherBarrier), {"divergent barrier", "faults.cu:"});
  expect_has(said_of(Mistake::kReturnBeforeBarrier), {"divergent barrier", "thread 77 (wave ", "returns"});
  expect_has(said_of(Mistake::kReturnBeforeShuffle), {"divergent wave", "lane 5", "return"});
  expect_has(said_of(Mistake::kShuffleInBranch), {"divergent wave"});
}

TEST_F(Emulator, MemoryOutsideIsAFault) {
  expect_has(said_of(Mistake::kSharedOverrun), {"overrun of shared memory", "4 bytes at 512 of 512"});
  expect_has(said_of(Mistake::kStaticOverrun), {"write of 4 bytes outside"});
  expect_has(said_of(Mistake::kDeviceOverrun), {"read of 4 bytes outside"});
  expect_has(said_of(Mistake::kUninitialized), {"not written", "small"});
}

TEST_F(Emulator, WaitingForNobodyIsAFault) { expect_has(said_of(Mistake::kWaitForNobody), {"wait"}); }

TEST_F(Emulator, AFaultLeavesTheDeviceUsable) {
  (void)said_of(Mistake::kBarrierInBranch);
  EXPECT_EQ(said_of(Handing::kWithBarrier), "");
}

TEST_F(Emulator, LanesMeet) {
  constexpr int kThreads = 192;
  const DeviceMemory out(kThreads * 3 * 4);
  sum_of_wave(kThreads, static_cast<int32_t*>(out.data()), stream());
  const std::vector<int32_t> got = download<int32_t>(out);
  const int wave = got[0] == 32 * 31 / 2 ? 32 : 64;
  for (int i = 0; i < kThreads; ++i) {
    const int first = i / wave * wave, lane = i - first;
    int sum = 0, before = 0;
    for (int l = 0; l < wave; ++l) sum += first + l, before += l <= lane ? first + l : 0;
    ASSERT_EQ(got[static_cast<size_t>(3 * i)], sum);
    ASSERT_EQ(got[static_cast<size_t>(3 * i + 1)], before);
    ASSERT_EQ(got[static_cast<size_t>(3 * i + 2)], first + (lane + 3) % wave);
  }
}

TEST_F(Emulator, BlocksOfALaunchMayWaitForEachOther) {
  for (const int blocks : {2, 32}) {
    const DeviceMemory flags(static_cast<size_t>(blocks) * 8);
    stream().zero(flags.data(), flags.bytes());
    wait_for_opposite_block(blocks, static_cast<uint32_t*>(flags.data()), stream());
    const std::vector<uint32_t> got = download<uint32_t>(flags);
    for (int i = 0; i < blocks; ++i) ASSERT_EQ(got[static_cast<size_t>(blocks + i)], static_cast<uint32_t>(i));
  }
}

TEST_F(Emulator, MoreBlocksThanAreThereAtOnceMayNot) {
  const DeviceMemory flags(300 * 8);
  stream().zero(flags.data(), flags.bytes());
  expect_has(said([&] { wait_for_opposite_block(300, static_cast<uint32_t*>(flags.data()), stream()); }), {"wait"});
}

}  // namespace
}  // namespace quire::gpu
