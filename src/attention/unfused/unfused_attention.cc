// src/attention/unfused/unfused_attention.cc: computes attention by tensor operations, which have gradients themselves.
#include "attention/unfused/unfused_attention.h"

#include <attn/autograd.h>
#include <attn/ops.h>

#include "attention/call/call.h"
#include "attention/relative/relative_terms.h"
#include "attention/unfused/masked_sums.h"
#include "attention/unfused/unfused_normalizer.h"
#include "attention/unfused/unfused_score.h"
#include "kernels/attention/mask/mask_program.h"

#include <limits>

namespace attn {
namespace {

using kernels::AttentionProblem;
using kernels::BiasOp;
using kernels::BiasTerm;
using kernels::Task;

/// What the call says about each pair before scores are computed, for every batch item, head, row and key.
struct Pairs {
  Tensor visible;  // bool [B, Hq, Tq, Tk]
  Tensor kept;     // dropout's factor of each weight, 0 or 1 / (1 - p); undefined without dropout
  // per bias term, [B, 1, Tq, Tk]: ALiBi's distances, or row indices of the table of a relative bias or product
  std::vector<Tensor> places;
};

template <typename F>
void for_pairs(const AttentionProblem& p, const Task& all, F&& visit) {
  for (std::int64_t i = all.row; i < p.rows_end(all); ++i)
    for (std::int64_t j = p.keys_begin(all); j < p.keys_end(all); ++j) visit(i, j);
}

void fill(const Call& call, const Task& all, const Pairs& pairs) {
  const AttentionProblem& p = call.problem;
  for (std::int64_t h = 0; h < p.q_heads; ++h) {
    bool* visible = pairs.visible.data<bool>() + (all.batch * p.q_heads + h) * p.q_rows * p.k_rows;
    for_pairs(p, all,
              [&](std::int64_t i, std::int64_t j) { visible[i * p.k_rows + j] = kernels::sees(p, all, h, i, j); });
  }
  for (int n = 0; n < p.bias_count; ++n) {
    const BiasTerm& term = p.bias[n];
    if (!pairs.places[static_cast<std::size_t>(n)].defined()) continue;
    std::int64_t* places =
        pairs.places[static_cast<std::size_t>(n)].data<std::int64_t>() + all.batch * p.q_rows * p.k_rows;
    for_pairs(p, all, [&](std::int64_t i, std::int64_t j) {
      if (term.op == BiasOp::dense) {
        places[i * p.k_rows + j] = call.bias.products->row_of(n, p, all, i, j);
        return;
      }
      const std::int64_t distance =
          kernels::key_position(p, all, j) - kernels::row_position(p, all, i, term.bottom_right);
      places[i * p.k_rows + j] = term.op == BiasOp::slope ? term.times(distance) : term.bucket(distance);
    });
  }
}

bool is_product(const Call& call, int n) { return call.bias.products != nullptr && call.bias.products->has(n); }

Pairs pairs_of(const Call& call, const DropoutTiles* dropout) {
  const AttentionProblem& p = call.problem;
  const Dims sizes{p.batch, p.q_heads, p.q_rows, p.k_rows};
  Pairs pairs{.visible = zeros(sizes, Dtype::boolean), .kept = {}, .places = {}};
  for (int n = 0; n < p.bias_count; ++n)
    pairs.places.push_back(p.bias[n].op == BiasOp::dense && !is_product(call, n)
                               ? Tensor()
                               : zeros({p.batch, 1, p.q_rows, p.k_rows}, Dtype::i64));
  for_each_sequence(call, p, [&](const AttentionProblem&, const Task& all) { fill(call, all, pairs); });
  const bool by_stream = dropout != nullptr;
  if (!by_stream && p.drop_least == 0) return pairs;
  const Tensor kept = zeros(sizes, Dtype::boolean);
  const auto rows_of = [&](std::int64_t head, std::int64_t row) {
    return static_cast<std::uint8_t*>(kept.data()) + (head * p.q_rows + row) * p.k_rows;
  };
  for (std::int64_t head = 0; by_stream && head < p.batch * p.q_heads; ++head)
    dropout->draw_rows(head, 0, p.q_rows, rows_of(head, 0));
  if (p.drop_least != 0)
    for_each_sequence(call, p, [&](const AttentionProblem&, const Task& all) {
      for (std::int64_t h = 0; h < p.q_heads; ++h)
        draw_by_counter(p, all.with_rows(h, all.row, all.rows), rows_of(all.batch * p.q_heads + h, all.row));
    });
  pairs.kept = kept.to(call.compute_dtype()) * (by_stream ? dropout->scale(call.dtype() == Dtype::f64) : p.keep_scale);
  return pairs;
}

/// Repeats [B, H, T, D] to [B, Hq, T, D]: each head serves Hq / H query heads.
Tensor for_heads(const Tensor& x, std::int64_t heads) {
  if (x.size(1) == heads) return x;
  const Dims sizes{x.size(0), x.size(1), heads / x.size(1), x.size(2), x.size(3)};
  return x.unsqueeze(2).expand(sizes).reshape({x.size(0), heads, x.size(2), x.size(3)});
}

/// Replaces the rows of x (k or v) that no visible pair needs by zeros: products are faster if every number is finite.
Tensor needed_rows(const Tensor& x, const Tensor& visible) {
  const Tensor needed = gt(sum(visible, {1, 2}), 0);  // [B, Tk]
  return where(needed.unsqueeze(1).unsqueeze(3), x, 0);
}

Tensor bias_of(const Call& call, int n, const Tensor& values, const Pairs& pairs) {
  const BiasTerm& term = call.problem.bias[n];
  const Tensor& places = pairs.places[static_cast<std::size_t>(n)];
  if (term.op == BiasOp::dense)
    return call.rank == 3 && values.dim() == 3 && !call.packed ? values.unsqueeze(1) : values;
  if (term.op == BiasOp::slope) return values.reshape({-1, 1, 1}) * places.to(values.dtype());
  return values.index_select(0, places.squeeze(1)).permute({0, 3, 1, 2});
}

/// Returns the scores [B, Hq, Tq, Tk] from q and k of all heads, 0 for masked pairs; `w` belongs to an additive score.
Tensor scores_of(const AttentionProblem& p, const Tensor& q, const Tensor& k, const Tensor& w, const Tensor& masked) {
  if (p.score == kernels::ScoreOp::additive)
    return matmul(tanh(masked_fill(q.unsqueeze(3) + k.unsqueeze(2), masked.unsqueeze(4), 0)), w);
  return visible_products(q * p.scale, k, masked);
}

/// Returns the output [B, Hq, Tq, Dv], the weights and the logsumexp of the call, or only its scores, in the compute
/// type. `inputs` are in the order of Call::inputs().
std::vector<Tensor> attend(const Call& call, const DropoutTiles* dropout, const std::vector<Tensor>& inputs) {
  const AttentionProblem& p = call.problem;
  const bool additive = p.score == kernels::ScoreOp::additive;
  const Tensor q = widen(inputs[0]);
  if (!call.v.defined())
    return {scores_of(p, q, for_heads(widen(inputs[1]), p.q_heads), additive ? inputs[2] : Tensor(),
                      zeros({p.batch, p.q_heads, p.q_rows, p.k_rows}, Dtype::boolean))};
  const Pairs pairs = pairs_of(call, dropout);
  std::size_t next = 3;
  const Tensor sinks = call.sinks.defined() ? inputs[next++].reshape({-1, 1, 1}) : Tensor(),
               w = additive ? inputs[next++] : Tensor();
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<Tensor> biases;
  Tensor shown = pairs.visible;  // the visible pairs that no bias masks
  for (int n = 0; n < p.bias_count; ++n) {
    const Tensor values = inputs[next++].to(q.dtype());
    if (is_product(call, n)) {
      const RelativeTerms& products = *call.bias.products;
      Tensor x = products.has_operand(n) ? call.with_heads(inputs[next++].to(q.dtype()))
                 : products.of_keys(n)   ? widen(inputs[1])
                                         : q;
      if (products.of_keys(n)) x = needed_rows(x, pairs.visible);
      biases.push_back(
          products.matrix(n, values, x, pairs.places[static_cast<std::size_t>(n)].expand(pairs.visible.sizes())));
    } else {
      biases.push_back(bias_of(call, n, values, pairs));
    }
    shown = logical_and(shown, ne(biases.back().detach(), -infinity));
  }
  const Tensor k = for_heads(needed_rows(widen(inputs[1]), shown), p.q_heads),
               v = for_heads(needed_rows(widen(inputs[2]), shown), p.q_heads);

  // pass 1: scores, -inf for masked pairs. What a masked pair holds reaches neither a score nor a gradient.
  const auto first_weight_table =
      inputs.end() - static_cast<std::ptrdiff_t>(call.normalizer ? call.normalizer->weight_mod.values.size() : 0);
  const std::vector<Tensor> tables(inputs.begin() + static_cast<std::ptrdiff_t>(next), first_weight_table),
      weight_tables(first_weight_table, inputs.end());
  const auto scores = [&](const Tensor& masked) {
    Tensor s = scores_of(p, q, k, w, masked);
    if (p.softcap != 0) s = tanh(s / p.softcap) * p.softcap;
    for (const Tensor& bias : biases) s = s + bias;
    if (!call.score_expression.empty())  // it neither unmasks a pair nor reads its score
      s = modified_scores(call, call.score_expression, call.score_mod->any_rows, masked_fill(s, masked, 0), tables,
                          masked);
    if (p.temperature != 1) s = s / p.temperature;
    return masked_fill(s, masked, -infinity);
  };
  Tensor masked = logical_not(shown);
  if (!call.score_expression.empty() || !all_finite(q) || !all_finite(k)) {  // a score of -inf masks its pair too
    const NoGrad guard;
    masked = eq(scores(masked), -infinity);
  }
  Tensor s = scores(masked);

  if (call.normalizer) {  // pass 2 and 3 with other weights
    UnfusedWeights made = unfused_weights(call, s, sinks, weight_tables);
    if (pairs.kept.defined()) made.weights = made.weights * pairs.kept;
    return {visible_sums(made.weights, v, eq(s.detach(), -infinity)), made.weights, made.logsumexp};
  }

  // pass 2: softmax over the visible pairs; its result does not depend on the maximum, so no gradient flows through the
  // maximum
  masked = eq(s.detach(), -infinity);
  Tensor m = p.k_rows > 0 ? max(s.detach(), -1, /*keepdim=*/true).first
                          : full({p.batch, p.q_heads, p.q_rows, 1}, -infinity, s.dtype());
  const Tensor nothing = eq(m, -infinity);
  if (sinks.defined()) m = maximum(m, sinks.detach());
  m = masked_fill(m, eq(m, -infinity), 0);
  const Tensor e = exp(masked_fill(s - m, masked, -infinity));
  Tensor l = sum(e, {-1}, /*keepdim=*/true);
  if (sinks.defined()) l = l + exp(sinks - m);
  l = masked_fill(l, nothing, 1);
  Tensor weights = masked_fill(e / l, masked, 0);
  if (pairs.kept.defined()) weights = weights * pairs.kept;

  // pass 3: the weighted sum of the values
  return {visible_sums(weights, v, masked), weights, masked_fill(log(l) + m, nothing, -infinity).squeeze(-1)};
}

/// Returns the weights in the form that the call returned.
Tensor requested_weights(const Weights& asked, const Tensor& weights, const Tensor& keys) {
  switch (asked.kind) {
    case Weights::head_average: return mean(weights, {1});
    case Weights::column_sums: return sum(weights, {2});
    case Weights::row_subset: return weights.index_select(2, asked.indices);
    case Weights::largest: {
      const Dims rows{keys.size(0), keys.size(1), keys.size(2), 1};
      const Tensor first = arange(rows[0] * rows[1] * rows[2]).reshape(rows) * weights.size(3);
      const Tensor there = ge(keys, 0);
      return where(
          there,
          weights.reshape({-1}).index_select(0, (first + where(there, keys, 0)).reshape({-1})).reshape(keys.sizes()),
          0);
    }
    default: return weights;
  }
}

}  // namespace

Gradients unfused_gradients(const Call& call, const FromForward& forward, const Backward& at) {
  const bool graph = grad_enabled();
  const EnableGrad guard;
  // Each input gets a handle of its own, so that its derivative ignores that an input may be computed from another one.
  std::vector<Tensor> inputs, wanted;
  for (std::size_t i = 0; i < at.inputs(); ++i) {
    Tensor x = at.saved(static_cast<int>(i));
    if (graph && x.requires_grad()) x = x.reshape(x.sizes());
    if (!graph) x = x.detach().requires_grad_(at.needs(static_cast<int>(i)));
    inputs.push_back(x);
    if (at.needs(static_cast<int>(i))) wanted.push_back(x);
  }
  const std::vector<Tensor> results = attend(call, forward.dropout, inputs);
  std::vector<Tensor> outputs, grads;
  for (int i = 0; i < static_cast<int>(results.size()); ++i) {
    Tensor plain = results[static_cast<std::size_t>(i)], gradient = at.grad(i);
    if (!gradient.defined() || !plain.defined() || !plain.requires_grad()) continue;
    if (i == 0 && call.v.defined()) gradient = call.with_heads(gradient);
    if (i == 1) plain = requested_weights(call.weights, plain, forward.weight_keys);
    outputs.push_back(plain);
    grads.push_back(widen(gradient).reshape(plain.sizes()));
  }

  Gradients gradients(at.inputs());
  std::vector<Tensor> found(wanted.size());
  if (!outputs.empty())
    found = grad(outputs, wanted, {.grad_outputs = grads, .create_graph = graph, .allow_unused = true});
  std::size_t next = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!at.needs(static_cast<int>(i))) continue;
    gradients[i] = found[next++];
    // an expression that does not use the score gives no gradient; the result is then zeros, as in the fused pass
    if (!gradients[i].defined()) gradients[i] = zeros_like(inputs[i]);
  }
  return gradients;
}

}  // namespace attn
