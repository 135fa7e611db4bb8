// tests/runtime/parallel_test.cc: every part runs once, on any thread, and errors find their way back.
#include "runtime/parallel.h"
#include "runtime/shares.h"

#include <attn/error.h>
#include <attn/runtime.h>
#include <gtest/gtest.h>

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace attn {
namespace {

using runtime::parallel_for;

/// The number of threads for the length of a test.
class Threads {
 public:
  explicit Threads(int threads) : before_(num_threads()) { set_num_threads(threads); }
  ~Threads() { set_num_threads(before_); }

 private:
  int before_;
};

/// Parts that did not run exactly once.
enum class Shared : bool { one_by_one, with_neighbours };

/// Parts that did not run exactly once.
std::int64_t wrong_counts(std::int64_t parts, Shared shared = Shared::one_by_one) {
  const auto runs = std::make_unique<std::atomic<int>[]>(static_cast<std::size_t>(parts));
  const auto run = [&](std::int64_t i) { runs[static_cast<std::size_t>(i)].fetch_add(1, std::memory_order_relaxed); };
  shared == Shared::one_by_one ? parallel_for(parts, run) : runtime::parallel_for_neighbours(parts, run);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < parts; ++i) wrong += runs[static_cast<std::size_t>(i)].load() != 1;
  return wrong;
}

TEST(ParallelFor, RunsEachPartOnce) {
  for (int threads : {1, 2, 3, 8}) {
    const Threads set(threads);
    for (std::int64_t parts : {1, 2, 3, 7, 8, 9, 64, 1000, 100000})
      EXPECT_EQ(wrong_counts(parts), 0) << threads << " threads, " << parts << " parts";
  }
}

TEST(ParallelFor, NeighboursRunOnceToo) {
  for (int threads : {1, 2, 3, 8, 9, 40}) {
    const Threads set(threads);
    for (std::int64_t parts : {0, 1, 2, 3, 7, 8, 9, 41, 64, 1000, 100000})
      EXPECT_EQ(wrong_counts(parts, Shared::with_neighbours), 0) << threads << " threads, " << parts << " parts";
    parallel_for(5, [&](std::int64_t) {
      EXPECT_EQ(wrong_counts(100, Shared::with_neighbours), 0) << threads << " threads, nested";
    });
  }
}

TEST(ParallelFor, OneThreadTakesTheOthersNeighbours) {
  runtime::Shares shares(100, 3);
  std::vector<std::int64_t> taken;
  shares.run_from(1, [&](std::int64_t part) { taken.push_back(part); });
  ASSERT_EQ(taken.size(), 100u);
  EXPECT_EQ(taken.front(), 33);
  EXPECT_EQ(taken[33], 66);
  EXPECT_EQ(taken[67], 0);
  EXPECT_EQ(taken.back(), 32);
  for (const std::int64_t own : {0, 1, 2}) shares.run_from(own, [](std::int64_t part) { FAIL() << part; });
}

TEST(ParallelFor, RunsEachPartOnceInManySmallRegions) {
  for (int threads : {2, 3, 8}) {
    const Threads set(threads);
    for (int round = 0; round < 2000; ++round)
      ASSERT_EQ(wrong_counts(1 + round % 9), 0) << threads << " threads, round " << round;
  }
}

TEST(ParallelFor, PlainWritesOfPartsAreSeenByTheCaller) {
  const Threads set(3);
  std::vector<std::int64_t> squares(10000);
  for (int round = 0; round < 50; ++round) {
    std::fill(squares.begin(), squares.end(), -1);
    parallel_for(10000, [&](std::int64_t i) { squares[static_cast<std::size_t>(i)] = i * i + round; });
    for (std::int64_t i = 0; i < 10000; ++i) ASSERT_EQ(squares[static_cast<std::size_t>(i)], i * i + round);
  }
}

TEST(ParallelFor, NoPartsIsNoWork) {
  parallel_for(0, [](std::int64_t) { FAIL(); });
  parallel_for(-5, [](std::int64_t) { FAIL(); });
}

TEST(ParallelFor, SharesWorkAmongThreads) {
  const Threads set(3);
  std::mutex lock;
  std::set<std::thread::id> who;
  parallel_for(12, [&](std::int64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::lock_guard guard(lock);
    who.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(who.size(), 3u);
}

TEST(ParallelFor, MoreThanOneRoundOfParts) {
  const Threads set(2);
  constexpr std::int64_t parts = (1 << 24) + 5;
  std::atomic<std::int64_t> sum{0}, count{0};
  std::atomic<bool> late{false};
  parallel_for(parts, [&](std::int64_t i) {
    if (i < (1 << 24) - 3) return;
    sum += i;
    ++count;
    if (i >= parts) late = true;
  });
  EXPECT_EQ(count, 8);
  EXPECT_EQ(sum, 8 * std::int64_t{(1 << 24) - 3} + 28);
  EXPECT_FALSE(late);
}

TEST(ParallelFor, NestedCallsRunInTheirPart) {
  const Threads set(3);
  std::atomic<int> runs{0}, strangers{0};
  parallel_for(6, [&](std::int64_t) {
    const auto self = std::this_thread::get_id();
    parallel_for(10, [&](std::int64_t) {
      parallel_for(3, [&](std::int64_t) { ++runs; });
      strangers += std::this_thread::get_id() != self;
    });
  });
  EXPECT_EQ(runs, 180);
  EXPECT_EQ(strangers, 0);
}

TEST(ParallelFor, ManyUserThreadsAtOnce) {
  const Threads set(2);
  std::vector<std::thread> users;
  std::atomic<std::int64_t> wrong{0};
  for (int user = 0; user < 8; ++user)
    users.emplace_back([&] {
      for (int round = 0; round < 300; ++round) wrong += wrong_counts(1 + round % 17);
    });
  for (auto& user : users) user.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ParallelFor, ThreadCountChangesWhileOthersRun) {
  const Threads set(2);
  std::atomic<bool> stop{false};
  std::thread changer([&] {
    for (int threads = 1; !stop; threads = threads % 8 + 1) {
      set_num_threads(threads);
      std::this_thread::yield();
    }
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (std::chrono::steady_clock::now() < end) EXPECT_EQ(wrong_counts(20), 0);
  stop = true;
  changer.join();
}

TEST(ParallelFor, TheFirstExceptionReachesTheCallerAfterAllParts) {
  for (int threads : {1, 2, 3, 8}) {
    const Threads set(threads);
    std::atomic<int> ended{0}, thrown{0};
    int order_of_caught = -1;
    try {
      parallel_for(50, [&](std::int64_t i) {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
        ++ended;
        if (i % 5 == 1) throw ValueError(std::to_string(thrown++));
      });
      FAIL() << "no exception";
    } catch (const ValueError& error) { order_of_caught = std::stoi(error.what()); }
    EXPECT_EQ(ended, 50);
    EXPECT_EQ(thrown, 10);
    // With one thread the first is the first; with more, each thread's first is a candidate.
    EXPECT_LT(order_of_caught, threads);
    EXPECT_EQ(wrong_counts(20), 0);
  }
}

TEST(ParallelFor, AnExceptionOfANestedCallGoesThroughBoth) {
  const Threads set(2);
  EXPECT_THROW(
      parallel_for(4, [](std::int64_t) { parallel_for(4, [](std::int64_t) { throw std::out_of_range("deep"); }); }),
      std::out_of_range);
}

TEST(ParallelFor, WorksAfterALongSleep) {
  const Threads set(2);
  for (int round = 0; round < 5; ++round) {
    EXPECT_EQ(wrong_counts(100), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

#if defined(__linux__)
TEST(ParallelFor, WorkersThatWereWokenMayRunWhereTheyMightBefore) {
  const Threads set(3);
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
  std::atomic<int> elsewhere{0}, parts{0};
  for (int round = 0; round < 60; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    parallel_for(6, [&](std::int64_t) {
      cpu_set_t allowed;
      elsewhere += sched_getaffinity(0, sizeof allowed, &allowed) != 0 || !CPU_EQUAL(&allowed, &mine);
      ++parts;
      const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(100);
      while (std::chrono::steady_clock::now() < end) {}
    });
  }
  EXPECT_EQ(elsewhere, 0);
  EXPECT_EQ(parts, 60 * 6);
}
#endif

TEST(ParallelFor, SleepingWorkersBurnNothing) {
  const Threads set(2);
  EXPECT_EQ(wrong_counts(100), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  timespec before{}, after{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double burnt =
      static_cast<double>(after.tv_sec - before.tv_sec) + 1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
  EXPECT_LT(burnt, 0.02);
}

TEST(ParallelFor, OversubscriptionEnds) {
  const Threads set(64);
  for (int round = 0; round < 20; ++round) EXPECT_EQ(wrong_counts(500), 0);
}

TEST(NumThreads, IsWhatWasSet) {
  const Threads set(5);
  EXPECT_EQ(num_threads(), 5);
}

TEST(NumThreads, RefusesWhatCannotBe) {
  for (int threads : {0, -1, 1025}) {
    try {
      set_num_threads(threads);
      FAIL() << threads;
    } catch (const ValueError& error) {
      EXPECT_EQ(error.what(), "set_num_threads: threads is " + std::to_string(threads) + "; it must be from 1 to 1024");
    }
  }
}

}  // namespace
}  // namespace attn
