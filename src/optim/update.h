// src/optim/update.h: what the optimisers' files share: parameters of groups, one pass over the elements of a parameter.
#pragma once
#include <attn/optim.h>

#include "runtime/parallel.h"

#include <algorithm>

namespace attn::optim {

template <typename Options>
std::vector<Tensor> parameters_of(const std::vector<Group<Options>>& groups) {
  std::vector<Tensor> all;
  for (const auto& group : groups) all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

/// element(i) for i below n, in parts of a fixed size that threads share.
template <typename F>
void for_elements(std::int64_t n, F&& element) {
  constexpr std::int64_t part_elements = 16384;
  runtime::parallel_for((n + part_elements - 1) / part_elements, [&](std::int64_t part) {
    const std::int64_t end = std::min(n, (part + 1) * part_elements);
    for (std::int64_t i = part * part_elements; i < end; ++i) element(i);
  });
}

/// Calls update(T{}) with float or double, the type of `values`.
template <typename F>
void with_step_type(const Tensor& values, F&& update) {
  values.dtype() == Dtype::f64 ? update(double{}) : update(float{});
}

}  // namespace attn::optim
