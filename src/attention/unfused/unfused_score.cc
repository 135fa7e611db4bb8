// src/attention/unfused/unfused_score.cc: computes a score expression by tensor operations on whole matrices, so that
// autograd differentiates it.
#include "attention/unfused/unfused_score.h"

#include <attn/ops.h>

#include "attention/call/call.h"
#include "attention/score/score_expression.h"
#include "attention/unfused/masked_sums.h"
#include "kernels/attention/mask/mask_program.h"
#include "tensor/build.h"

#include <cmath>

namespace attn {
namespace {

using Node = ScoreExpression::Node;
using Op = Node::Op;
using Kind = Node::Kind;
using kernels::AttentionProblem;
using kernels::Task;

/// Evaluates the expression. Floating values are tensors of the compute type, integers are f64, which holds them
/// exactly, conditions are bool; all broadcast to the scores.
class Evaluation {
 public:
  /// `apart`: lookups of masked pairs are replaced by 0, so that their gradient, 0 times inf, does not reach a table.
  /// Otherwise a table's gradient is one sum where that is possible.
  Evaluation(const Call& call, const ScoreExpression& expression, const LoweredProgram& lowered, const Tensor& scores,
             const std::vector<Tensor>& tables, const Tensor& masked, bool apart)
      : call_(call), lowered_(lowered), scores_(scores), tables_(tables), masked_(masked), apart_(apart),
        values_(expression) {}

  Tensor run() {
    for (const ScoreValues::Value& value : values_.values) {
      results_.push_back(value_of(value));
      const Op op = value.node->op;
      if (value.node->kind == Kind::number && op != Op::number && op != Op::score && op != Op::where)
        finite_ = finite_ && all_finite(results_.back());
    }
    return as_number(results_.back()).expand(scores_.sizes());
  }

  /// Returns whether every intermediate number was finite, except constants and the scores themselves.
  bool finite() const { return finite_; }

 private:
  Tensor as_number(const Tensor& x) const { return x.to(scores_.dtype()); }

  template <typename F>
  Tensor each_pair(F&& value) const {
    const AttentionProblem& p = call_.problem;
    const Tensor result = zeros({p.batch, 1, p.q_rows, p.k_rows}, Dtype::f64);
    for_each_sequence(call_, p, [&](const AttentionProblem& problem, const Task& all) {
      for (std::int64_t i = all.row; i < all.row + all.rows; ++i)
        for (std::int64_t j = problem.keys_begin(all); j < problem.keys_end(all); ++j)
          result.data<double>()[(all.batch * p.q_rows + i) * p.k_rows + j] =
              static_cast<double>(value(problem, all, i, j));
    });
    return result;
  }

  Tensor symbol(const Node& node) const {
    switch (node.op) {
      case Op::number: return filled({}, node.number, scores_.dtype());
      case Op::whole: return full({}, static_cast<double>(node.whole), Dtype::f64);
      case Op::score: return scores_;
      case Op::head: return arange(call_.problem.q_heads).to(Dtype::f64).reshape({-1, 1, 1});
      case Op::batch:
        return each_pair(
            [](const AttentionProblem& p, const Task& all, std::int64_t, std::int64_t) { return p.item(all); });
      case Op::key:
        return each_pair([](const AttentionProblem& p, const Task& all, std::int64_t, std::int64_t j) {
          return kernels::key_position(p, all, j);
        });
      default:
        return each_pair([&](const AttentionProblem& p, const Task& all, std::int64_t i, std::int64_t) {
          return kernels::row_position(p, all, i, node.align == Align::bottom_right);
        });
    }
  }

  /// Applies f to each pair of integers; no gradient is recorded.
  template <typename F>
  static Tensor elementwise(const Tensor& a, const Tensor& b, F&& f) {
    const Tensor sum = a + b, result = empty(sum.sizes(), Dtype::f64);
    const Tensor x = a.expand(sum.sizes()).contiguous(), y = b.expand(sum.sizes()).contiguous();
    for (std::int64_t n = 0; n < result.numel(); ++n)
      result.data<double>()[n] = f(x.data<double>()[n], y.data<double>()[n]);
    return result;
  }

  Tensor look_up(const Node& node, const std::vector<int>& parts) const {
    const std::vector<Tensor>& given = lowered_.values;
    Tensor table = node.tensor;
    for (std::size_t n = 0; n < given.size(); ++n)
      if (given[n].impl() == node.tensor.impl()) table = tables_[n];
    // the table is converted before the lookup, so that its gradient is summed in the compute type
    if (node.kind == Kind::number) table = as_number(table);
    Tensor place = zeros({}, Dtype::f64);
    for (std::size_t d = 0; d < parts.size(); ++d)
      place = place * static_cast<double>(table.size(static_cast<int>(d))) + result(parts[d]);
    // If the index depends on the pair, pairs that are not visible look up element 0. Otherwise each element is
    // selected once, and its gradient is one sum instead of a chain over pairs.
    if (place.dim() == 4) place = masked_fill(place.expand(scores_.sizes()), masked_, 0);
    const Tensor found = table.reshape({-1}).index_select(0, place.to(Dtype::i64).reshape({-1})).reshape(place.sizes());
    if (node.kind == Kind::whole) return found.to(Dtype::f64);
    return apart_ && node.kind == Kind::number ? masked_fill(found.expand(scores_.sizes()), masked_, 0) : found;
  }

  const Tensor& result(int n) const { return results_[static_cast<std::size_t>(n)]; }

  Tensor value_of(const ScoreValues::Value& value) const {
    const Node& node = *value.node;
    if (node.op == Op::lookup) return look_up(node, value.parts);
    if (value.parts.empty()) return symbol(node);
    bool numbers = node.kind == Kind::number;  // whether the operands are converted to floating
    for (const int part : value.parts)
      numbers = numbers || values_.values[static_cast<std::size_t>(part)].node->kind == Kind::number;
    const auto operand = [&](std::size_t n) {
      const Tensor& x = result(value.parts[n]);
      return numbers && x.dtype() != Dtype::boolean ? as_number(x) : x;
    };
    const Tensor a = operand(0);
    switch (node.op) {
      case Op::neg: return numbers ? -a : 0 - a;  // 0 - a, because an integer 0 must not become -0
      case Op::abs: return abs(a);
      case Op::exp: return exp(a);
      case Op::tanh: return tanh(a);
      case Op::op_not: return logical_not(a);
      default: break;
    }
    const Tensor b = operand(1);
    switch (node.op) {
      case Op::add: return a + b;
      case Op::sub: return a - b;
      case Op::mul: return a * b;
      case Op::div: return a / b;
      case Op::floor_div: return elementwise(a, b, [](double x, double y) { return std::floor(x / y); });
      case Op::mod: return elementwise(a, b, [](double x, double y) { return x - y * std::floor(x / y); });
      case Op::min: return minimum(a, b);
      case Op::max: return maximum(a, b);
      case Op::lt: return lt(a, b);
      case Op::le: return le(a, b);
      case Op::gt: return gt(a, b);
      case Op::ge: return ge(a, b);
      case Op::eq: return eq(a, b);
      case Op::ne: return ne(a, b);
      case Op::op_and: return logical_and(a, b);
      case Op::op_or: return logical_or(a, b);
      default: return where(a, b, operand(2));
    }
  }

  const Call& call_;
  const LoweredProgram& lowered_;
  const Tensor scores_;
  const std::vector<Tensor>& tables_;
  const Tensor masked_;
  const bool apart_;
  bool finite_ = true;
  const ScoreValues values_;
  std::vector<Tensor> results_;
};

}  // namespace

Tensor modified_scores(const Call& call, const ScoreExpression& expression, const LoweredProgram& lowered,
                       const Tensor& scores, const std::vector<Tensor>& tables, const Tensor& masked) {
  if (scores.numel() == 0) return scores;
  Evaluation together(call, expression, lowered, scores, tables, masked, /*apart=*/false);
  const Tensor result = together.run();
  return together.finite() ? result
                           : Evaluation(call, expression, lowered, scores, tables, masked, /*apart=*/true).run();
}

}  // namespace attn
