// tests/runtime/cores_test.cc: the cores that control groups grant, read from folders made like the system's.
#include "runtime/cores.h"
#include "runtime/cpu.h"

#include <gtest/gtest.h>

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

namespace attn::runtime {
namespace {

constexpr int unlimited = std::numeric_limits<int>::max();

/// A system's files in a folder of their own.
struct System {
  std::filesystem::path root;

  System() {
    std::string name = (std::filesystem::temp_directory_path() / "attn_cores_XXXXXX").string();
    root = mkdtemp(name.data());
  }
  ~System() { std::filesystem::remove_all(root); }
  System& file(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
    return *this;
  }
  int cores() const { return granted_cores(root.string()); }
};

TEST(Cores, WithoutGroupsOrQuotasThereIsNoLimit) {
  EXPECT_EQ(System().cores(), unlimited);
  EXPECT_EQ(System().file("proc/self/cgroup", "0::/\n").cores(), unlimited);
  EXPECT_EQ(System().file("proc/self/cgroup", "0::/a/b\n").file("sys/fs/cgroup/a/b/cpu.max", "max 100000\n").cores(),
            unlimited);
  EXPECT_EQ(System()
                .file("proc/self/cgroup", "4:cpu,cpuacct:/a\n")
                .file("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n")
                .file("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n")
                .cores(),
            unlimited);
}

TEST(Cores, AQuotaOfVersionTwo) {
  for (const auto& [text, cores] : {std::pair<const char*, int>{"200000 100000\n", 2},
                                    {"50000 100000\n", 1},
                                    {"399999 100000\n", 3},
                                    {"10000 5000", 2},
                                    {"100000000000 1\n", unlimited}})
    EXPECT_EQ(System().file("proc/self/cgroup", "0::/\n").file("sys/fs/cgroup/cpu.max", text).cores(), cores) << text;
}

TEST(Cores, EveryGroupAboveLimitsToo) {
  System system;
  system.file("proc/self/cgroup", "0::/slice/unit/inner\n")
      .file("sys/fs/cgroup/slice/unit/inner/cpu.max", "max 100000\n");
  EXPECT_EQ(system.file("sys/fs/cgroup/slice/unit/cpu.max", "800000 100000\n").cores(), 8);
  EXPECT_EQ(system.file("sys/fs/cgroup/slice/cpu.max", "300000 100000\n").cores(), 3);
  EXPECT_EQ(system.file("sys/fs/cgroup/cpu.max", "500000 100000\n").cores(), 3);
}

TEST(Cores, AQuotaOfVersionOneIsTheProcessorsGroup) {
  System system;
  system.file("proc/self/cgroup", "9:memory:/x\n4:cpuacct,cpu:/pod/one\n3:cpuset:/other\n0::/\n");
  system.file("sys/fs/cgroup/cpu/other/cpu.cfs_quota_us", "100000\n")
      .file("sys/fs/cgroup/cpu/other/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(system.cores(), unlimited);
  EXPECT_EQ(system.file("sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "400000\n")
                .file("sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", "100000\n")
                .cores(),
            4);
  EXPECT_EQ(system.file("sys/fs/cgroup/cpuacct,cpu/cpu.cfs_quota_us", "250000\n")
                .file("sys/fs/cgroup/cpuacct,cpu/cpu.cfs_period_us", "100000\n")
                .cores(),
            2);
}

TEST(Cores, WhatCannotBeUnderstoodLimitsNothing) {
  for (const char* text : {"", "0 0\n", "100000\n", "-5 100000\n", "100000 0\n", "many 100000\n", "100000 -1\n"})
    EXPECT_EQ(System().file("proc/self/cgroup", "0::/\n").file("sys/fs/cgroup/cpu.max", text).cores(), unlimited)
        << text;
  for (const char* text : {"", "\n", ":", "::", "0:cpu", "0::\n", "0::x\n", "no group here"})
    EXPECT_EQ(System().file("proc/self/cgroup", text).file("sys/fs/cgroup/cpu.max", "100000 100000\n").cores(),
              unlimited)
        << text;
  EXPECT_EQ(System()
                .file("proc/self/cgroup", "0::/../../elsewhere\n")
                .file("sys/fs/cgroup/cpu.max", "300000 100000\n")
                .cores(),
            3);
}

TEST(Cores, ThisProcessHasSome) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), granted_cores(""));
  EXPECT_EQ(cpu().cores, usable_cores());
}

}  // namespace
}  // namespace attn::runtime
