// src/optim/adamw.cc: implements AdamW and Adam with torch's order of operations.
#include <attn/autograd.h>
#include <attn/ops.h>

#include "optim/update.h"
#include "runtime/floating_point.h"
#include "tensor/blocks.h"

#include "runtime/format.h"

#include <cmath>
#include <type_traits>

namespace attn::optim {
namespace {

enum Buffer { exp_avg, exp_avg_sq, max_exp_avg_sq };

void check(const AdamWOptions& o) {
  const auto fail = [](const char* name, double value, const char* range) {
    throw ValueError(runtime::format("AdamW: {} is {}; it must be {}", name, value, range));
  };
  if (!(o.lr >= 0) || std::isinf(o.lr)) fail("lr", o.lr, "0 or more");
  if (!(o.eps >= 0) || std::isinf(o.eps)) fail("eps", o.eps, "0 or more");
  if (!(o.weight_decay >= 0) || std::isinf(o.weight_decay)) fail("weight_decay", o.weight_decay, "0 or more");
  for (const double beta : {o.betas.first, o.betas.second})
    if (!(beta >= 0 && beta < 1)) fail("a beta", beta, "from 0 to below 1");
}

/// The constants of one step, rounded to the type of the computation.
template <typename T>
struct Numbers {
  // m is interpolated from the gradient, not from the old m: torch's lerp does so for a weight from 0.5 on
  bool from_gradient;
  T decay, decay_gradient, beta1_step, beta2, one_minus_beta2, step_size, root_of_correction2, eps, sign;

  Numbers(const AdamWOptions& o, std::int64_t step)
      : from_gradient(static_cast<T>(1 - o.betas.first) >= T{0.5}),
        decay(static_cast<T>(o.decoupled ? 1 - o.lr * o.weight_decay : 1)),
        decay_gradient(static_cast<T>(o.decoupled ? 0 : o.weight_decay)),
        beta1_step(static_cast<T>(1 - o.betas.first) - (from_gradient ? T{1} : T{0})),
        beta2(static_cast<T>(o.betas.second)), one_minus_beta2(static_cast<T>(1 - o.betas.second)),
        step_size(static_cast<T>(o.lr / (1 - std::pow(o.betas.first, static_cast<double>(step))))),
        root_of_correction2(static_cast<T>(std::sqrt(1 - std::pow(o.betas.second, static_cast<double>(step))))),
        eps(static_cast<T>(o.eps)), sign(o.maximize ? T{-1} : T{1}) {}
};

/// The arrays that a step reads and changes, one element for each of the parameter's; `most` (the largest v so far) is
/// null without amsgrad.
template <typename T>
struct Arrays {
  const T* gradient;
  T *x, *m, *v, *most;
};

template <bool amsgrad, typename T>
void update_span(const Numbers<T>& numbers, const Arrays<T>& arrays, std::int64_t begin, std::int64_t end) {
  const Numbers<T> by = numbers;  // a copy, to keep them in registers
  const T* __restrict gradient = arrays.gradient;
  T* __restrict x = arrays.x, * __restrict m = arrays.m, * __restrict v = arrays.v, * __restrict most = arrays.most;
  for (std::int64_t i = begin; i < end; ++i) {
    T g = gradient[i] * by.sign;
    const T value = x[i] * by.decay;
    if (by.decay_gradient != 0) g += by.decay_gradient * value;
    m[i] = (by.from_gradient ? g : m[i]) + by.beta1_step * (g - m[i]);
    v[i] = v[i] * by.beta2 + by.one_minus_beta2 * g * g;
    if constexpr (amsgrad) most[i] = std::max(most[i], v[i]);
    const T root = std::sqrt(amsgrad ? most[i] : v[i]);
    x[i] = value - by.step_size * (m[i] / (root / by.root_of_correction2 + by.eps));
  }
}

template <typename T>
void update(const Numbers<T>& by, const Arrays<T>& arrays, std::int64_t begin, std::int64_t end) {
  arrays.most != nullptr ? update_span<true>(by, arrays, begin, end) : update_span<false>(by, arrays, begin, end);
}

/// Updates a half-float parameter and its f32 master `arrays.x` from a half-float gradient. The gradient is converted
/// block by block, so that no f32 copy of the whole gradient is needed.
void update_halves(const Numbers<float>& by, const Arrays<float>& arrays, const Tensor& gradient, const Tensor& half) {
  for_spans(half.numel(), [&](std::int64_t begin, std::int64_t end) {
    in_blocks(end - begin, [&](std::int64_t start, std::int64_t count) {
      const std::int64_t at = begin + start;
      alignas(64) float g[block_elements];
      read_halves(half.dtype(), static_cast<const char*>(gradient.data()) + 2 * at, g, count);
      update(by,
             Arrays<float>{g, arrays.x + at, arrays.m + at, arrays.v + at, arrays.most ? arrays.most + at : nullptr}, 0,
             count);
      write_halves(half.dtype(), arrays.x + at, static_cast<char*>(half.data()) + 2 * at, count);
    });
  });
}

}  // namespace

AdamW::AdamW(const std::vector<Tensor>& parameters, const AdamWOptions& options)
    : AdamW(std::vector<Group<AdamWOptions>>{{parameters, options}}) {}

AdamW::AdamW(std::vector<Group<AdamWOptions>> given)
    : Optimizer(parameters_of(given), {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, 2), groups(std::move(given)) {
  for (const auto& group : groups) check(group.options);
}

void AdamW::step() {
  const runtime::DefaultFloatingPoint floating_point;
  const NoGrad guard;
  check_groups("AdamW", groups, parameters_);
  for (const auto& group : groups) check(group.options);
  std::vector<Step> steps = prepare_steps(/*halves=*/true);
  for_steps(groups, steps, [&](Step& step, const AdamWOptions& options) {
    std::vector<Tensor>& buffers = step.next.buffers;
    for (const Buffer b : {exp_avg, exp_avg_sq, max_exp_avg_sq})
      if (!buffers[b].defined() && (b != max_exp_avg_sq || options.amsgrad))
        buffers[b] = zeros(step.values.sizes(), step.values.dtype());
  });
  for_steps(groups, steps, [&](Step& step, const AdamWOptions& options) {  // from here on nothing is allocated
    begin_step(step);
    const std::vector<Tensor>& buffers = step.next.buffers;
    with_step_type(step.values, [&]<typename T>(T) {
      const Numbers<T> by(options, step.next.step);
      Arrays<T> arrays{nullptr, step.values.data<T>(), buffers[exp_avg].data<T>(), buffers[exp_avg_sq].data<T>(),
                       options.amsgrad ? buffers[max_exp_avg_sq].data<T>() : nullptr};
      if constexpr (std::is_same_v<T, float>)
        if (step.half.defined()) return update_halves(by, arrays, step.gradient, step.half);
      arrays.gradient = step.gradient.data<T>();
      for_spans(step.values.numel(), [&](std::int64_t begin, std::int64_t end) { update(by, arrays, begin, end); });
    });
    end_step(step);
  });
}

}  // namespace attn::optim
