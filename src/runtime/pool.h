// src/runtime/pool.h: declares the worker threads and the job that they share; parallel.cc decides who may use them.
#pragma once
#include "runtime/run_alone.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>

namespace attn::runtime {

/// Runs one job at a time. The caller must own the pool (`try_own`). Nothing here allocates, except starting workers.
/// All state that outlives a call is atomic or belongs to the owner, so a forked child can reset it by plain writes
/// (`forget_threads`).
class Pool {
 public:
  bool try_own() { return !owned_.exchange(true, std::memory_order_acquire); }
  void disown() { owned_.store(false, std::memory_order_release); }

  /// Starts or ends workers until there are `wanted`, or fewer if the system refuses a thread. Only for the owner.
  void resize(int wanted);
  int workers() const { return workers_; }

  struct Job {
    PartFunction part;
    void* context;
    std::int64_t first;  // index of the first part
    std::uint32_t parts;
    std::exception_ptr* error;  // receives the first exception
  };
  /// The largest number of parts in a job: the ticket has 24 bits for the next part.
  static constexpr std::int64_t max_round = (1 << 24) - 1;

  /// Runs a job and waits for its end. Only for the owner. `bind`: participant i of n runs parts i, i + n, ... (for
  /// the thread sanitizer). `team`: its borrowed threads take part instead of the workers.
  using Team = void (*)(void (*member)(void* pool), void* pool, int threads);
  void run(const Job& job, int threads, std::int64_t spin_ns, bool bind, Team team);

  /// Resets the pool in a forked child, where its threads do not exist.
  void forget_threads();

 private:
  static void* worker_entry(void* id);
  void work(int id);
  std::uint64_t publish(const Job& job, int threads, std::int64_t spin_ns, bool bind);
  void claim_parts(std::uint64_t epoch);
  void run_bound_parts(int id, std::uint64_t epoch);
  void run_part(PartFunction part, void* context, std::int64_t index, std::exception_ptr* error);
  void wait_for_end(std::int64_t spin_ns);

  std::atomic<bool> owned_{false};
  int workers_ = 0;
  std::array<pthread_t, max_threads> threads_{};

  // The job. Its epoch is odd while it is being written. A claim is one compare-exchange on the epoch and the next
  // part, so a worker that comes late can never take a part of another job.
  alignas(64) std::atomic<std::uint64_t> ticket_{0};  // epoch << 24 | next part
  std::atomic<PartFunction> part_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<std::int64_t> first_{0};
  std::atomic<std::uint32_t> parts_{0};
  std::atomic<std::exception_ptr*> error_{nullptr};
  std::atomic<int> stride_{0};  // the number of participants if parts are bound to them, else 0
  std::atomic<bool> failed_{false};

  // the number of parts that have not ended; the caller sleeps on it
  alignas(64) std::atomic<std::uint32_t> remaining_{0};
  std::atomic<bool> caller_sleeps_{false};

  alignas(64) std::atomic<std::uint32_t> news_{0};  // changes with a new job or limit_; workers sleep on it
  std::atomic<int> sleepers_{0};
  std::atomic<int> caller_core_{-1};          // the core of the thread that last woke workers
  std::atomic<bool> woken_here_{false};       // whether one or more of them woke on that core
  std::atomic<int> limit_{0};                 // workers with a larger id end
  std::atomic<std::uint64_t> started_at_{0};  // the last job before new workers started; they skip it
  std::atomic<std::int64_t> spin_ns_{0};
};

Pool& pool();

}  // namespace attn::runtime
