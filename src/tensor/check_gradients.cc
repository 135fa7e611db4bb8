// src/tensor/check_gradients.cc: compares gradients of the tape with central differences in f64.
#include <attn/autograd.h>
#include <attn/ops.h>

#include "runtime/format.h"

#include "tensor/memory_order.h"

#include <cmath>

namespace attn {
namespace {

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

/// Returns weights from 0.5 to 1.5 without a pattern that a wrong gradient could share: the fractional parts of
/// multiples of the golden ratio.
Tensor weights(const Dims& sizes) {
  std::vector<double> values(static_cast<std::size_t>(sizes.product()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double multiple = static_cast<double>(i + 1) * 0.6180339887498949;
    values[i] = 0.5 + multiple - std::floor(multiple);
  }
  return tensor<double>(values, sizes);
}

/// Returns the weighted sum of all elements of y.
Tensor weighed(const Tensor& y) { return sum(y.to(Dtype::f64) * weights(y.sizes())); }

/// Returns the inputs; in place of those that require a gradient, new leaves of the same memory.
std::vector<Tensor> leaves_of(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> leaves;
  for (const Tensor& x : inputs) {
    if (!x.requires_grad()) {
      leaves.push_back(x);
      continue;
    }
    if (x.dtype() != Dtype::f64)
      throw DtypeError("check_gradients: an input that requires a gradient is " + std::string(name_of(x.dtype())) +
                       "; it must be f64");
    leaves.push_back(x.detach().requires_grad_());
  }
  return leaves;
}

std::vector<Tensor> wanted_of(const std::vector<Tensor>& leaves) {
  std::vector<Tensor> wanted;
  for (const Tensor& x : leaves)
    if (x.requires_grad()) wanted.push_back(x);
  if (wanted.empty()) throw ValueError("check_gradients: no input requires a gradient; at least one must");
  return wanted;
}

/// Returns (f(x + step) - f(x - step)) / (2 step) for element i of input `which`; x is not changed.
double difference(const Function& function, const std::vector<Tensor>& inputs, std::size_t which, std::int64_t i,
                  double step) {
  const auto at = [&](double by) {
    std::vector<Tensor> moved = inputs;
    const Tensor values = inputs[which].detach().clone();
    values.data<double>()[i] += by;
    Tensor x = empty_in_order_of(inputs[which]);  // same strides: dropout draws numbers in memory order
    copy_values(x, values);
    moved[which] = x.requires_grad_(true);
    return weighed(function(moved)).item();
  };
  return (at(step) - at(-step)) / (2 * step);
}

std::string compare(const char* order, const Function& function, const std::vector<Tensor>& inputs,
                    const GradientCheckOptions& options) {
  const std::vector<Tensor> leaves = leaves_of(inputs);
  const std::vector<Tensor> wanted = wanted_of(leaves);
  const Tensor y = weighed(function(leaves));
  // the gradients of a function that does not depend on the inputs stay undefined
  std::vector<Tensor> gradients(wanted.size());
  if (y.requires_grad()) gradients = grad({y}, wanted, {.allow_unused = true});
  std::string worst;
  double worst_excess = 0;
  for (std::size_t which = 0, next = 0; which < leaves.size(); ++which) {
    if (!leaves[which].requires_grad()) continue;
    const Tensor& given = gradients[next++];
    const std::vector<double> analytic =
        given.defined() ? given.to_vector() : std::vector<double>(static_cast<std::size_t>(leaves[which].numel()), 0.0);
    for (std::int64_t i = 0; i < leaves[which].numel(); ++i) {
      const double ours = analytic[static_cast<std::size_t>(i)],
                   numeric = difference(function, inputs, which, i, options.step);
      const double excess = std::abs(ours - numeric) - (options.atol + options.rtol * std::abs(numeric));
      if (excess <= worst_excess) continue;  // false for NaN, which counts as the worst
      worst_excess = std::isnan(excess) ? INFINITY : excess;
      worst = runtime::format("{} gradient of input {} of shape {} at element {}: the tape gives {}, differences {}",
                              order, which, to_string(leaves[which].sizes()), i, ours, numeric);
    }
  }
  return worst;
}

}  // namespace

std::string check_gradients(const Function& function, const std::vector<Tensor>& inputs,
                            const GradientCheckOptions& options) {
  const std::string first = compare("first", function, inputs, options);
  if (!first.empty() || !options.second) return first;
  const Function gradient = [&](const std::vector<Tensor>& at) {
    std::vector<Tensor> parts;
    for (const Tensor& g : grad({weighed(function(at))}, wanted_of(at), {.create_graph = true, .allow_unused = true}))
      if (g.defined()) parts.push_back((g * weights(g.sizes())).reshape({-1}));
    return cat(parts);
  };
  return compare("second", gradient, inputs, options);
}

}  // namespace attn
