// src/optim/schedule.cc: computes the learning rate of a step.
#include <attn/error.h>
#include <attn/optim.h>

#include "runtime/enum_value.h"
#include "runtime/floating_point.h"
#include "runtime/format.h"

#include <algorithm>
#include <cmath>

namespace attn::optim {

double Schedule::operator()(std::int64_t step) const {
  const runtime::DefaultFloatingPoint floating_point;
  if (step < 0) throw ValueError(runtime::format("Schedule: step is {}; it must be 0 or more", step));
  runtime::check_enum(decay, Decay::none, "Schedule: decay");
  if (warmup < 0 || (decay != Decay::none && warmup > steps))
    throw ValueError(runtime::format("Schedule: warmup is {} of {} steps; it must be from 0 to that", warmup, steps));
  for (const double rate : {peak, last})
    if (!(rate >= 0) || std::isinf(rate))
      throw ValueError(runtime::format("Schedule: a rate is {}; peak and last must be 0 or more", rate));
  if (step < warmup) return peak * ((static_cast<double>(step) + 1) / (static_cast<double>(warmup) + 1));
  if (decay == Decay::none) return peak;
  if (step >= steps) return step == warmup ? peak : last;
  const double done = static_cast<double>(step - warmup) / static_cast<double>(steps - warmup);
  const double left = decay == Decay::cosine ? (1 + std::cos(3.14159265358979323846 * done)) / 2 : 1 - done;
  return last + (peak - last) * left;
}

}  // namespace attn::optim
