// src/attention/score/score_derivative.cc: computes derivatives of score expressions as expressions, by the chain rule
// from the result back to the operands.
#include "attention/score/score_expression.h"

#include "runtime/format.h"

namespace attn {
namespace {

using Node = ScoreExpression::Node;
using Op = Node::Op;
using Kind = Node::Kind;

bool is_number(const ScoreExpression& x, double value) {
  return x.node()->op == Op::number && x.node()->number == value;
}

// the empty expression means a derivative that is 0 everywhere
ScoreExpression sum(const ScoreExpression& a, const ScoreExpression& b) {
  return a.empty() ? b : b.empty() ? a : a + b;
}
ScoreExpression product(const ScoreExpression& a, const ScoreExpression& b) {
  if (is_number(a, 1)) return b;
  if (is_number(b, 1)) return a;
  if (is_number(a, -1)) return -b;
  if (is_number(b, -1)) return -a;
  return a * b;
}

class Backward {
 public:
  Backward(const ScoreExpression& of, const ScoreExpression& by)
      : values_(of), of_(values_.values.size()), by_(static_cast<std::size_t>(values_.place(by))) {
    // find the values that depend on `by` through floating values
    depends_.resize(values_.values.size());
    for (std::size_t n = 0; n < depends_.size(); ++n) {
      depends_[n] = n == by_;
      for (const int part : values_.values[n].parts)
        depends_[n] = depends_[n] || depends_[static_cast<std::size_t>(part)];
      depends_[n] = depends_[n] && values_.values[n].node->kind == Kind::number;
    }
  }

  ScoreExpression run() {
    gradients_.resize(depends_.size());
    gradients_[of_ - 1] = 1.0;
    for (std::size_t n = of_; n-- > 0;)
      if (depends_[n] && !gradients_[n].empty() && n != by_) back(values_.values[n], gradients_[n]);
    return by_ < of_ && !gradients_[by_].empty() ? gradients_[by_] : ScoreExpression(0.0);
  }

 private:
  /// Returns operand n as an expression that shares the node of the value's tree.
  static ScoreExpression operand(const ScoreValues::Value& value, std::size_t n) {
    return ScoreExpression(value.node->parts[n]);
  }

  void give(const ScoreValues::Value& value, std::size_t n, const ScoreExpression& gradient) {
    const auto part = static_cast<std::size_t>(value.parts[n]);
    gradients_[part] = sum(gradients_[part], gradient);
  }
  bool wanted(const ScoreValues::Value& value, std::size_t n) const {
    return depends_[static_cast<std::size_t>(value.parts[n])];
  }

  void back(const ScoreValues::Value& value, const ScoreExpression& g) {
    for (std::size_t n = 0; n < value.parts.size(); ++n)
      if (wanted(value, n)) give(value, n, toward(value, n, g));
  }

  /// Returns g times the derivative of the operation by its operand n.
  static ScoreExpression toward(const ScoreValues::Value& value, std::size_t n, const ScoreExpression& g) {
    const auto x = [&](std::size_t place) { return operand(value, place); };
    switch (value.node->op) {
      case Op::add: return g;
      case Op::sub: return n == 0 ? g : -g;
      case Op::neg: return -g;
      case Op::mul: return product(g, x(1 - n));
      case Op::div: return n == 0 ? g / x(1) : -(product(g, x(0)) / (x(1) * x(1)));
      case Op::exp: return product(g, exp(x(0)));
      case Op::tanh: return product(g, 1.0 - tanh(x(0)) * tanh(x(0)));
      case Op::abs: return where(x(0) > 0.0, g, where(x(0) < 0.0, -g, 0.0));
      case Op::min: return where(x(n) < x(1 - n), g, where(x(n) == x(1 - n), product(g, 0.5), 0.0));
      case Op::max: return where(x(n) > x(1 - n), g, where(x(n) == x(1 - n), product(g, 0.5), 0.0));
      case Op::where: return n == 1 ? where(x(0), g, 0.0) : where(x(0), 0.0, g);
      default: return {};
    }
  }

  ScoreValues values_;
  std::size_t of_, by_;  // number of values of the expression; index of `by`
  std::vector<bool> depends_;
  std::vector<ScoreExpression> gradients_;
};

}  // namespace

ScoreExpression derivative(const ScoreExpression& of, const ScoreExpression& by) {
  if (by.empty() || by.node()->kind != Kind::number || (by.node()->op != Op::score && by.node()->op != Op::lookup))
    throw ValueError(runtime::format("derivative: by \"{}\"; it must be s or the lookup of a number",
                                     by.empty() ? "" : short_text(by)));
  if (of.empty()) return by.node()->op == Op::score ? 1.0 : 0.0;  // the empty expression is s itself
  if (of.node()->kind == Kind::condition)
    throw ValueError(runtime::format("derivative: \"{}\" is a condition; it must be a number", short_text(of)));
  return Backward(of, by).run();
}

}  // namespace attn
