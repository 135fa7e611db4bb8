// tests/runtime/child.cc: scenes that need a process of their own, with variables set: child <scene>; process_test.cc
// starts them.
#include "runtime/call_scratch.h"
#include "runtime/cpu.h"
#include "runtime/memory.h"
#include "runtime/thread_scratch.h"
#include "runtime/parallel.h"
#include "runtime/regions.h"

#include <attn/error.h>
#include <attn/runtime.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace attn::testing {
namespace {

/// Ends the process with 1, and says what did not hold.
void need(bool holds, const char* what) {
  if (holds) return;
  std::printf("does not hold: %s\n", what);
  std::exit(1);
}

void region() { need(region_works(), "a region runs all its parts"); }

void three_threads() {
  need(num_threads() == 3, "three threads");
  region();
}

void error_text() {
  try {
    region_works();
    runtime::target();
  } catch (const ValueError& error) { std::printf("<%s>", error.what()); }
}

void scalar_target() { need(info().target == "scalar", "the target is scalar"); }

void bound_parts() {
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
  need(first == second, "the same threads the second time");
  for (std::size_t i = 0; i < 3; ++i) need(first[i] == first[i + 3], "part i + 3 on the thread of part i");
  need(first[0] != first[1], "parts 0 and 1 on two threads");
  need(first[0] == std::this_thread::get_id(), "part 0 in the caller");
}

void exit_inside_a_part() {
  set_num_threads(2);
  runtime::parallel_for(2, [](std::int64_t i) {
    if (i == 1) std::exit(7);  // by whichever thread has claimed it
  });
}

void openmp_team() {
  // Loaded here, so that it is a process that has libgomp.
  if (!dlopen("libgomp.so.1", RTLD_NOW)) {
    std::puts("no libgomp");
    return;
  }
  set_num_threads(3);
  for (int round = 0; round < 300; ++round) region();
  bool caught = false;
  try {
    runtime::parallel_for(5, [](std::int64_t i) {
      if (i == 3) throw ValueError("part");
    });
  } catch (const ValueError&) { caught = true; }
  need(caught, "the exception of a part reaches the caller");
  need(in_fork([] { return region_works() ? 7 : 1; }) == 7, "a forked child has regions of its own");
}

/// Made before the library's variables of its thread, so destroyed after them.
struct Late {
  bool wanted = false;
  ~Late() {
    if (!wanted) return;
    constexpr std::size_t bytes = std::size_t{1} << 20;  // kept for the next of its size when it is freed
    void* const blocks[] = {runtime::thread_scratch(bytes), runtime::call_scratch(bytes), runtime::allocate(bytes),
                            runtime::allocate(bytes)};
    for (void* const& block : blocks) {
      std::memset(block, 1, bytes);
      for (void* const& other : blocks)
        if (&block != &other && block == other) {
          std::puts("does not hold: scratch is nobody else's");
          std::fflush(stdout);
          std::_Exit(1);
        }
    }
    runtime::deallocate(blocks[2]), runtime::deallocate(blocks[3]);
  }
};
Late late_of_process;
thread_local Late late_of_thread;

void late_destructors() {
  const auto use = [] {
    late_of_thread.wanted = true;
    runtime::thread_scratch(std::size_t{1} << 20);
    runtime::call_scratch(std::size_t{1} << 20);
  };
  std::thread(use).join();
  late_of_process.wanted = true;
  use();
}

const struct {
  const char* name;
  void (*play)();
} scenes[] = {{"region", region},           {"three_threads", three_threads},
              {"error_text", error_text},   {"scalar_target", scalar_target},
              {"bound_parts", bound_parts}, {"exit_inside_a_part", exit_inside_a_part},
              {"openmp_team", openmp_team}, {"late_destructors", late_destructors}};

}  // namespace
}  // namespace attn::testing

int main(int argc, char** argv) {
  for (const auto& scene : attn::testing::scenes)
    if (argc == 2 && std::string(argv[1]) == scene.name) {
      scene.play();
      return 0;
    }
  std::puts("child: there is no such scene");
  return 2;
}
