// A file that is cut while it is mapped ends the process with a line that names it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "checkpoint/mapped_file.h"

namespace quire {
namespace {

TEST(CutFileDeathTest, IsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string path = (std::filesystem::temp_directory_path() / "quire-cut-file-test").string();
  std::ofstream(path) << std::string(100'000, 'x');
  const auto read_after_cut = [&] {
    const MappedFile file(path);
    std::filesystem::resize_file(path, 10);
    volatile auto last = file.bytes()[90'000];
    (void)last;
    std::exit(0);
  };
  EXPECT_EXIT(read_after_cut(), testing::ExitedWithCode(1), "quire-cut-file-test was cut while it was being read");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace quire
