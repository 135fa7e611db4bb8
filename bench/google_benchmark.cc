// bench/google_benchmark.cc: the rows of attn bench under Google Benchmark, for its filters, repetitions and
// comparisons.
#include "bench/work.h"
#include "verify/case.h"

#include <benchmark/benchmark.h>

#include <chrono>
#include <memory>
#include <thread>

namespace {

void run(benchmark::State& state, const std::string& line) {
  attn::bench::Work work(attn::cases::parse_case(line));
  work.call();
  for (auto _ : state) {
    if (work.of().idle_us > 0) {
      state.PauseTiming();
      std::this_thread::sleep_for(std::chrono::microseconds(work.of().idle_us));
      state.ResumeTiming();
    }
    work.call();
  }
  using benchmark::Counter;
  if (work.flops() > 0) state.counters["FLOP/s"] = Counter(work.flops(), Counter::kIsIterationInvariantRate);
  if (work.bytes() > 0) state.counters["B/s"] = Counter(work.bytes(), Counter::kIsIterationInvariantRate);
}

}  // namespace

int main(int argc, char** argv) {
  for (const std::string& line : attn::cases::case_lines(attn::cases::bench))
    benchmark::RegisterBenchmark(line.c_str(), [line](benchmark::State& state) { run(state, line); })
        ->Unit(benchmark::kMicrosecond)
        ->UseRealTime();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
