// src/bench/measure.h: measures the time of a case, and samples the machine's limit in between.
#pragma once
#include "bench/work.h"

namespace attn::bench {

struct Measured {
  cases::Case of;
  double median_us = 0;
  int samples = 0;
  // 0: not counted. For additive scores, gflops are 10^9 tanh a second and are compared with no limit.
  double gflops = 0, gbs = 0;
  double peak_gflops = 0, peak_gbs = 0;  // the limit that the row is compared with; the other is 0
  double fraction = 0;
};

struct MeasureOptions {
  double seconds = 0.5;  // sampling ends after this time or 2000 samples, but not before `samples` samples
  int samples = 15;
};

/// Alternates samples of the limit and of the case; returns the medians of both.
Measured measure(Work& work, const MeasureOptions& options);

/// Returns the seconds of one call, averaged over several calls if one is too short for the clock.
double time_of_call(Work& work);

struct Environment {
  double fma_f32_gflops = 0, fma_f64_gflops = 0, dot_bf16_gflops = 0, read_gbs = 0, hand_over_ns = 0;
  double load = 0;  // load average of the system over the last minute
};
Environment measure_environment();

}  // namespace attn::bench
