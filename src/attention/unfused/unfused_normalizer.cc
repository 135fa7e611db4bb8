// src/attention/unfused/unfused_normalizer.cc: computes weights from whole matrices of scores by tensor operations,
// which have gradients themselves.
#include "attention/unfused/unfused_normalizer.h"

#include <attn/autograd.h>
#include <attn/ops.h>

#include "attention/unfused/unfused_score.h"
#include "tensor/build.h"

#include <limits>

namespace attn {
namespace {

using kernels::NormalizerOp;

constexpr double infinite = std::numeric_limits<double>::infinity();

/// Returns the numbers of the items as [B, 1, Tq, Tk] or [B, 1, 1, 1], in the type of the scores.
Tensor numbers_of_pairs(const Call& call, Dtype dtype) {
  const kernels::AttentionProblem& p = call.problem;
  const double* const of_item = p.normalization->of_item;
  const Tensor result = zeros({p.batch, 1, p.q_rows, 1}, Dtype::f64);
  for_each_sequence(call, p, [&](const kernels::AttentionProblem& of, const kernels::Task& all) {
    for (std::int64_t i = all.row; i < all.row + all.rows; ++i)
      result.data<double>()[all.batch * p.q_rows + i] = of_item[of.item(all)];
  });
  return result.to(dtype);
}

/// Returns the largest score of each row, -infinite if there is none, without a gradient.
Tensor largest_score(const Tensor& scores) {
  return scores.size(-1) > 0 ? max(scores.detach(), -1, /*keepdim=*/true).first
                             : full({scores.size(0), scores.size(1), scores.size(2), 1}, -infinite, scores.dtype());
}

/// Returns which weights of sparsemax or entmax-1.5 are above 0, from z <= 0.
Tensor support_of(const Tensor& z, NormalizerOp op) {
  const NoGrad no_grad;
  Tensor t = full({z.size(0), z.size(1), z.size(2), 1}, -1, z.dtype());
  for (;;) {
    const Tensor above = gt(z, t), x = where(above, op == NormalizerOp::sparsemax ? z : z - t, 0);
    Tensor next;
    if (op == NormalizerOp::sparsemax) {
      next = (sum(x, {-1}, true) - 1) / sum(above.to(z.dtype()), {-1}, true);
    } else {
      const Tensor root = sqrt(sum(x * x, {-1}, true));
      next = t + (root - 1) * root / sum(x, {-1}, true);
    }
    const Tensor rises = gt(next, t);
    if (!any(rises)) return gt(z, t);
    t = where(rises, next, t);
  }
}

/// Returns weights of which those above 0 are `support`; the threshold is a function of their scores.
Tensor by_support(const Tensor& z, const Tensor& support, NormalizerOp op) {
  const Tensor members = sum(support.to(z.dtype()), {-1}, true), count = masked_fill(members, eq(members, 0), 1),
               mean_of = sum(where(support, z, 0), {-1}, true) / count;
  if (op == NormalizerOp::sparsemax) return where(support, z - (mean_of - 1 / count), 0);
  const Tensor away = where(support, z - mean_of, 0);
  const Tensor threshold = mean_of - sqrt((1 - sum(away * away, {-1}, true)) / count);
  const Tensor x = where(support, z - threshold, 0);
  return x * x;
}

}  // namespace

UnfusedWeights unfused_weights(const Call& call, const Tensor& scores, const Tensor& sinks,
                               const std::vector<Tensor>& tables) {
  const NormalizerOp op = call.problem.normalization->op;
  const Tensor masked = eq(scores.detach(), -infinite);
  UnfusedWeights result;
  Tensor m = largest_score(scores);
  const Tensor nothing = eq(m, -infinite);
  if (sinks.defined()) m = where(nothing, m, maximum(m, sinks.detach()));
  m = masked_fill(m, nothing, 0);
  const Tensor s = masked_fill(scores, masked, 0);  // no gradient flows through masked scores
  switch (op) {
    case NormalizerOp::softmax: {
      const Tensor e = masked_fill(exp(masked_fill(s - m, masked, -infinite)), masked, 0);
      Tensor l = sum(e, {-1}, true);
      if (sinks.defined()) l = l + exp(sinks - m);
      l = masked_fill(l, nothing, 1);
      result.weights = e / l;
      result.logsumexp = masked_fill(log(l) + m, nothing, -infinite).squeeze(-1);
      break;
    }
    case NormalizerOp::sigmoid: result.weights = sigmoid(s + numbers_of_pairs(call, s.dtype())); break;
    case NormalizerOp::relu_squared: {
      const Tensor x = where(gt(s, 0), s, 0);
      result.weights = x * x * numbers_of_pairs(call, s.dtype());
      break;
    }
    default: {
      const Tensor z = (s - m) * (op == NormalizerOp::entmax15 ? 0.5 : 1.0);
      const Tensor support =
          logical_and(support_of(masked_fill(z.detach(), masked, -infinite), op), logical_not(masked));
      result.weights = by_support(z, support, op);
    }
  }
  result.weights = masked_fill(result.weights, masked, 0);
  const LoweredNormalizer& lowered = *call.normalizer;
  if (!lowered.weight_expression.empty())
    result.weights = masked_fill(
        modified_scores(call, lowered.weight_expression, lowered.weight_mod, result.weights, tables, masked), masked,
        0);
  return result;
}

}  // namespace attn
