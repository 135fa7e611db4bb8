// src/runtime/openmp_team.h: the thread team of a libgomp that the process has already loaded.
#pragma once
#include "runtime/pool.h"

namespace attn::runtime {

/// libgomp's way to get threads when some other part of the process (PyTorch) has loaded it, else null. Its threads
/// spin between regions, so a second set of threads would share the cores with them: the same region took twice as
/// long. Cheap: looks again only when a library has been loaded since. Call it as the pool's owner.
Pool::Team openmp_team();

}  // namespace attn::runtime
