#include "base/cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace quire {
namespace {

// A /proc and a /sys of files that a test writes.
class Cgroup : public testing::Test {
 protected:
  Cgroup() : root_(std::filesystem::temp_directory_path() / ("quire-cgroup-" + std::to_string(getpid()))) {}
  ~Cgroup() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  CgroupLimits limits() const { return read_cgroup_limits(root_.string()); }

 private:
  std::filesystem::path root_;
};

TEST_F(Cgroup, NothingThereLimitsNothing) {
  EXPECT_FALSE(limits().cpus);
  EXPECT_FALSE(limits().memory_bytes);
  write("proc/self/cgroup", "no colons\n0::\n:\n\n9:cpu:\n");
  EXPECT_FALSE(limits().cpus);
}

TEST_F(Cgroup, ContainerOfVersion2SeesItsGroupAtTheRoot) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  write("sys/fs/cgroup/memory.max", "4294967296\n");
  write("sys/fs/cgroup/memory.current", "1073741824\n");
  EXPECT_DOUBLE_EQ(limits().cpus.value(), 2.0);
  EXPECT_EQ(limits().memory_bytes.value(), 3LL << 30);
  write("sys/fs/cgroup/memory.stat", "anon 5\nfile 805306368\ninactive_file 536870912\nactive_file 3\n");
  EXPECT_EQ(limits().memory_bytes.value(), 3584LL << 20) << "files that nobody uses are no use of memory";
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/memory.max", "max\n");
  EXPECT_FALSE(limits().cpus);
  EXPECT_FALSE(limits().memory_bytes);
}

TEST_F(Cgroup, TheStrictestOfAllGroupsAboveCounts) {
  write("proc/self/cgroup", "0::/system.slice/quire.service/workers\n");
  write("sys/fs/cgroup/system.slice/cpu.max", "400000 100000\n");
  write("sys/fs/cgroup/system.slice/quire.service/cpu.max", "75000 50000\n");
  write("sys/fs/cgroup/system.slice/quire.service/workers/cpu.max", "max 100000\n");
  EXPECT_DOUBLE_EQ(limits().cpus.value(), 1.5);
  write("sys/fs/cgroup/system.slice/cpu.max", "100000 100000\n");
  EXPECT_DOUBLE_EQ(limits().cpus.value(), 1.0);
}

TEST_F(Cgroup, Version1) {
  write("proc/self/cgroup", "11:cpu,cpuacct:/docker/4f\n5:memory:/docker/4f\n1:name=systemd:/docker/4f\n");
  write("sys/fs/cgroup/cpu,cpuacct/docker/4f/cpu.cfs_quota_us", "250000\n");
  write("sys/fs/cgroup/cpu,cpuacct/docker/4f/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/memory/docker/4f/memory.limit_in_bytes", "2097152\n");
  write("sys/fs/cgroup/memory/docker/4f/memory.usage_in_bytes", "3145728\n");
  EXPECT_DOUBLE_EQ(limits().cpus.value(), 2.5);
  EXPECT_EQ(limits().memory_bytes.value(), 0) << "more is used than allowed";
}

TEST_F(Cgroup, ContainerOfVersion1WithThePathOfItsHost) {
  write("proc/self/cgroup", "4:cpuset:/docker/4f\n3:cpu:/docker/4f\n2:memory:/docker/4f\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(limits().cpus);
  EXPECT_FALSE(limits().memory_bytes);
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  EXPECT_DOUBLE_EQ(limits().cpus.value(), 1.0);
}

}  // namespace
}  // namespace quire
