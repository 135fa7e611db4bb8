// tests/runtime/process_test.cc: forked children, processes started with other environments, and ends of processes.
#include "runtime/cpu.h"
#include "runtime/parallel.h"

#include <attn/error.h>
#include <attn/runtime.h>
#include <dlfcn.h>
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

namespace attn {
namespace {

bool region_works() {
  std::atomic<int> runs{0};
  runtime::parallel_for(100, [&](std::int64_t) { ++runs; });
  return runs == 100;
}

/// Exit code of a child that runs `body`; -1 when a signal (or the alarm after 20 s) ended it.
template <typename F>
int in_fork(F body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    std::_Exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct Outcome {
  int code;
  std::string output;
};
/// This program again, with variables set, running one of the disabled tests below.
Outcome run_again(const std::string& variables, const std::string& test) {
  char self[4096];
  const auto length = readlink("/proc/self/exe", self, sizeof self);
  const std::string command = "timeout 60 env " + variables + " '" + std::string(self, static_cast<std::size_t>(length)) +
                              "' --gtest_also_run_disabled_tests --gtest_filter=InOtherProcess.DISABLED_" + test + " 2>&1";
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

// --- started by the tests below, in a process of their own ----------------------------------------------------------

TEST(InOtherProcess, DISABLED_Region) { EXPECT_TRUE(region_works()); }
TEST(InOtherProcess, DISABLED_ThreeThreads) {
  EXPECT_EQ(num_threads(), 3);
  EXPECT_TRUE(region_works());
}
TEST(InOtherProcess, DISABLED_ErrorText) {
  try {
    region_works();
    runtime::target();
  } catch (const ValueError& error) {
    std::printf("<%s>", error.what());
  }
}
TEST(InOtherProcess, DISABLED_ScalarTarget) { EXPECT_EQ(info().target, "scalar"); }
TEST(InOtherProcess, DISABLED_BoundParts) {
  set_num_threads(3);
  // Part i belongs to participant i: three parts that all wait for each other need three threads.
  std::atomic<int> here{0};
  runtime::parallel_for(3, [&](std::int64_t) {
    ++here;
    while (here < 3) std::this_thread::yield();
  });
  std::vector<std::thread::id> first(6), second(6);
  runtime::parallel_for(6, [&](std::int64_t i) { first[static_cast<std::size_t>(i)] = std::this_thread::get_id(); });
  runtime::parallel_for(6, [&](std::int64_t i) { second[static_cast<std::size_t>(i)] = std::this_thread::get_id(); });
  EXPECT_EQ(first, second);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(first[i], first[i + 3]);
  EXPECT_NE(first[0], first[1]);
  EXPECT_EQ(first[0], std::this_thread::get_id());
}
TEST(InOtherProcess, DISABLED_ExitInsideAPart) {
  set_num_threads(2);
  runtime::parallel_for(2, [](std::int64_t i) {
    if (i == 1) std::exit(7);  // by whichever thread has claimed it
  });
}
TEST(InOtherProcess, DISABLED_BorrowedTeam) {
  // Loaded here, so that it is a process that has libgomp; skipped where there is none.
  if (!dlopen("libgomp.so.1", RTLD_NOW)) GTEST_SKIP() << "no libgomp";
  set_num_threads(3);
  for (int round = 0; round < 300; ++round) ASSERT_TRUE(region_works());
  EXPECT_THROW(runtime::parallel_for(5, [](std::int64_t i) { if (i == 3) throw ValueError("part"); }), ValueError);
  EXPECT_EQ(in_fork([] { return region_works() ? 7 : 1; }), 7);
}

TEST(Environment, ThreadsComeFromAttnNumThreads) { EXPECT_EQ(run_again("ATTN_NUM_THREADS=3", "ThreeThreads").code, 0); }

TEST(Environment, WrongValuesAreNamed) {
  const struct {
    const char *variables, *text;
  } cases[] = {
      {"ATTN_NUM_THREADS=many", "<ATTN_NUM_THREADS is \"many\"; it must be a whole number from 1 to 1024>"},
      {"ATTN_NUM_THREADS=0", "<ATTN_NUM_THREADS is \"0\"; it must be a whole number from 1 to 1024>"},
      {"ATTN_NUM_THREADS=2x", "<ATTN_NUM_THREADS is \"2x\"; it must be a whole number from 1 to 1024>"},
      {"ATTN_NUM_THREADS=99999999999999999999", "<ATTN_NUM_THREADS is \"99999999999999999999\"; it must be a whole number from 1 to 1024>"},
      {"ATTN_NUM_THREADS=2 ATTN_SPIN_US=-1", "<ATTN_SPIN_US is \"-1\"; it must be a whole number from 0 to 1000000>"},
      {"ATTN_NUM_THREADS=2 ATTN_DEBUG_BIND_PARTS=yes", "<ATTN_DEBUG_BIND_PARTS is \"yes\"; it must be 0 or 1>"},
      {"ATTN_TARGET=sse9", "<ATTN_TARGET is \"sse9\"; kernels that can run here: "},
  };
  for (const auto& c : cases) EXPECT_NE(run_again(c.variables, "ErrorText").output.find(c.text), std::string::npos) << c.variables;
}

TEST(Environment, TheTargetIsReadInAnyCase) { EXPECT_EQ(run_again("ATTN_TARGET=SCALAR", "ScalarTarget").code, 0); }
TEST(Environment, SpinMayBeNone) { EXPECT_EQ(run_again("ATTN_SPIN_US=0 ATTN_NUM_THREADS=3", "Region").code, 0); }
TEST(Environment, PartsCanBeBoundToThreads) { EXPECT_EQ(run_again("ATTN_DEBUG_BIND_PARTS=1", "BoundParts").code, 0); }
TEST(EndOfProcess, ExitFromInsideAPart) { EXPECT_EQ(run_again("ATTN_NUM_THREADS=2", "ExitInsideAPart").code, 7); }
TEST(Borrowing, ALoadedLibgompLendsItsTeam) {
  const Outcome outcome = run_again("OMP_WAIT_POLICY=passive", "BorrowedTeam");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

// --- what the machine is --------------------------------------------------------------------------------------------

TEST(Machine, InfoIsFilledIn) {
  const Info all = info();
  EXPECT_EQ(all.version, version());
  EXPECT_EQ(all.numerics_version, 1);
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
  EXPECT_EQ(runtime::cpu().avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
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
}  // namespace attn
