// src/attention/score/lower_score.cc: checks a score expression against a call, and lowers it and its derivatives.
#include "attention/score/lower_score.h"

#include "runtime/format.h"

#include "attention/element.h"
#include "attention/score/score_expression.h"
#include "attention/score/score_lowering.h"
#include "kernels/attention/reference.h"

#include <algorithm>
#include <string_view>

namespace attn {
namespace {

using Node = ScoreExpression::Node;
using Op = Node::Op;
using kernels::ScoreLine;

}  // namespace

LoweredScore lower_score(const ScoreExpression& expression, const ScoreShape& shape, const Lengths& lowered,
                         Dtype computed) {
  if (expression.empty()) return {};
  if (shape.sizes().product() == 0) {  // nothing is looked up; the gradients are zeros
    LoweredScore none;
    std::vector<Tensor>& values = none.any_rows.values;
    for (const ScoreExpression& lookup : expression.lookups())
      if (std::none_of(values.begin(), values.end(),
                       [&](const Tensor& x) { return x.impl() == lookup.tensor().impl(); }))
        values.push_back(lookup.tensor());
    return none;
  }
  if (expression.node()->kind == Node::Kind::condition)
    throw ValueError(runtime::format(
        "{}: {} \"{}\" is a condition; it must be a number (where(condition, s, {}) hides)", shape.function,
        shape.expression, short_text(expression), shape.expression == std::string_view("weight_mod") ? "0" : "-inf"));
  ScoreLowering lowering(expression, shape, computed, lowered);
  const bool has_distance = lowering.has_distance();
  LoweredScore result{.any_rows = lowering.run(false), .one_head = {}};
  if (has_distance) result.one_head = ScoreLowering(expression, shape, computed, lowered).run(true);
  return result;
}

LoweredScoreGradient lower_score_gradient(const ScoreExpression& expression, const LoweredProgram& forward,
                                          const std::vector<Tensor>& gradients, const ScoreShape& shape,
                                          const Lengths& lowered, Dtype computed) {
  const auto gradient_of = [&](const Tensor& x) {
    for (std::size_t n = 0; n < gradients.size(); ++n)
      if (forward.values[n].impl() == x.impl()) return gradients[n];
    return Tensor();
  };
  const auto is = [](const ScoreExpression& x, double value) {
    return x.node()->op == Op::number && x.node()->number == value;
  };
  // results: the derivative by the score, then for each lookup its derivative and its index expressions
  std::vector<ScoreExpression> wanted{derivative(expression, ScoreExpression::score())}, lookups;
  for (const ScoreExpression& lookup : expression.lookups()) {
    const ScoreExpression slope = derivative(expression, lookup);
    if (!gradient_of(lookup.tensor()).defined() || is(slope, 0)) continue;
    lookups.push_back(lookup);
    wanted.push_back(slope);
    for (const ScoreExpression& index : lookup.index()) wanted.push_back(index);
  }
  ScoreLowering lowering(wanted, shape, computed, lowered, &forward);
  LoweredScoreGradient result{.gradient = {}, .program = lowering.run(true), .slopes = {}};
  kernels::ScoreGradient& to = result.gradient;
  to.program = result.program.program;
  to.slope = lowering.result(0);
  to.one = is(wanted[0], 1);
  bool all_elements = true;
  std::size_t next = 1;
  for (const ScoreExpression& lookup : lookups) {
    const Tensor gradient = gradient_of(lookup.tensor());
    kernels::ScoreSlope slope{.slope = lowering.result(next),
                              .one = is(wanted[next], 1),
                              .rank = gradient.dim(),
                              .elements = gradient.numel(),
                              .gradient = gradient.data()};
    ++next;
    slope.line = lowering.line_of(next, next + static_cast<std::size_t>(slope.rank));
    for (int d = 0; d < slope.rank; ++d, ++next) {
      const Op op = wanted[next].node()->op;
      slope.index[d] = lowering.result(next);
      slope.stride[d] = gradient.stride(d);
      if (op == Op::row) slope.row_stride = gradient.stride(d);
      slope.by_head = slope.by_head || op == Op::head;
      slope.by_item = slope.by_item || op == Op::batch;
    }
    if (slope.line == ScoreLine::element) to.elements = kernels::ElementOrder::by_key;
    if (slope.line == ScoreLine::step) ++to.step_count;
    else all_elements = all_elements && slope.line == ScoreLine::element;
    result.slopes.push_back(slope);
  }
  const bool shifted = lowered.query_lengths.defined() || lowered.key_lengths.defined() ||
                       lowered.key_start.defined() || lowered.query_start.defined();
  if (to.elements != kernels::ElementOrder::none && (!all_elements || shifted))
    to.elements = kernels::ElementOrder::after_all;
  to.lookups = result.slopes.data();
  to.lookup_count = static_cast<int>(result.slopes.size());
  return result;
}

Tensor ScoreExpression::apply(const Tensor& scores, const Lengths& lengths) const {
  if (!scores.defined() || scores.dim() != 4)
    throw ShapeError(runtime::format("ScoreExpression::apply: scores have shape {}; they must be [B, H, Tq, Tk]",
                                     scores.defined() ? attn::to_string(scores.sizes()) : "none"));
  if (scores.dtype() != Dtype::f32 && scores.dtype() != Dtype::f64)
    throw DtypeError(
        runtime::format("ScoreExpression::apply: scores are {}; they must be f32 or f64", name_of(scores.dtype())));
  const ScoreShape shape{"ScoreExpression::apply", scores.size(0), scores.size(1), scores.size(2), scores.size(3)};
  const Lengths lowered = lower_lengths(lengths, shape);
  const LoweredScore score = lower_score(*this, shape, lowered, scores.dtype());
  const Tensor result = scores.detach().clone().contiguous();
  if (score.any_rows.program.empty()) return result;
  kernels::AttentionProblem problem;
  problem.element = element_of(scores.dtype());
  problem.weights = result.data();
  describe_scores(shape, lowered, problem);
  problem.score_mod = score.any_rows.program;
  for (int d = 0; d < 3; ++d) problem.weights_stride[d] = result.stride(d);
  for (std::int64_t b = 0; b < shape.batch; ++b)
    for (std::int64_t h = 0; h < shape.heads; ++h)
      kernels::attention_reference().score_mod(problem, {b, h, 1, 0, shape.q_rows});
  return result;
}

}  // namespace attn
