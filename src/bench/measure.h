// src/bench/measure.h: the time of a case, with samples of the machine's limit between its own.
#pragma once
#include "bench/work.h"

namespace attn::bench {

struct Measured {
  cases::Case of;
  double median_us = 0;
  int samples = 0;
  // 0: not counted; of additive scores gflops are 10^9 tanh a second, held against nothing
  double gflops = 0, gbs = 0;
  double peak_gflops = 0, peak_gbs = 0;  // the one the row is held against; the other is 0
  double fraction = 0;
};

struct MeasureOptions {
  double seconds = 0.5;  // at least; never fewer than `samples`
  int samples = 15;
};

/// Alternates samples of the limit and of the case; medians of both.
Measured measure(Work& work, const MeasureOptions& options);

/// Seconds of one call: of several in a row, when one is too short for the clock.
double time_of_call(Work& work);

struct Environment {
  double fma_f32_gflops = 0, fma_f64_gflops = 0, dot_bf16_gflops = 0, read_gbs = 0, hand_over_ns = 0;
  double load = 0;  // the system's, of the last minute
};
Environment measure_environment();

}  // namespace attn::bench
