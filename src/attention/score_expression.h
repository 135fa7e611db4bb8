// src/attention/score_expression.h: the tree behind a ScoreExpression, and its distinct values in order.
#pragma once
#include <attn/score.h>

#include <cstdint>
#include <map>

namespace attn {

struct ScoreExpression::Node {
  // Those from `neg` on have one operand, from `add` two, `where` three; `lookup` an index for each dim.
  enum class Op : std::uint8_t {
    number, whole, score, batch, head, row, key,
    neg, abs, exp, tanh, op_not,
    add, sub, mul, div, floor_div, mod, min, max, lt, le, gt, ge, eq, ne, op_and, op_or,
    where, lookup
  };
  enum class Kind : std::uint8_t { number, whole, condition };
  using Part = std::shared_ptr<const Node>;

  Op op = Op::number;
  Kind kind = Kind::number;
  Align align = Align::unset;   // row
  double number = 0;            // number
  std::int64_t whole = 0;       // whole
  Tensor tensor = {};           // lookup
  std::string name = {};        // lookup: of the tensor
  std::vector<Part> parts = {};
  int depth = 1;                // levels of the tree: bounded, because it is walked by recursion
};

/// The expression's distinct values, operands before what uses them, the expression itself last. Equal subexpressions are one value.
struct ScoreValues {
  struct Value {
    const ScoreExpression::Node* node;
    std::vector<int> parts;  // places in `values`
  };
  std::vector<Value> values;

  explicit ScoreValues(const ScoreExpression& expression);
  /// The place of another expression's value among them, added where it is new.
  int place(const ScoreExpression& expression) { return add(*expression.node()); }

 private:
  int add(const ScoreExpression::Node& node);
  std::map<std::vector<std::uint64_t>, int> known_;
  std::map<const ScoreExpression::Node*, int> visited_;
};

/// As errors show it: a part where it is long.
std::string short_text(const ScoreExpression& expression);

inline bool is_whole(const ScoreExpression::Node& node) { return node.kind == ScoreExpression::Node::Kind::whole; }

}  // namespace attn
