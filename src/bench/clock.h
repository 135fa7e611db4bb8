// src/bench/clock.h: reads a monotonic clock and computes medians.
#pragma once
#include <algorithm>
#include <chrono>
#include <vector>

namespace attn::bench {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Returns the median (the upper one of an even number of values), or 0 if there are no values.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace attn::bench
