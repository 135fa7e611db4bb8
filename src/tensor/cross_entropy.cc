// src/tensor/cross_entropy.cc: computes the cross-entropy loss: log-softmax and the target's term in one pass over each
// row.
#include <attn/autograd.h>

#include "runtime/format.h"

#include "kernels/rows/target.h"
#include "runtime/enum_value.h"
#include "runtime/thread_scratch.h"
#include "tensor/defined.h"
#include "tensor/rows.h"

#include <cmath>
#include <limits>

namespace attn {
namespace {

/// The targets of a call whose logits are arranged as [rows, C]: one class for each row.
struct Losses {
  std::vector<std::int64_t> classes;  // -1: the row is ignored
  std::vector<double> weight;         // one for each class
  double smoothing;                   // the part of the target that is spread over all classes
  double total_weight = 0;            // sum of the weights of all classes
  double divisor = 1;                 // divisor of the loss: for a mean, the sum of the weights of the rows that count

  double of(std::int64_t target) const { return weight[static_cast<std::size_t>(target)]; }
};

void check_options(const CrossEntropyOptions& options, std::int64_t classes) {
  runtime::check_enum(options.reduction, Reduction::none, "cross_entropy: reduction");
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
    throw ValueError(
        runtime::format("cross_entropy: label_smoothing is {}; it must be from 0 to 1", options.label_smoothing));
  if (options.weight.defined() && !(options.weight.sizes() == Dims{classes}))
    throw ShapeError("cross_entropy: weight has shape " + to_string(options.weight.sizes()) + "; it must be " +
                     to_string(Dims{classes}) + ", one a class");
}

Losses read_classes(const Tensor& target, std::int64_t classes, const CrossEntropyOptions& options) {
  Losses losses{.classes = target.to_int_vector(),
                .weight = std::vector<double>(static_cast<std::size_t>(classes), 1.0),
                .smoothing = options.label_smoothing};
  if (options.weight.defined()) losses.weight = options.weight.to_vector();
  for (const double w : losses.weight) losses.total_weight += w;
  double counted = 0;
  for (std::int64_t& c : losses.classes) {
    if (c == options.ignore_index) {
      c = -1;
      continue;
    }
    if (c < 0 || c >= classes)
      throw ValueError("cross_entropy: target " + std::to_string(c) + " is out of range; the logits have " +
                       std::to_string(classes) + " classes");
    counted += losses.of(c);
  }
  // The mean is NaN if the weights sum to 0, even if label smoothing gives a loss that is not 0.
  if (options.reduction == Reduction::mean)
    losses.divisor = counted != 0 ? counted : std::numeric_limits<double>::quiet_NaN();
  return losses;
}

/// Computes -(1 - s) w_t log p_t - s / C sum_c w_c log p_c for every row; 0 for an ignored row.
Tensor forward(const Tensor& x, const Losses& losses) {
  const std::int64_t n = x.size(1);
  const Tensor result = zeros({x.size(0)}, x.dtype());
  const auto& table = kernels::row_kernels();
  with_compute_type(x.dtype(), [&]<typename T>(Type<T>) {
    parallel_rows(x.size(0), n, [&](std::int64_t row) {
      const std::int64_t target = losses.classes[static_cast<std::size_t>(row)];
      if (target < 0) return;
      T* log_p = static_cast<T*>(runtime::thread_scratch(static_cast<std::size_t>(n) * sizeof(T)));
      table.row(kernels::RowOp::log_softmax, row_element_of(x.dtype()), x.data<T>() + row * n, 1, log_p, 1, n);
      T loss = -static_cast<T>((1 - losses.smoothing) * losses.of(target)) * log_p[target];
      if (losses.smoothing != 0) {
        for (std::int64_t c = 0; c < n; ++c) log_p[c] *= static_cast<T>(losses.of(c));
        T all;
        table.row(kernels::RowOp::sum, row_element_of(x.dtype()), log_p, 1, &all, 1, n);
        loss -= static_cast<T>(losses.smoothing / static_cast<double>(n)) * all;
      }
      result.data<T>()[row] = canonical_nan(loss);
    });
  });
  return result;
}

/// Computes dlogits = g (a softmax(logits) - shares). `shares` are the coefficients of the log p_c in the loss: (1 - s)
/// w_t for the target, plus s / C w_c for each class. a is their sum.
Tensor backward_rows(const Tensor& x, const Tensor& g, const Losses& losses) {
  const std::int64_t n = x.size(1);
  const Tensor result = zeros(x.sizes(), x.dtype());
  const auto& table = kernels::row_kernels();
  with_compute_type(x.dtype(), [&]<typename T>(Type<T>) {
    parallel_rows(x.size(0), n, [&](std::int64_t row) {
      const std::int64_t target = losses.classes[static_cast<std::size_t>(row)];
      if (target < 0) return;
      const double spread = losses.smoothing / static_cast<double>(n),
                   picked = (1 - losses.smoothing) * losses.of(target);
      T* dx = result.data<T>() + row * n;
      table.row(kernels::RowOp::softmax, row_element_of(x.dtype()), x.data<T>() + row * n, 1, dx, 1, n);
      const T all = static_cast<T>(picked + spread * losses.total_weight), scale = g.data<T>()[row];
      for (std::int64_t c = 0; c < n; ++c) dx[c] = all * dx[c] - static_cast<T>(spread * losses.of(c));
      dx[target] -= static_cast<T>(picked);
      for (std::int64_t c = 0; c < n; ++c) dx[c] = canonical_nan(dx[c] * scale);
    });
  });
  return result;
}

/// Computes the same gradient in tensor operations that have gradients themselves.
Tensor backward_plain(const Tensor& x, const Tensor& g, const Losses& losses) {
  const std::int64_t n = x.size(1);
  const Tensor shares = zeros({x.size(0), n}, Dtype::f64);
  for (std::int64_t row = 0; row < x.size(0); ++row) {
    const std::int64_t target = losses.classes[static_cast<std::size_t>(row)];
    if (target < 0) continue;
    for (std::int64_t c = 0; c < n; ++c)
      shares.data<double>()[row * n + c] = losses.smoothing / static_cast<double>(n) * losses.of(c);
    shares.data<double>()[row * n + target] += (1 - losses.smoothing) * losses.of(target);
  }
  const Tensor share = shares.to(x.dtype()), counts = tensor<bool>(
                                                 [&] {
                                                   std::vector<bool> result;
                                                   for (const std::int64_t c : losses.classes) result.push_back(c >= 0);
                                                   return result;
                                                 }(),
                                                 {x.size(0), 1});
  return where(counts, (softmax(x, 1) * sum(share, {1}, true) - share) * g.unsqueeze(1), 0);
}

/// Reshapes [N, C, d...] to [N d..., C], so that each row holds the classes.
Tensor classes_last(const Tensor& x) {
  if (x.dim() <= 2) return x.dim() == 1 ? x.unsqueeze(0) : x;
  Dims order{0};
  for (int d = 2; d < x.dim(); ++d) order.push_back(d);
  order.push_back(1);
  return x.permute(order).flatten(0, -2);
}

Tensor with_classes(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  Dims expected = logits.sizes();
  expected.erase(logits.dim() == 1 ? 0 : 1);
  if (!(target.sizes() == expected))
    throw ShapeError("cross_entropy: target has shape " + to_string(target.sizes()) + ", logits " +
                     to_string(logits.sizes()) + "; target must be " + to_string(expected) +
                     " (classes) or as the logits (probabilities)");
  const Tensor x = classes_last(logits), rows = widened(x).contiguous();
  const Losses losses = read_classes(target, x.size(1), options);
  Tensor y = forward(rows, losses);
  if (options.reduction == Reduction::none) y = y.reshape(expected);
  else y = options.reduction == Reduction::sum ? sum(y) : sum(y) / losses.divisor;
  y = y.to(logits.dtype());
  return record("NllLossBackward0", y,
                wrt(
                    x,
                    [losses](auto& dy, auto& x) {
                      const Tensor g = (widen(dy) / losses.divisor).reshape({-1}).expand({x.size(0)});
                      return grad_enabled() ? backward_plain(widen(x), g, losses)
                                            : backward_rows(widened(x).contiguous(), g.contiguous(), losses);
                    },
                    x));
}

/// Computes -sum_c w_c t_c log p_c for the smoothed target t.
Tensor with_probabilities(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  const Tensor x = widen(classes_last(logits));
  Tensor t = widen(classes_last(target));
  const std::int64_t n = x.size(1);
  if (options.label_smoothing != 0)
    t = t * (1 - options.label_smoothing) + options.label_smoothing / static_cast<double>(n);
  if (options.weight.defined()) t = t * options.weight;
  const Tensor losses = -sum(log_softmax(x, 1) * t, {1});
  if (options.reduction == Reduction::mean) return mean(losses).to(logits.dtype());
  if (options.reduction == Reduction::sum) return sum(losses).to(logits.dtype());
  Dims shape = logits.sizes();
  shape.erase(logits.dim() == 1 ? 0 : 1);
  return losses.reshape(shape).to(logits.dtype());
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  check_defined("cross_entropy", "logits", logits);
  check_defined("cross_entropy", "target", target);
  check_floating_point("cross_entropy", logits);
  if (logits.dim() == 0) throw ShapeError("cross_entropy: logits have rank 0; they must be [C], [N, C] or [N, C, ...]");
  check_options(options, logits.size(logits.dim() == 1 ? 0 : 1));
  const bool probabilities = is_floating(target.dtype()) && target.sizes() == logits.sizes();
  if (!probabilities && !is_integral(target.dtype()))
    throw DtypeError(
        "cross_entropy: target is " + std::string(name_of(target.dtype())) + " of shape " + to_string(target.sizes()) +
        "; classes must be i64 or i32, probabilities floating and of the logits' shape " + to_string(logits.sizes()));
  if (probabilities && options.ignore_index >= 0)
    throw ValueError("cross_entropy: ignore_index is " + std::to_string(options.ignore_index) +
                     ", and target holds probabilities; it ignores classes alone");
  return probabilities ? with_probabilities(logits, target, options) : with_classes(logits, target, options);
}

}  // namespace attn
