// src/optim/update.h: what the optimisers' files share: parameters of groups, one pass over the elements of a
// parameter.
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

/// ValueError where the groups no longer hold the parameters of the beginning: what is kept of them is counted through
/// all groups.
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

/// f(step, options) for each of the steps, which stand in the order of the parameters.
template <typename Options, typename Steps, typename F>
void for_steps(const std::vector<Group<Options>>& groups, Steps& steps, F&& f) {
  auto step = steps.begin();
  std::size_t end = 0;
  for (const auto& [parameters, options] : groups)
    for (end += parameters.size(); step != steps.end() && step->parameter < end; ++step) f(*step, options);
}

/// span(begin, end) for the elements below n, in parts of a fixed size that threads share. The loop stands in the span,
/// on restricted pointers, where the compiler makes vectors of it.
template <typename F>
void for_spans(std::int64_t n, F&& span) {
  constexpr std::int64_t part_elements = 4096;
  runtime::parallel_for((n + part_elements - 1) / part_elements, [&](std::int64_t part) {
    span(part * part_elements, std::min(n, (part + 1) * part_elements));
  });
}

/// Calls update(T{}) with float or double, the type of `values`.
template <typename F>
void with_step_type(const Tensor& values, F&& update) {
  values.dtype() == Dtype::f64 ? update(double{}) : update(float{});
}

}  // namespace attn::optim
