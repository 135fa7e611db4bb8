// src/runtime/cores.cc: reads the affinity of the process and the CPU quotas of its control groups, version 1 and 2.
#include "runtime/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string_view>
#include <thread>

namespace attn::runtime {
namespace {

constexpr int unlimited = std::numeric_limits<int>::max();

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
File open(const std::string& path) { return {std::fopen(path.c_str(), "re"), &std::fclose}; }

/// Reads up to two whole numbers from the start of a file into `first` and `second`.
void read(const std::string& path, long long& first, long long& second) {
  if (const File file = open(path); file && std::fscanf(file.get(), "%lld %lld", &first, &second) < 0) first = 0;
}

/// Returns a group's own limit in cores. Version 2 has it in cpu.max ("max 100000"), version 1 in two files (-1: no
/// limit). A file that cannot be read sets no limit.
int limit_of(const std::string& folder) {
  long long quota = 0, period = 0, unused = 0;
  read(folder + "/cpu.max", quota, period);
  if (period == 0) {
    read(folder + "/cpu.cfs_quota_us", quota, unused);
    read(folder + "/cpu.cfs_period_us", period, unused);
  }
  if (quota <= 0 || period <= 0) return unlimited;
  return static_cast<int>(std::clamp<long long>(quota / period, 1, unlimited));
}

/// Returns the smallest limit of a group and of all groups above it, up to the mount point.
int limit_upwards(const std::string& mount, std::string group) {
  if (group.find("/..") != std::string::npos) group.clear();  // the group lies outside the container
  int least = limit_of(mount);
  for (; group.size() > 1; group.erase(group.rfind('/'))) least = std::min(least, limit_of(mount + group));
  return least;
}

}  // namespace

int granted_cores(const std::string& root) {
  int least = unlimited;
  const File groups = open(root + "/proc/self/cgroup");
  char* line = nullptr;
  std::size_t room = 0;
  while (groups && getline(&line, &room, groups.get()) > 0) {  // version 2: "0::/a/b"; version 1: "4:cpu,cpuacct:/a/b"
    std::string_view text(line);
    if (text.ends_with('\n')) text.remove_suffix(1);
    const std::size_t first = text.find(':'), second = first == text.npos ? first : text.find(':', first + 1);
    if (second == text.npos || !text.substr(second + 1).starts_with('/')) continue;
    const std::string controllers(text.substr(first + 1, second - first - 1)), group(text.substr(second + 1)),
        mount = root + "/sys/fs/cgroup";
    if (controllers.empty()) least = std::min(least, limit_upwards(mount, group));
    else if (("," + controllers + ",").find(",cpu,") != std::string::npos)
      least = std::min({least, limit_upwards(mount + "/cpu", group), limit_upwards(mount + "/" + controllers, group)});
  }
  std::free(line);
  return least;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = sched_getaffinity(0, sizeof set, &set) == 0;
  const int there = known ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, std::min(there, granted_cores("")));
}

}  // namespace attn::runtime
