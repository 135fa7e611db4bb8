// src/runtime/openmp_team.h: finds the thread team of a libgomp that the process has already loaded.
#pragma once
#include "runtime/pool.h"

namespace attn::runtime {

/// Returns libgomp's function that runs a parallel region if another part of the process (PyTorch) has loaded libgomp,
/// else null. libgomp's threads spin between regions, so a second set of threads would share the cores with them: the
/// same region took twice as long. The call is cheap: it searches again only after another library was loaded. Only the
/// owner of the pool may call it.
Pool::Team openmp_team();

}  // namespace attn::runtime
