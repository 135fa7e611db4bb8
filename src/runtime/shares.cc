// src/runtime/shares.cc: runs parallel_for with a range of adjacent parts for each thread.
#include "runtime/shares.h"

#include <attn/runtime.h>

#include "runtime/parallel.h"

namespace attn::runtime {

void parallel_for_neighbours(std::int64_t parts, void (*part)(void* context, std::int64_t index), void* context) {
  const std::int64_t threads = num_threads();
  if (threads == 1 || parts <= threads) return parallel_for(parts, part, context);
  Shares shares(parts, threads);
  parallel_for(threads,
               [&](std::int64_t own) { shares.run_from(own, [&](std::int64_t index) { part(context, index); }); });
}

}  // namespace attn::runtime
