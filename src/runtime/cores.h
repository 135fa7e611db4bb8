// src/runtime/cores.h: computes how many cores this process may use, from its affinity and the CPU quotas of its
// control groups.
#pragma once
#include <string>

namespace attn::runtime {

/// Returns the smaller of the two limits, at least 1. A fraction of a core is not counted: if there are more threads
/// than the quota can run, one thread stops for the rest of each period and the other threads wait for it.
int usable_cores();

/// Returns the quota that the control groups grant this process, in whole cores; returns the largest int if they set no
/// limit. All paths are read below `root` ("" is the system's root). /proc/self/cgroup names the groups; each group
/// above one of these also limits it. Source: Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max),
/// Documentation/scheduler/sched-bwc.rst (cpu.cfs_quota_us).
int granted_cores(const std::string& root);

}  // namespace attn::runtime
