// src/runtime/alone/parallel.cc: runs every part in the only thread.
#include "runtime/parallel.h"

#include <attn/error.h>
#include <attn/runtime.h>

#include "runtime/format.h"
#include "runtime/run_alone.h"

namespace attn {
namespace {

int threads_of_a_plan = 1;

}  // namespace

namespace runtime {

void parallel_for(std::int64_t parts, PartFunction part, void* context) {
  if (parts > 0) run_alone(part, context, parts);
}

}  // namespace runtime

/// Work is then divided as for `threads` threads, which changes no result.
void set_num_threads(int threads) {
  if (threads < 1 || threads > runtime::max_threads)
    throw ValueError(
        runtime::format("set_num_threads: threads is {}; it must be from 1 to {}", threads, runtime::max_threads));
  threads_of_a_plan = threads;
}

int num_threads() { return threads_of_a_plan; }

}  // namespace attn
