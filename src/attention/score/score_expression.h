// src/attention/score/score_expression.h: defines the expression tree of a ScoreExpression, and lists its distinct
// values in order.
#pragma once
#include <attn/score.h>

#include <cstdint>
#include <map>
#include <set>

namespace attn {

struct ScoreExpression::Node {
  // Operations from `neg` on have one operand, those from `add` on two, and `where` has three. A lookup has one index
  // expression per dim.
  enum class Op : std::uint8_t {
    number,
    whole,
    score,
    batch,
    head,
    row,
    key,
    neg,
    abs,
    exp,
    tanh,
    op_not,
    add,
    sub,
    mul,
    div,
    floor_div,
    mod,
    min,
    max,
    lt,
    le,
    gt,
    ge,
    eq,
    ne,
    op_and,
    op_or,
    where,
    lookup
  };
  enum class Kind : std::uint8_t { number, whole, condition };
  using Part = std::shared_ptr<const Node>;

  Op op = Op::number;
  Kind kind = Kind::number;
  Align align = Align::unset;  // row
  double number = 0;           // number
  std::int64_t whole = 0;      // whole
  Tensor tensor = {};          // lookup
  std::string name = {};       // lookup: name of the tensor
  mutable std::vector<Part> parts = {};
  mutable Part next = {};  // next node in the list of nodes to free
  int depth = 1;           // height of the tree; bounded

  ~Node() { let_go(); }

 private:
  void let_go() noexcept;  // frees the tree without recursion and without allocating, for any depth
};

/// Calls visit(part) once for the root and each node below it, operands before the nodes that use them. Uses a list
/// instead of recursion, because a tree may be deep.
template <typename F>
void for_each_part(const ScoreExpression::Node::Part& root, F&& visit) {
  std::vector<const ScoreExpression::Node::Part*> next{&root};
  std::set<const ScoreExpression::Node*> seen;
  while (!next.empty()) {
    const ScoreExpression::Node::Part& part = *next.back();
    const std::size_t before = next.size();
    if (!seen.contains(part.get()))
      for (std::size_t n = part->parts.size(); n-- > 0;)
        if (!seen.contains(part->parts[n].get())) next.push_back(&part->parts[n]);
    if (next.size() > before) continue;
    if (seen.insert(part.get()).second) visit(part);
    next.pop_back();
  }
}

/// The distinct values of an expression, operands before the values that use them, the whole expression last. Equal
/// subexpressions are one value.
struct ScoreValues {
  struct Value {
    const ScoreExpression::Node* node;
    std::vector<int> parts;  // indices in `values`
  };
  std::vector<Value> values;

  explicit ScoreValues(const ScoreExpression& expression);
  /// Adds another expression's values, unless they are known, and returns the index of its result.
  int place(const ScoreExpression& expression);

 private:
  std::map<std::vector<std::uint64_t>, int> known_;
  std::map<const ScoreExpression::Node*, int> visited_;
};

/// Returns the text for an error message, shortened if it is long.
std::string short_text(const ScoreExpression& expression);

inline bool is_whole(const ScoreExpression::Node& node) { return node.kind == ScoreExpression::Node::Kind::whole; }

}  // namespace attn
