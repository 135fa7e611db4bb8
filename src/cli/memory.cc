// src/cli/memory.cc: sets thresholds of glibc's malloc; does nothing with other C libraries.
#include "cli/memory.h"

#include <cstdlib>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace attn::cli {

void keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int most = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, most);
  mallopt(M_TRIM_THRESHOLD, most);
#endif
}

}  // namespace attn::cli
