// src/attention/score/score_expression.cc: implements the operations of score expressions, checks the kinds of their
// operands, and collects the distinct values of an expression.
#include "attention/score/score_expression.h"

#include "runtime/format.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace attn {
namespace {

using Node = ScoreExpression::Node;
using Op = Node::Op;
using Kind = Node::Kind;

constexpr int most_depth = 1000;

ScoreExpression make(Node node) {
  for (const Node::Part& part : node.parts) node.depth = std::max(node.depth, part->depth + 1);
  if (node.depth > most_depth)
    throw ValueError(runtime::format("ScoreExpression: the expression is more than {} levels deep", most_depth));
  return ScoreExpression(std::make_shared<const Node>(std::move(node)));
}

const Node::Part& part_of(const char* function, const ScoreExpression& x) {
  if (x.empty()) throw ValueError(runtime::format("ScoreExpression: an operand of {} is empty", function));
  return x.node();
}

[[noreturn]] void wrong_kind(const char* function, const ScoreExpression& x, const char* needed) {
  const Kind kind = x.node()->kind;
  throw ValueError(runtime::format("ScoreExpression: {} takes {}; \"{}\" is {}", function, needed, short_text(x),
                                   kind == Kind::condition ? "a condition: where(condition, 1.0, 0.0) is a number"
                                   : kind == Kind::whole   ? "a whole number"
                                                           : "a number"));
}

void check_arithmetic(const char* function, const ScoreExpression& x) {
  if (part_of(function, x)->kind == Kind::condition) wrong_kind(function, x, "numbers");
}
void check_condition(const char* function, const ScoreExpression& x) {
  if (part_of(function, x)->kind != Kind::condition) wrong_kind(function, x, "conditions");
}
void check_whole(const char* function, const ScoreExpression& x) {
  if (part_of(function, x)->kind != Kind::whole) wrong_kind(function, x, "whole numbers");
}

/// Returns the kind of the result of a and b: integer if both are integers, else floating.
Kind joined(const ScoreExpression& a, const ScoreExpression& b) {
  return is_whole(*a.node()) && is_whole(*b.node()) ? Kind::whole : Kind::number;
}

ScoreExpression arithmetic(Op op, const char* function, const ScoreExpression& a, const ScoreExpression& b) {
  check_arithmetic(function, a);
  check_arithmetic(function, b);
  return make({.op = op, .kind = op == Op::div ? Kind::number : joined(a, b), .parts = {a.node(), b.node()}});
}
ScoreExpression of_whole(Op op, const char* function, const ScoreExpression& a, const ScoreExpression& b) {
  check_whole(function, a);
  check_whole(function, b);
  return make({.op = op, .kind = Kind::whole, .parts = {a.node(), b.node()}});
}
ScoreExpression comparison(Op op, const char* function, const ScoreExpression& a, const ScoreExpression& b) {
  check_arithmetic(function, a);
  check_arithmetic(function, b);
  return make({.op = op, .kind = Kind::condition, .parts = {a.node(), b.node()}});
}
ScoreExpression logic(Op op, const char* function, const ScoreExpression& a, const ScoreExpression& b) {
  check_condition(function, a);
  check_condition(function, b);
  return make({.op = op, .kind = Kind::condition, .parts = {a.node(), b.node()}});
}
ScoreExpression function_of(Op op, const char* function, const ScoreExpression& a) {
  check_arithmetic(function, a);
  const bool keeps = op == Op::neg || op == Op::abs;
  return make({.op = op, .kind = keeps ? a.node()->kind : Kind::number, .parts = {a.node()}});
}

}  // namespace

void Node::let_go() noexcept {
  Node::Part list;  // a list of nodes to free, linked by their own `next`
  const auto take = [&list](const Node& node) {
    for (Part& part : node.parts) {
      if (part.use_count() != 1) {
        part.reset();
        continue;
      }
      // `part` is the last handle of its node. Copying and dropping a handle writes the reference count, which makes
      // the writes visible that other threads made before they dropped their handles.
      Part(part).reset();
      part->next = std::move(list);
      list = std::move(part);
    }
  };
  take(*this);
  while (list != nullptr) {
    const Part part = std::move(list);
    list = std::move(part->next);
    take(*part);
  }
}

ScoreExpression ScoreExpression::score() { return make({.op = Op::score}); }
ScoreExpression ScoreExpression::batch() { return make({.op = Op::batch, .kind = Kind::whole}); }
ScoreExpression ScoreExpression::head() { return make({.op = Op::head, .kind = Kind::whole}); }
ScoreExpression ScoreExpression::row(Align align) { return make({.op = Op::row, .kind = Kind::whole, .align = align}); }
ScoreExpression ScoreExpression::key() { return make({.op = Op::key, .kind = Kind::whole}); }
ScoreExpression ScoreExpression::number(double value) { return make({.op = Op::number, .number = value}); }
ScoreExpression ScoreExpression::whole(std::int64_t value) {
  return make({.op = Op::whole, .kind = Kind::whole, .whole = value});
}

ScoreExpression ScoreExpression::aligned(Align align) const {
  if (empty()) return *this;
  std::map<const Node*, Node::Part> done;  // maps old nodes to new ones, so that shared nodes stay shared
  for_each_part(node_, [&](const Node::Part& part) {
    Node node = *part;
    for (Node::Part& inner : node.parts) inner = done.at(inner.get());
    const bool changed = node.parts != part->parts, aligned = node.op == Op::row && node.align == Align::unset;
    if (aligned) node.align = align;
    done[part.get()] = changed || aligned ? std::make_shared<const Node>(std::move(node)) : part;
  });
  return ScoreExpression(done.at(node_.get()));
}

ScoreExpression operator+(const ScoreExpression& a, const ScoreExpression& b) { return arithmetic(Op::add, "+", a, b); }
ScoreExpression operator-(const ScoreExpression& a, const ScoreExpression& b) { return arithmetic(Op::sub, "-", a, b); }
ScoreExpression operator*(const ScoreExpression& a, const ScoreExpression& b) { return arithmetic(Op::mul, "*", a, b); }
ScoreExpression operator/(const ScoreExpression& a, const ScoreExpression& b) { return arithmetic(Op::div, "/", a, b); }
ScoreExpression floor_divide(const ScoreExpression& a, const ScoreExpression& b) {
  return of_whole(Op::floor_div, "//", a, b);
}
ScoreExpression operator%(const ScoreExpression& a, const ScoreExpression& b) { return of_whole(Op::mod, "%", a, b); }
ScoreExpression min(const ScoreExpression& a, const ScoreExpression& b) { return arithmetic(Op::min, "min", a, b); }
ScoreExpression max(const ScoreExpression& a, const ScoreExpression& b) { return arithmetic(Op::max, "max", a, b); }
ScoreExpression abs(const ScoreExpression& a) { return function_of(Op::abs, "abs", a); }
ScoreExpression exp(const ScoreExpression& a) { return function_of(Op::exp, "exp", a); }
ScoreExpression tanh(const ScoreExpression& a) { return function_of(Op::tanh, "tanh", a); }

ScoreExpression operator-(const ScoreExpression& a) {
  check_arithmetic("-", a);
  if (a.node()->op == Op::number) return -a.node()->number;  // the negative of a constant is a constant
  if (a.node()->op == Op::whole && a.node()->whole != std::numeric_limits<std::int64_t>::min()) return -a.node()->whole;
  return function_of(Op::neg, "-", a);
}

ScoreExpression operator<(const ScoreExpression& a, const ScoreExpression& b) { return comparison(Op::lt, "<", a, b); }
ScoreExpression operator<=(const ScoreExpression& a, const ScoreExpression& b) {
  return comparison(Op::le, "<=", a, b);
}
ScoreExpression operator>(const ScoreExpression& a, const ScoreExpression& b) { return comparison(Op::gt, ">", a, b); }
ScoreExpression operator>=(const ScoreExpression& a, const ScoreExpression& b) {
  return comparison(Op::ge, ">=", a, b);
}
ScoreExpression operator==(const ScoreExpression& a, const ScoreExpression& b) {
  return comparison(Op::eq, "==", a, b);
}
ScoreExpression operator!=(const ScoreExpression& a, const ScoreExpression& b) {
  return comparison(Op::ne, "!=", a, b);
}
ScoreExpression operator&(const ScoreExpression& a, const ScoreExpression& b) { return logic(Op::op_and, "&", a, b); }
ScoreExpression operator|(const ScoreExpression& a, const ScoreExpression& b) { return logic(Op::op_or, "|", a, b); }
ScoreExpression operator~(const ScoreExpression& a) {
  check_condition("~", a);
  return make({.op = Op::op_not, .kind = Kind::condition, .parts = {a.node()}});
}

ScoreExpression where(const ScoreExpression& condition, const ScoreExpression& a, const ScoreExpression& b) {
  if (part_of("where", condition)->kind != Kind::condition) wrong_kind("where", condition, "a condition first");
  check_arithmetic("where", a);
  check_arithmetic("where", b);
  return make({.op = Op::where, .kind = joined(a, b), .parts = {condition.node(), a.node(), b.node()}});
}

// --- lookups -------------------------------------------------------------------------------------------------------

ScoreTable::ScoreTable(const Tensor& values, std::string name) : values_(values), name_(std::move(name)) {
  if (!values.defined()) throw ValueError(runtime::format("ScoreTable: {} is undefined", name_));
  if (values.dim() > 4)
    throw ShapeError(
        runtime::format("ScoreTable: {} has shape {}; its rank must be at most 4", name_, to_string(values.sizes())));
}

ScoreExpression ScoreTable::at(const std::vector<ScoreExpression>& index) const {
  if (static_cast<int>(index.size()) != values_.dim())
    throw ShapeError(runtime::format("ScoreTable: {} {} is looked up with {} ind{}; it needs {}", name_,
                                     to_string(values_.sizes()), index.size(), index.size() == 1 ? "ex" : "ices",
                                     values_.dim()));
  const Kind kind = values_.dtype() == Dtype::boolean ? Kind::condition
                    : is_integral(values_.dtype())    ? Kind::whole
                                                      : Kind::number;
  Node node{.op = Op::lookup, .kind = kind, .tensor = values_, .name = name_};
  for (const ScoreExpression& x : index) {
    check_whole("a lookup", x);
    node.parts.push_back(x.node());
  }
  return make(std::move(node));
}

const Tensor& ScoreExpression::tensor() const {
  if (empty() || node_->op != Op::lookup)
    throw ValueError(runtime::format("ScoreExpression: \"{}\" is not a lookup", short_text(*this)));
  return node_->tensor;
}

std::vector<ScoreExpression> ScoreExpression::index() const {
  tensor();
  std::vector<ScoreExpression> result;
  for (const Node::Part& part : node_->parts) result.emplace_back(part);
  return result;
}

std::vector<ScoreExpression> ScoreExpression::lookups() const {
  std::vector<ScoreExpression> result;
  if (empty()) return result;
  std::map<const Node*, Node::Part> parts;  // owners of the distinct values
  for_each_part(node_, [&](const Node::Part& part) { parts[part.get()] = part; });
  for (const ScoreValues::Value& value : ScoreValues(*this).values)
    if (value.node->op == Op::lookup && value.node->kind == Kind::number) result.emplace_back(parts.at(value.node));
  return result;
}

// --- distinct values ------------------------------------------------------------------------------------------------

ScoreValues::ScoreValues(const ScoreExpression& expression) { place(expression); }

int ScoreValues::place(const ScoreExpression& expression) {
  for_each_part(expression.node(), [&](const Node::Part& part) {
    const Node& node = *part;
    if (visited_.contains(&node)) return;
    Value value{.node = &node, .parts = {}};
    std::vector<std::uint64_t> key{static_cast<std::uint64_t>(node.op) << 8 | static_cast<std::uint64_t>(node.align),
                                   static_cast<std::uint64_t>(node.whole), std::bit_cast<std::uint64_t>(node.number),
                                   reinterpret_cast<std::uint64_t>(node.tensor.impl())};
    for (const Node::Part& inner : node.parts) {
      value.parts.push_back(visited_.at(inner.get()));
      key.push_back(static_cast<std::uint64_t>(value.parts.back()));
    }
    const auto [known, fresh] = known_.try_emplace(std::move(key), static_cast<int>(values.size()));
    if (fresh) values.push_back(std::move(value));
    visited_[&node] = known->second;
  });
  return visited_.at(expression.node().get());
}

}  // namespace attn
