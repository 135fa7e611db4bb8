// src/runtime/pool.cc: runs a fixed number of parts on the caller and the workers, which spin briefly and then sleep.
#include "runtime/pool.h"

#include "runtime/between_parts.h"
#include "runtime/floating_point.h"
#include "runtime/futex.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <csignal>
#include <utility>

#include <sched.h>

namespace attn::runtime {
namespace {

constexpr int part_bits = 24;
constexpr std::uint64_t part_mask = (std::uint64_t{1} << part_bits) - 1;

/// `turn` returns true until `span` nanoseconds have passed. It reads the clock at every 32nd call.
class Spin {
 public:
  explicit Spin(std::int64_t span)
      : end_(std::chrono::steady_clock::now() + std::chrono::nanoseconds(span)), idle_(span <= 0) {}
  bool turn() {
    if (idle_) return false;
    spin_pause();
    return ++turns_ % 32 != 0 || std::chrono::steady_clock::now() < end_;
  }

 private:
  std::chrono::steady_clock::time_point end_;
  bool idle_;
  unsigned turns_ = 0;
};

/// Returns the signals that workers block. Signals sent to the process then reach the host's threads and never a
/// worker; faults and the profiler's signal still reach workers.
sigset_t signals_of_the_host() {
  sigset_t set;
  sigfillset(&set);
  for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF}) sigdelset(&set, own);
  return set;
}

/// Moves this thread off `core` and returns true if it was there and another core is allowed. Some schedulers wake a
/// worker on the caller's own core while another core idles. The worker then waits until the caller's time slice ends
/// (3 ms and more, on a virtual machine with Linux 6.18). A worker that finds this sets `woken_here_`; at the next
/// wake-up the caller yields, so that the workers there can run for the moment that they need to move.
bool leave_core(int core) {
  if (core < 0 || sched_getcpu() != core) return false;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<std::size_t>(core), &others);
  if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0) return false;
  sched_setaffinity(0, sizeof allowed, &allowed);
  return true;
}

}  // namespace

Pool& pool() {
  static constinit Pool the_pool;
  return the_pool;
}

// --- the owner of the pool -----------------------------------------------------------------------------------------

void Pool::run(const Job& job, int threads, std::int64_t spin_ns, bool bind, Team team) {
  const std::uint64_t epoch = publish(job, threads, spin_ns, bind);
  if (team) {
    team(
        [](void* self) {
          Pool& pool = *static_cast<Pool*>(self);
          pool.claim_parts(pool.ticket_.load(std::memory_order_acquire) >> part_bits);
        },
        this, threads);
  } else {
    news_.fetch_add(1, std::memory_order_seq_cst);
    // A worker that is about to sleep either is counted here, or sees the new value of news_.
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
      caller_core_.store(sched_getcpu(), std::memory_order_relaxed);
      const bool let_leave = woken_here_.exchange(false, std::memory_order_relaxed);
      futex_wake(news_, bind ? INT_MAX : static_cast<int>(std::min<std::uint32_t>(job.parts - 1, max_threads)));
      if (let_leave) sched_yield();
    }
  }
  if (bind) run_bound_parts(0, epoch);
  else claim_parts(epoch);
  wait_for_end(spin_ns);
}

std::uint64_t Pool::publish(const Job& job, int threads, std::int64_t spin_ns, bool bind) {
  const std::uint64_t epoch = (ticket_.load(std::memory_order_relaxed) >> part_bits) + 1;
  ticket_.store(epoch << part_bits, std::memory_order_relaxed);  // odd: no part can be claimed
  // These stores are releases: a worker that reads a new value also sees that the old job is closed, so its claim
  // fails.
  part_.store(job.part, std::memory_order_release);
  context_.store(job.context, std::memory_order_release);
  first_.store(job.first, std::memory_order_release);
  parts_.store(job.parts, std::memory_order_release);
  error_.store(job.error, std::memory_order_release);
  stride_.store(bind ? std::min(threads, workers_ + 1) : 0, std::memory_order_release);
  spin_ns_.store(spin_ns, std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  caller_sleeps_.store(false, std::memory_order_relaxed);
  remaining_.store(job.parts, std::memory_order_relaxed);
  ticket_.store((epoch + 1) << part_bits, std::memory_order_release);
  return epoch + 1;
}

void Pool::wait_for_end(std::int64_t spin_ns) {
  if (remaining_.load(std::memory_order_acquire) == 0) return;
  Spin spin(spin_ns);
  while (spin.turn())
    if (remaining_.load(std::memory_order_acquire) == 0) return;
  caller_sleeps_.store(true, std::memory_order_seq_cst);
  while (const std::uint32_t left = remaining_.load(std::memory_order_seq_cst)) futex_wait(remaining_, left);
}

void Pool::resize(int wanted) {
  if (wanted < workers_) {
    limit_.store(wanted, std::memory_order_release);
    news_.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(news_, INT_MAX);
    while (workers_ > wanted) pthread_join(threads_[static_cast<std::size_t>(workers_--)], nullptr);
  }
  if (workers_ == wanted) return;
  limit_.store(wanted, std::memory_order_release);
  started_at_.store(ticket_.load(std::memory_order_relaxed) >> part_bits, std::memory_order_release);
  const sigset_t hosts = signals_of_the_host();
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &hosts, &before);
  while (workers_ < wanted) {
    const std::intptr_t id = workers_ + 1;
    if (pthread_create(&threads_[static_cast<std::size_t>(id)], nullptr, worker_entry, reinterpret_cast<void*>(id)) !=
        0)
      break;
    ++workers_;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Pool::forget_threads() {
  workers_ = 0;
  limit_.store(0, std::memory_order_relaxed);
  sleepers_.store(0, std::memory_order_relaxed);
  remaining_.store(0, std::memory_order_relaxed);
  // Closes any job that the parent was running: with 0 parts there is nothing to claim.
  ticket_.store(((ticket_.load(std::memory_order_relaxed) >> part_bits | 1) + 1) << part_bits,
                std::memory_order_relaxed);
  parts_.store(0, std::memory_order_relaxed);
  owned_.store(false, std::memory_order_release);
}

// --- the threads that run parts ------------------------------------------------------------------------------------

void* Pool::worker_entry(void* id) {
  pthread_setname_np(pthread_self(), "attn");
  pool().work(static_cast<int>(reinterpret_cast<std::intptr_t>(id)));
  return nullptr;
}

void Pool::work(int id) {
  std::uint64_t seen = started_at_.load(std::memory_order_acquire);
  for (;;) {
    Spin spin(spin_ns_.load(std::memory_order_relaxed));
    std::uint32_t news;
    bool worked = false;
    do {
      news = news_.load(std::memory_order_acquire);
      if (id > limit_.load(std::memory_order_acquire)) return;
      const std::uint64_t epoch = ticket_.load(std::memory_order_acquire) >> part_bits;
      if (epoch == seen || epoch % 2 != 0) continue;
      seen = epoch;
      if (stride_.load(std::memory_order_acquire) > 0) run_bound_parts(id, epoch);
      else claim_parts(epoch);
      worked = true;
    } while (!worked && spin.turn());
    if (worked) continue;
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    futex_wait(news_, news);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    if (leave_core(caller_core_.load(std::memory_order_relaxed))) woken_here_.store(true, std::memory_order_relaxed);
  }
}

void Pool::claim_parts(std::uint64_t epoch) {
  DefaultFloatingPoint floating_point;
  InsidePart mark;
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (ticket >> part_bits == epoch) {
    const std::uint64_t next = ticket & part_mask;
    if (next >= parts_.load(std::memory_order_acquire)) return;
    const PartFunction part = part_.load(std::memory_order_acquire);
    void* context = context_.load(std::memory_order_acquire);
    const std::int64_t first = first_.load(std::memory_order_acquire);
    std::exception_ptr* error = error_.load(std::memory_order_acquire);
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    floating_point.enforce();
    run_part(part, context, first + static_cast<std::int64_t>(next), error);
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void Pool::run_bound_parts(int id, std::uint64_t epoch) {
  DefaultFloatingPoint floating_point;
  InsidePart mark;
  const int stride = stride_.load(std::memory_order_acquire);
  const std::uint32_t parts = parts_.load(std::memory_order_acquire);
  const PartFunction part = part_.load(std::memory_order_acquire);
  void* context = context_.load(std::memory_order_acquire);
  const std::int64_t first = first_.load(std::memory_order_acquire);
  std::exception_ptr* error = error_.load(std::memory_order_acquire);
  // A job stays open until all its parts have ended. A worker that has no part may have read fields of the next job, so
  // it leaves.
  if (id >= stride || ticket_.load(std::memory_order_acquire) >> part_bits != epoch) return;
  for (std::int64_t index = id; index < parts; index += stride) {
    floating_point.enforce();
    run_part(part, context, first + index, error);
  }
}

void Pool::run_part(PartFunction part, void* context, std::int64_t index, std::exception_ptr* error) {
  try {
    part(context, index);
  } catch (...) {
    if (!failed_.exchange(true, std::memory_order_relaxed)) *error = std::current_exception();
  }
  if (remaining_.fetch_sub(1, std::memory_order_seq_cst) == 1 && caller_sleeps_.load(std::memory_order_seq_cst))
    futex_wake(remaining_, 1);
  between_parts();
}

}  // namespace attn::runtime
