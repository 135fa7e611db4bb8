// src/runtime/openmp_team.h: finds the thread team of a libgomp that the process has already loaded.
#pragma once
#include "runtime/pool.h"

namespace attn::runtime {

/// Returns a function that runs a region on libgomp's team if another part of the process (PyTorch) has loaded libgomp,
/// else null. libgomp's threads spin between regions, so a second set of threads would share the cores with them: the
/// same region took twice as long. The call is cheap: every 64th call looks whether a library was loaded, and only then
/// searches for libgomp. Only the owner of the pool may call it.
Pool::Team openmp_team();

}  // namespace attn::runtime
