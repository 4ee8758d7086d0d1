#include "base/process_stats.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace quire {
namespace {

// Seconds since the epoch at which the machine started.
std::optional<double> boot_time() {
  std::ifstream file("/proc/stat");
  for (std::string word; file >> word;) {
    double value = 0;
    if (word == "btime" && file >> value) return value;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

// Not by std::filesystem, whose iterators end the process where there is no memory for them.
std::optional<int64_t> count_open_files() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return std::nullopt;
  int64_t files = 0;
  while (const dirent* entry = readdir(folder)) files += entry->d_name[0] == '.' ? 0 : 1;
  closedir(folder);
  return files - 1;  // without the one that lists them
}

}  // namespace

std::optional<ProcessStats> read_process_stats() {
  std::string line;
  if (std::ifstream file("/proc/self/stat"); !std::getline(file, line)) return std::nullopt;
  const size_t name_end = line.rfind(')');  // the name may hold anything, also spaces
  const std::optional<double> booted = boot_time();
  if (name_end == std::string::npos || !booted) return std::nullopt;

  // Fields are numbered as in proc(5); the first one after the name is 3.
  constexpr int kFirst = 3, kUser = 14, kSystem = 15, kStart = 22, kVirtual = 23, kResident = 24;
  std::istringstream fields(line.substr(name_end + 1));
  double ticks = 0, start = 0;
  ProcessStats stats;
  std::string word;
  for (int i = kFirst; i <= kResident && fields >> word; ++i) {
    if (i == kUser || i == kSystem) ticks += std::stod(word);
    if (i == kStart) start = std::stod(word);
    if (i == kVirtual) stats.virtual_bytes = std::stoll(word);
    if (i == kResident) stats.resident_bytes = std::stoll(word) * sysconf(_SC_PAGESIZE);
  }
  const auto hertz = static_cast<double>(sysconf(_SC_CLK_TCK));
  stats.cpu_seconds = ticks / hertz;
  stats.start_time = *booted + start / hertz;

  const std::optional<int64_t> open_files = count_open_files();
  if (!open_files) return std::nullopt;
  stats.open_files = *open_files;
  rlimit limit{};
  const bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  stats.max_files = known ? static_cast<int64_t>(limit.rlim_cur) : -1;
  return stats;
}

}  // namespace quire
