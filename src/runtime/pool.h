// src/runtime/pool.h: the worker threads and the job they share; parallel.cc decides who may use them.
#pragma once
#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>

namespace attn::runtime {

using PartFunction = void (*)(void* context, std::int64_t index);

inline constexpr int max_threads = 1024;

/// One job at a time: its caller must own the pool (`try_own`). Nothing here allocates, and everything that outlives a
/// call is an atomic or the owner's, so a forked child can start afresh by writing zeros (`forget_threads`).
class Pool {
 public:
  bool try_own() { return !owned_.exchange(true, std::memory_order_acquire); }
  void disown() { owned_.store(false, std::memory_order_release); }

  /// Starts or ends workers until there are `wanted` (fewer when the system refuses a thread). Owner only.
  void resize(int wanted);
  int workers() const { return workers_; }

  struct Job {
    PartFunction part;
    void* context;
    std::int64_t first;  // index of the round's first part
    std::uint32_t parts;
    std::exception_ptr* error;  // receives the first exception
  };
  /// At most this many parts a round: the ticket has 24 bits for the next part.
  static constexpr std::int64_t max_round = (1 << 24) - 1;

  /// Runs a round and waits for its end. Owner only. `bind`: participant i runs parts i, i + n, ... (for the thread
  /// sanitizer). `team`: borrowed threads take part instead of the workers.
  using Team = void (*)(void (*member)(void* pool), void* pool, int threads);
  void run(const Job& job, int threads, std::int64_t spin_ns, bool bind, Team team);

  /// In a forked child: the threads are not there.
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

  // The job. Its epoch is odd while it is written; a claim is a compare-exchange on epoch and next part together, so a
  // worker that comes late can never take a part of another job.
  alignas(64) std::atomic<std::uint64_t> ticket_{0};  // epoch << 24 | next part
  std::atomic<PartFunction> part_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<std::int64_t> first_{0};
  std::atomic<std::uint32_t> parts_{0};
  std::atomic<std::exception_ptr*> error_{nullptr};
  std::atomic<int> stride_{0};  // participants when parts are bound to them, else 0
  std::atomic<bool> failed_{false};

  alignas(64) std::atomic<std::uint32_t> remaining_{0};  // parts not yet ended; the caller sleeps on it
  std::atomic<bool> caller_sleeps_{false};

  alignas(64) std::atomic<std::uint32_t> news_{0};  // counts publications; workers sleep on it
  std::atomic<int> sleepers_{0};
  std::atomic<int> caller_core_{-1};          // of who last woke workers
  std::atomic<bool> woken_here_{false};       // one or more of them on that core, the last time
  std::atomic<int> limit_{0};                 // workers with a larger id end
  std::atomic<std::uint64_t> started_at_{0};  // the last epoch that new workers have nothing to do with
  std::atomic<std::int64_t> spin_ns_{0};
};

Pool& pool();

/// True while this thread runs a part of a shared job: its own calls run in itself.
bool inside_part();

/// Runs all parts in this thread under the same rules.
void run_alone(PartFunction part, void* context, std::int64_t parts);

}  // namespace attn::runtime
