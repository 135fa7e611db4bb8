// src/bench/measure.cc: takes alternating samples of a case and of the machine's limit, and their medians.
#include "bench/measure.h"

#include "bench/clock.h"

#include <cstdlib>
#include <thread>

namespace attn::bench {
namespace {

/// A sample that would be shorter runs several calls, so that the clock and the loop that samples the limit have no
/// effect.
constexpr double shortest_sample = 300e-6;
constexpr int most_samples = 2000;

}  // namespace

double time_of_call(Work& work) {
  if (work.of().idle_us > 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(work.of().idle_us));
    const double begin = now();
    work.call();
    return now() - begin;
  }
  const double begin = now();
  // The clock is read after 1, 2, 4 ... calls, because one reading takes a twentieth of the shortest call.
  for (int calls = 0, wanted = 1;; wanted *= 2) {
    for (; calls < wanted; ++calls) work.call();
    if (const double time = now() - begin; time >= shortest_sample) return time / calls;
  }
}

Measured measure(Work& work, const MeasureOptions& options) {
  std::vector<double> times, limits;
  work.call();
  const double end = now() + options.seconds;
  while (static_cast<int>(times.size()) < options.samples ||
         (now() < end && static_cast<int>(times.size()) < most_samples)) {
    limits.push_back(work.limit() == Limit::read ? sample_read(work.next_memory()) : sample_arithmetic(work.limit()));
    if (work.of().idle_us == 0 && work.limit() != Limit::read) work.call();  // brings its memory back to the caches
    times.push_back(time_of_call(work));
  }
  Measured m{.of = work.of(), .median_us = median(times) * 1e6, .samples = static_cast<int>(times.size())};
  m.gflops = work.flops() / m.median_us * 1e-3;
  m.gbs = work.bytes() / m.median_us * 1e-3;
  if (work.of().score == "additive") return m;
  (work.limit() == Limit::read ? m.peak_gbs : m.peak_gflops) = median(limits);
  m.fraction = work.limit() == Limit::read ? m.gbs / m.peak_gbs : m.gflops / m.peak_gflops;
  return m;
}

Environment measure_environment() {
  const auto arithmetic = [](Limit limit) {
    if (!exists(limit)) return 0.0;
    std::vector<double> samples;
    for (int n = 0; n < 9; ++n) samples.push_back(sample_arithmetic(limit));
    return median(samples);
  };
  Environment e{.fma_f32_gflops = arithmetic(Limit::fma_f32),
                .fma_f64_gflops = arithmetic(Limit::fma_f64),
                .dot_bf16_gflops = arithmetic(Limit::dot_bf16)};
  std::vector<double> reads, trips;
  for (int n = 0; n < 8; ++n) reads.push_back(sample_read(memory_in_turn()));
  for (int n = 0; n < 3; ++n) trips.push_back(sample_hand_over());
  e.read_gbs = median(reads);
  e.hand_over_ns = median(trips);
  double load[1] = {0};
  if (getloadavg(load, 1) == 1) e.load = load[0];
  return e;
}

}  // namespace attn::bench
