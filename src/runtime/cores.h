// src/runtime/cores.h: how many cores this process may use: its affinity, and the time that its control groups grant
// it.
#pragma once
#include <string>

namespace attn::runtime {

/// The smaller of the two, at least 1. Half cores do not count: a thread more than the quota has work for stands still
/// for the rest of each period, and the others wait for it.
int usable_cores();

/// What the control groups of this process grant, in whole cores; the largest int where they set no limit. Looked up
/// below `root` ("" is the system's): /proc/self/cgroup names the groups, and each group above one limits it too.
/// Source: Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max), Documentation/scheduler/sched-bwc.rst
/// (cpu.cfs_quota_us).
int granted_cores(const std::string& root);

}  // namespace attn::runtime
