// src/runtime/parallel.cc: decides which threads run the parts of a call: the pool, libgomp's team, or the caller
// alone.
#include "runtime/parallel.h"

#include <attn/error.h>
#include <attn/runtime.h>
#include "runtime/format.h"

#include "runtime/openmp_team.h"
#include "runtime/cpu.h"
#include "runtime/environment.h"
#include "runtime/pool.h"

#include <algorithm>

namespace attn {
namespace runtime {
namespace {

std::atomic<int> chosen_threads{0};  // 0: not chosen yet
std::atomic<bool> forked{false};

/// Holds the settings from the environment, read at the first call. It is not a function's static, because a child that
/// was forked while another thread initialises one would wait for ever.
struct Settings {
  std::atomic<bool> known{false};
  std::atomic<std::int64_t> spin_ns{0};
  std::atomic<bool> bind{false};
};
constinit Settings settings;

void read_settings() {
  if (settings.known.load(std::memory_order_acquire)) return;
  settings.spin_ns.store(environment_integer("ATTN_SPIN_US", 0, 1'000'000).value_or(50) * 1000);
  settings.bind.store(environment_flag("ATTN_DEBUG_BIND_PARTS"));
  settings.known.store(true, std::memory_order_release);
}

void start_afresh_in_child() {
  forked.store(true, std::memory_order_relaxed);  // libgomp's team does not exist in the child, and using it would hang
  pool().forget_threads();
}

/// Joins the workers when the process exits or the library is unloaded.
struct EndOfLibrary {
  ~EndOfLibrary() {
    // The pool is never released, so calls of later destructors run in their own thread. If a call is still running,
    // its threads are left alone.
    if (pool().try_own()) pool().resize(0);
  }
};

/// Runs once, at the first use of the pool, in the thread that owns it.
void prepare_process() {
  static bool prepared = false;
  if (prepared) return;
  prepared = true;
  pthread_atfork(nullptr, nullptr, start_afresh_in_child);
  static EndOfLibrary end;
}

struct Disown {
  ~Disown() { pool().disown(); }
};

}  // namespace

void parallel_for(std::int64_t parts, PartFunction part, void* context) {
  if (parts <= 0) return;
  read_settings();
  const int threads = num_threads();
  if (parts == 1 || threads == 1 || inside_part() || !pool().try_own()) return run_alone(part, context, parts);
  std::exception_ptr error;
  {
    Disown at_end;
    prepare_process();
    const bool bind = settings.bind.load(std::memory_order_relaxed);
    const Pool::Team team = bind || forked.load(std::memory_order_relaxed) ? nullptr : openmp_team();
    pool().resize(team ? 0 : threads - 1);
    // With more threads than cores, a spinning thread takes a core from one that has work.
    const std::int64_t spin_ns = threads > cpu().cores ? 0 : settings.spin_ns.load(std::memory_order_relaxed);
    for (std::int64_t first = 0; first < parts; first += Pool::max_round) {
      const std::int64_t count = std::min(parts - first, Pool::max_round);
      std::exception_ptr round_error;
      pool().run({part, context, first, static_cast<std::uint32_t>(count), &round_error}, threads, spin_ns, bind, team);
      if (!error) error = round_error;
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace runtime

void set_num_threads(int threads) {
  if (threads < 1 || threads > runtime::max_threads)
    throw ValueError(
        runtime::format("set_num_threads: threads is {}; it must be from 1 to {}", threads, runtime::max_threads));
  runtime::chosen_threads.store(threads, std::memory_order_relaxed);
}

int num_threads() {
  if (const int chosen = runtime::chosen_threads.load(std::memory_order_relaxed)) return chosen;
  // A bad variable is reported now, not at the first call that has several parts.
  runtime::read_settings();
  const int first = static_cast<int>(runtime::environment_integer("ATTN_NUM_THREADS", 1, runtime::max_threads)
                                         .value_or(std::min(runtime::cpu().cores, runtime::max_threads)));
  int chosen = 0;
  // Another thread may have chosen in the meantime; its choice is kept.
  return runtime::chosen_threads.compare_exchange_strong(chosen, first, std::memory_order_relaxed) ? first : chosen;
}

}  // namespace attn
