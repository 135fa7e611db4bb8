// tests/runtime/process_test.cc: forked children, processes started with other environments, and ends of processes.
#include "runtime/cpu.h"
#include "runtime/once.h"
#include "runtime/parallel.h"
#include "runtime/regions.h"

#include <attn/error.h>
#include <attn/runtime.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif
#endif

namespace attn::testing {
namespace {

struct Outcome {
  int code;
  std::string output;
};
/// A scene of child.cc in a new process with variables set.
Outcome play(const std::string& variables, const std::string& scene) {
  const std::string command = "timeout 60 env " + variables + " '" ATTN_TEST_CHILD "' " + scene + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  char buffer[4096];
  while (const std::size_t got = fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, got);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

TEST(Fork, AChildStartsAfresh) {
  set_num_threads(3);
  EXPECT_TRUE(region_works());
  for (int child = 0; child < 5; ++child) {
    EXPECT_EQ(in_fork([] { return region_works() && region_works() ? 7 : 1; }), 7);
    EXPECT_TRUE(region_works());
  }
}

TEST(Fork, AChildOfAChildToo) {
  set_num_threads(2);
  EXPECT_TRUE(region_works());
  EXPECT_EQ(in_fork([] { return region_works() && in_fork([] { return region_works() ? 7 : 1; }) == 7 ? 8 : 1; }), 8);
}

TEST(Fork, WhileOtherThreadsAreInRegions) {
  set_num_threads(2);
  std::atomic<bool> stop{false};
  std::vector<std::thread> users;
  for (int user = 0; user < 3; ++user)
    users.emplace_back([&] {
      while (!stop) region_works();
    });
  for (int child = 0; child < 20; ++child) EXPECT_EQ(in_fork([] { return region_works() ? 7 : 1; }), 7);
  stop = true;
  for (auto& user : users) user.join();
}

/// Whatever is made at its first use: a function's static would keep the child waiting for a thread that it has not.
TEST(Fork, WhileAThreadMakesWhatTheChildNeeds) {
  constinit static runtime::Once<int> value;
  std::atomic<bool> making{false}, forked{false};
  std::thread maker([&] {
    EXPECT_EQ(value.get([&] {
      making = true;
      while (!forked) std::this_thread::yield();
      return 3;
    }),
              3);
  });
  while (!making) std::this_thread::yield();
  EXPECT_EQ(in_fork([&] { return value.get([] { return 7; }); }), 7);
  forked = true;
  maker.join();
  EXPECT_EQ(value.get([] { return 4; }), 3);
}

TEST(Once, IsMadeOnceForAllAndAgainAfterAnException) {
  constinit static runtime::Once<std::string> value;
  EXPECT_THROW(value.get([]() -> std::string { throw ValueError("not yet"); }), ValueError);
  std::vector<std::thread> threads;
  std::atomic<const std::string*> seen{nullptr};
  std::atomic<int> strangers{0};
  for (int n = 0; n < 8; ++n)
    threads.emplace_back([&, n] {
      const std::string* mine = &value.get([n] { return std::to_string(n); });
      const std::string* first = nullptr;
      if (!seen.compare_exchange_strong(first, mine) && first != mine) ++strangers;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(strangers, 0);
  EXPECT_EQ(value.get([] { return std::string("late"); }).size(), 1u);
}

TEST(Fork, AChildThatExitsNormallyDoesNotWaitForThreadsItHasNot) {
  set_num_threads(2);
  EXPECT_TRUE(region_works());
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    std::exit(region_works() ? 7 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

// --- in a process of its own (child.cc) ----------------------------------------------------------------------------

TEST(Environment, ThreadsComeFromAttnNumThreads) { EXPECT_EQ(play("ATTN_NUM_THREADS=3", "three_threads").code, 0); }

TEST(Environment, WrongValuesAreNamed) {
  const struct {
    const char *variables, *text;
  } cases[] = {
      {"ATTN_NUM_THREADS=many", "<ATTN_NUM_THREADS is \"many\"; it must be a whole number from 1 to 1024>"},
      {"ATTN_NUM_THREADS=0", "<ATTN_NUM_THREADS is \"0\"; it must be a whole number from 1 to 1024>"},
      {"ATTN_NUM_THREADS=2x", "<ATTN_NUM_THREADS is \"2x\"; it must be a whole number from 1 to 1024>"},
      {"ATTN_NUM_THREADS=99999999999999999999",
       "<ATTN_NUM_THREADS is \"99999999999999999999\"; it must be a whole number from 1 to 1024>"},
      {"ATTN_NUM_THREADS=1 ATTN_SPIN_US=x", "<ATTN_SPIN_US is \"x\"; it must be a whole number from 0 to 1000000>"},
      {"ATTN_NUM_THREADS=2 ATTN_SPIN_US=-1", "<ATTN_SPIN_US is \"-1\"; it must be a whole number from 0 to 1000000>"},
      {"ATTN_NUM_THREADS=2 ATTN_DEBUG_BIND_PARTS=yes", "<ATTN_DEBUG_BIND_PARTS is \"yes\"; it must be 0 or 1>"},
      {"ATTN_TARGET=sse9", "<ATTN_TARGET is \"sse9\"; kernels that can run here: "},
  };
  for (const auto& c : cases)
    EXPECT_NE(play(c.variables, "error_text").output.find(c.text), std::string::npos) << c.variables;
}

TEST(Environment, TheTargetIsReadInAnyCase) { EXPECT_EQ(play("ATTN_TARGET=SCALAR", "scalar_target").code, 0); }
TEST(Environment, SpinMayBeNone) { EXPECT_EQ(play("ATTN_SPIN_US=0 ATTN_NUM_THREADS=3", "region").code, 0); }
TEST(Environment, PartsCanBeBoundToThreads) { EXPECT_EQ(play("ATTN_DEBUG_BIND_PARTS=1", "bound_parts").code, 0); }
TEST(EndOfProcess, ExitFromInsideAPart) { EXPECT_EQ(play("ATTN_NUM_THREADS=2", "exit_inside_a_part").code, 7); }
TEST(EndOfProcess, LateDestructorsHaveScratchOfTheirOwn) {
  EXPECT_EQ(play("ATTN_NUM_THREADS=2", "late_destructors").code, 0);
}
TEST(Borrowing, ALoadedLibgompLendsItsTeam) {
  const Outcome outcome = play("OMP_WAIT_POLICY=passive", "openmp_team");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

// --- what the machine is --------------------------------------------------------------------------------------------

TEST(Machine, InfoIsFilledIn) {
  const Info all = info();
  EXPECT_EQ(all.version, version());
  EXPECT_EQ(all.numerics_version, 2);
  EXPECT_FALSE(all.cpu.empty());
  EXPECT_GE(all.cores, 1);
  EXPECT_EQ(all.threads, num_threads());
  EXPECT_EQ(all.targets.back(), "scalar");
  EXPECT_EQ(all.target, runtime::target());
  EXPECT_FALSE(all.compiler.empty());
}

#if defined(__x86_64__)
TEST(Machine, FlagsAgreeWithTheCompilersRuntime) {
  EXPECT_EQ(runtime::cpu().fma, static_cast<bool>(__builtin_cpu_supports("fma")));
  EXPECT_EQ(runtime::cpu().avx2, static_cast<bool>(__builtin_cpu_supports("avx2")));
  EXPECT_EQ(runtime::cpu().avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                       __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                                       __builtin_cpu_supports("avx512vl"));
}
#endif

TEST(Machine, ATargetIsChosenByNameInAnyCase) {
  const std::vector<std::string> available = {"avx512", "avx2", "scalar"};
  EXPECT_EQ(runtime::choose_target("Avx2", available), "avx2");
  EXPECT_EQ(runtime::choose_target("SCALAR", available), "scalar");
  try {
    runtime::choose_target("neon", available);
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_STREQ(error.what(), "ATTN_TARGET is \"neon\"; kernels that can run here: avx512, avx2, scalar");
  }
}

}  // namespace
}  // namespace attn::testing
