// src/optim/update.h: declares what the optimisers share: the check of the groups, the loop over the steps, and the
// loop over a parameter's elements.
#pragma once
#include <attn/optim.h>

#include "runtime/parallel.h"

#include "runtime/format.h"

#include <algorithm>

namespace attn::optim {

template <typename Options>
std::vector<Tensor> parameters_of(const std::vector<Group<Options>>& groups) {
  std::vector<Tensor> all;
  for (const auto& group : groups) all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

/// Throws ValueError if the groups no longer hold the original parameters. The states are numbered through all groups,
/// so a changed list would mix them up.
template <typename Options>
void check_groups(const char* name, const std::vector<Group<Options>>& groups, const std::vector<Tensor>& parameters) {
  std::size_t i = 0;
  bool same = true;
  for (const auto& group : groups)
    for (const Tensor& x : group.parameters) same = same && i < parameters.size() && x.impl() == parameters[i++].impl();
  if (!same || i != parameters.size())
    throw ValueError(runtime::format(
        "{}: the parameters of the groups are not those of the beginning; only their options may change", name));
}

/// Calls f(step, options) for each of the steps, which are in the order of the parameters.
template <typename Options, typename Steps, typename F>
void for_steps(const std::vector<Group<Options>>& groups, Steps& steps, F&& f) {
  auto step = steps.begin();
  std::size_t end = 0;
  for (const auto& [parameters, options] : groups)
    for (end += parameters.size(); step != steps.end() && step->parameter < end; ++step) f(*step, options);
}

/// Calls span(begin, end) for the elements below n, in parts of a fixed size that threads share. The loop over the
/// elements is inside `span`, on restricted pointers, so that the compiler can vectorise it.
template <typename F>
void for_spans(std::int64_t n, F&& span) {
  constexpr std::int64_t part_elements = 4096;
  runtime::parallel_for((n + part_elements - 1) / part_elements, [&](std::int64_t part) {
    span(part * part_elements, std::min(n, (part + 1) * part_elements));
  });
}

/// Calls update(T{}) with T float or double, the dtype of `values`.
template <typename F>
void with_step_type(const Tensor& values, F&& update) {
  values.dtype() == Dtype::f64 ? update(double{}) : update(float{});
}

}  // namespace attn::optim
