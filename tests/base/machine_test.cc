#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "base/log.h"
#include "base/numa.h"

namespace quire {
namespace {

TEST(CpuIsa, BestIsOneThatTheMachineHas) {
  EXPECT_TRUE(cpu_has(CpuIsa::kScalar));
  EXPECT_TRUE(cpu_has(cpu_isa()));
  EXPECT_EQ(cpu_isa_name(CpuIsa::kAvx2), "avx2");
  EXPECT_TRUE(!cpu_has(CpuIsa::kAvx512) || cpu_has(CpuIsa::kAvx2));
}

// Decided once for a process, so each case is a process of its own.
TEST(CpuIsaDeathTest, ForcedByTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("QUIRE_CPU_ISA", "scalar", 1);
        _exit(cpu_isa() == CpuIsa::kScalar ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        setenv("QUIRE_CPU_ISA", "sse9", 1);
        try {
          cpu_isa();
        } catch (const Error& error) {
          _exit(std::string(error.what()).find("sse9: not one of amx, avx512, avxvnni, avx2, scalar") !=
                        std::string::npos
                    ? 0
                    : 1);
        }
        _exit(2);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(Numa, CpuLists) {
  EXPECT_EQ(parse_cpu_list("0-3,8", "--x"), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("5,1-2,2", "--x"), (std::vector<int>{1, 2, 5}));
  for (const char* bad : {"", "a", "3-1", "1-", "1,,2", "-1", "1-99999999", "1 2", "1,"}) {
    EXPECT_THROW(parse_cpu_list(bad, "--x"), Error) << bad;
  }
}

TEST(Numa, NodesOfThisMachine) {
  EXPECT_GE(numa_node_count(), 1);
  EXPECT_GE(default_thread_count(), 1);
  EXPECT_LE(default_thread_count(), static_cast<int>(available_cpus().size()));
  EXPECT_TRUE(numa_node_cpus(100000).empty());
  EXPECT_GT(available_memory_bytes(), 1 << 20);
  EXPECT_THROW(bind_to_numa_node(numa_node_count()), Error);
  EXPECT_THROW(bind_to_numa_node(-2), Error);
}

TEST(Log, EscapesControlCharacters) {
  ::testing::internal::CaptureStderr();
  log_warning("one\nWARNING two\x1b[31m");
  log_debug("hidden");
  const std::string out = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(out.rfind("WARNING ", 0), 0U) << out;
  EXPECT_NE(out.find("one\\x0aWARNING two\\x1b[31m"), std::string::npos) << out;
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1);
  EXPECT_EQ(out.find("hidden"), std::string::npos);
}

}  // namespace
}  // namespace quire
