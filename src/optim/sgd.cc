// src/optim/sgd.cc: implements gradient descent with momentum, dampening, weight decay and Nesterov momentum, in
// torch's order of operations.
#include <attn/autograd.h>
#include <attn/ops.h>

#include "optim/update.h"
#include "runtime/floating_point.h"

#include "runtime/format.h"

#include <cmath>

namespace attn::optim {
namespace {

void check(const SGDOptions& o) {
  for (const auto& [name, value] : {std::pair("lr", o.lr), {"momentum", o.momentum}, {"weight_decay", o.weight_decay}})
    if (!(value >= 0) || std::isinf(value))
      throw ValueError(runtime::format("SGD: {} is {}; it must be 0 or more", name, value));
  if (!std::isfinite(o.dampening))
    throw ValueError(runtime::format("SGD: dampening is {}; it must be finite", o.dampening));
  if (o.nesterov && (o.momentum == 0 || o.dampening != 0))
    throw ValueError("SGD: nesterov needs momentum and no dampening");
}

/// Updates the n elements of a parameter. `buffer` is null without momentum. In the first step (`first`) the buffer
/// becomes the gradient itself.
template <typename T>
void update(const SGDOptions& o, std::int64_t n, const T* gradient, T* x, T* buffer, bool first) {
  const T lr = static_cast<T>(o.lr), momentum = static_cast<T>(o.momentum),
          weight_decay = static_cast<T>(o.weight_decay);
  const T taken = static_cast<T>(1 - o.dampening), sign = o.maximize ? T{-1} : T{1};
  for_spans(n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      T g = gradient[i] * sign;
      if (weight_decay != 0) g += weight_decay * x[i];
      if (buffer != nullptr) {
        buffer[i] = first ? g : buffer[i] * momentum + taken * g;
        g = o.nesterov ? g + momentum * buffer[i] : buffer[i];
      }
      x[i] -= lr * g;
    }
  });
}

}  // namespace

SGD::SGD(const std::vector<Tensor>& parameters, const SGDOptions& options)
    : SGD(std::vector<Group<SGDOptions>>{{parameters, options}}) {}

SGD::SGD(std::vector<Group<SGDOptions>> given)
    : Optimizer(parameters_of(given), {"momentum_buffer"}), groups(std::move(given)) {
  for (const auto& group : groups) check(group.options);
}

void SGD::step() {
  const runtime::DefaultFloatingPoint floating_point;
  const NoGrad guard;
  check_groups("SGD", groups, parameters_);
  for (const auto& group : groups) check(group.options);
  std::vector<Step> steps = prepare_steps(/*halves=*/false);
  const auto is_first = [&](const Step& step) { return !states_[step.parameter].buffers[0].defined(); };
  for_steps(groups, steps, [&](Step& step, const SGDOptions& options) {
    if (is_first(step) && options.momentum != 0) step.next.buffers[0] = zeros(step.values.sizes(), step.values.dtype());
  });
  for_steps(groups, steps, [&](Step& step, const SGDOptions& options) {  // from here on nothing is allocated
    begin_step(step);
    const Tensor& buffer = step.next.buffers[0];
    with_step_type(step.values, [&]<typename T>(T) {
      update(options, step.values.numel(), step.gradient.data<T>(), step.values.data<T>(),
             options.momentum != 0 ? buffer.data<T>() : nullptr, is_first(step));
    });
    end_step(step);
  });
}

}  // namespace attn::optim
