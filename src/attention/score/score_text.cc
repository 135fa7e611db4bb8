// src/attention/score/score_text.cc: writes score expressions as text and parses them: "s - slope[h] * (i - j)".
#include "runtime/format.h"

#include "attention/score/score_expression.h"
#include "attention/text_cursor.h"
#include "runtime/floating_point.h"
#include "text/error_text.h"

#include <charconv>
#include <limits>
#include <ostream>
#include <string_view>

namespace attn {
namespace {

using Node = ScoreExpression::Node;
using Op = Node::Op;

/// A binary operator. `strength`: its precedence; a higher number binds tighter.
struct Infix {
  const char* sign;
  Op op;
  int strength;
};
constexpr int strength_or = 1, strength_and = 2, strength_comparison = 3, strength_sum = 4, strength_product = 5,
              strength_sign = 6;
// an operator stands before the operators that are prefixes of it
constexpr Infix infixes[] = {
    {"//", Op::floor_div, strength_product}, {"<=", Op::le, strength_comparison}, {">=", Op::ge, strength_comparison},
    {"==", Op::eq, strength_comparison},     {"!=", Op::ne, strength_comparison}, {"<", Op::lt, strength_comparison},
    {">", Op::gt, strength_comparison},      {"+", Op::add, strength_sum},        {"-", Op::sub, strength_sum},
    {"*", Op::mul, strength_product},        {"/", Op::div, strength_product},    {"%", Op::mod, strength_product},
    {"&", Op::op_and, strength_and},         {"|", Op::op_or, strength_or}};

const Infix* infix_of(Op op) {
  for (const Infix& infix : infixes)
    if (infix.op == op) return &infix;
  return nullptr;
}

// Limits the length of the text. It writes a shared node each time it occurs, so a small expression could have an
// endless text.
constexpr std::size_t most_text = 10000;

/// Writes an expression. Uses a list instead of recursion, because a tree may be deep.
class Writer {
 public:
  std::string text;

  void write(const Node& whole) {
    next_.push_back({&whole, "", 0});
    while (!next_.empty() && text.size() <= most_text) {
      const auto [node, sign, strength] = next_.back();
      next_.pop_back();
      if (node == nullptr) text += sign;
      else write(*node, strength);
    }
  }

 private:
  struct Piece {
    const Node* node;  // null: write `sign`
    std::string_view sign;
    int strength;  // precedence of the operator around it
  };

  void write(const Node& node, int strength) {
    if (const Infix* infix = infix_of(node.op)) {
      // Comparisons do not chain, and they are in parentheses next to & and |, so that the text means the same in C++
      // and in Python.
      const bool comparison = infix->strength == strength_comparison,
                 open = comparison ? strength > 0 : strength > infix->strength;
      if (open) text += '(', then(")");
      then(*node.parts[1], comparison ? strength_sum : infix->strength + 1);
      then(" ");
      then(infix->sign);
      then(" ");
      then(*node.parts[0], comparison ? strength_sum : infix->strength);
    } else if (node.op == Op::neg || node.op == Op::op_not) {
      if (strength > strength_sign) text += '(', then(")");
      // No parentheses between two signs, so that the text nests no deeper than the text it was read from. "--" is a
      // different operator in C++, hence the space.
      text += node.op == Op::op_not ? "~" : node.parts[0]->op == Op::neg ? "- " : "-";
      then(*node.parts[0], strength_sign);
    } else {
      write_leaf(node, strength);
    }
  }

  /// Schedules text or a node to be written before everything that was scheduled earlier.
  void then(std::string_view sign) { next_.push_back({nullptr, sign, 0}); }
  void then(const Node& node, int strength) { next_.push_back({&node, "", strength}); }

  void write_leaf(const Node& node, int strength) {
    switch (node.op) {
      case Op::number: return constant(number(node.number), strength);
      case Op::whole: return constant(std::to_string(node.whole), strength);
      case Op::score: text += 's'; return;
      case Op::batch: text += 'b'; return;
      case Op::head: text += 'h'; return;
      case Op::key: text += 'j'; return;
      case Op::row:
        text += node.align == Align::unset ? "i" : node.align == Align::top_left ? "i(top_left)" : "i(bottom_right)";
        return;
      case Op::lookup:
        text += node.name;
        if (!node.parts.empty()) list(node, "[", "]");
        return;
      case Op::abs: text += "abs"; break;
      case Op::exp: text += "exp"; break;
      case Op::tanh: text += "tanh"; break;
      case Op::min: text += "min"; break;
      case Op::max: text += "max"; break;
      default: text += "where";
    }
    list(node, "(", ")");
  }

  void list(const Node& node, std::string_view open, std::string_view close) {
    text += open;
    then(close);
    for (std::size_t n = node.parts.size(); n-- > 0;) {
      then(*node.parts[n], 0);
      if (n > 0) then(", ");
    }
  }

  void constant(const std::string& digits, int strength) {
    const bool open = digits[0] == '-' && strength > strength_sum;
    text += open ? "(" + digits + ")" : digits;
  }

  /// Returns the shortest text that reads back to the same number; it never looks like an integer.
  static std::string number(double value) {
    std::string digits = runtime::format("{}", value);
    if (digits.find_first_not_of("-0123456789") == std::string::npos) digits += ".0";
    return digits;
  }

  std::vector<Piece> next_;
};

// The deepest nesting of parentheses and signs, so that a long text cannot overflow a stack; a thread may have only 256
// KiB.
constexpr int most_levels = 100;

/// Parses by precedence, from the lowest: |, &, comparisons (which do not chain), sums, products, signs, terms.
class Parser : TextCursor {
 public:
  Parser(const std::string& text, const std::vector<std::pair<std::string, Tensor>>& tensors)
      : TextCursor("ScoreExpression::parse", text), tensors_(tensors) {}

  ScoreExpression whole() {
    const ScoreExpression result = joined(strength_or);
    if (skip() < text_.size()) fail("an operator was expected");
    return result;
  }

 private:
  /// Parses operators of precedence `least` or higher, from left to right.
  ScoreExpression joined(int least) {
    ScoreExpression left = sign();
    int most = strength_product;
    while (const Infix* infix = take_infix(least, most)) {
      const std::size_t start = place_;
      const ScoreExpression right = joined(infix->strength + 1);
      left = made(start, [&] { return join(infix->op, left, right); });
      most = infix->strength - (infix->strength == strength_comparison ? 1 : 0);  // comparisons do not chain
    }
    return left;
  }

  static ScoreExpression join(Op op, const ScoreExpression& a, const ScoreExpression& b) {
    switch (op) {
      case Op::add: return a + b;
      case Op::sub: return a - b;
      case Op::mul: return a * b;
      case Op::div: return a / b;
      case Op::floor_div: return floor_divide(a, b);
      case Op::mod: return a % b;
      case Op::lt: return a < b;
      case Op::le: return a <= b;
      case Op::gt: return a > b;
      case Op::ge: return a >= b;
      case Op::eq: return a == b;
      case Op::ne: return a != b;
      case Op::op_and: return a & b;
      default: return a | b;
    }
  }

  ScoreExpression sign() {
    if (++level_ > most_levels) fail(runtime::format("it is nested more than {} deep", most_levels));
    const std::size_t start = skip();
    const bool minus = take('-'), negation = !minus && take('~');
    const ScoreExpression operand = minus || negation ? sign() : term();
    --level_;
    if (minus) return made(start, [&] { return -operand; });
    return negation ? made(start, [&] { return ~operand; }) : operand;
  }

  ScoreExpression term() {
    const std::size_t start = skip();
    if (take('(')) {
      const ScoreExpression inner = joined(strength_or);
      close(')');
      return inner;
    }
    if (start < text_.size() && (digit(text_[start]) || text_[start] == '.')) return constant();
    const std::string name = word();
    for (const auto& [known, tensor] : tensors_)
      if (name == known) return lookup(start, name, tensor);
    if (name == "s") return ScoreExpression::score();
    if (name == "b") return ScoreExpression::batch();
    if (name == "h") return ScoreExpression::head();
    if (name == "i") return row();
    if (name == "j") return ScoreExpression::key();
    if (name == "inf") return std::numeric_limits<double>::infinity();
    return function(start, name);
  }

  ScoreExpression row() {
    if (!take('(')) return ScoreExpression::row();
    const Align align = alignment();
    close(')');
    return ScoreExpression::row(align);
  }

  ScoreExpression function(std::size_t start, const std::string& name) {
    const std::size_t count = name == "exp" || name == "tanh" || name == "abs" ? 1
                              : name == "min" || name == "max"                 ? 2
                              : name == "where"                                ? 3
                                                                               : 0;
    if (count == 0) {
      const bool table = !name.empty() && take('[');
      place_ = start;
      if (table)
        fail(runtime::format("there is no tensor {}{}", name,
                             tensors_.empty() ? "; none is given" : "; there are " + names_of_tensors().substr(2)));
      fail(runtime::format("one of s, b, h, i, j, a number, exp, tanh, abs, min, max, where{} was expected",
                           names_of_tensors()));
    }
    if (!take('(')) fail(runtime::format("{}(...) was expected", name));
    std::vector<ScoreExpression> x{joined(strength_or)};
    while (take(',')) x.push_back(joined(strength_or));
    close(')');
    if (x.size() != count) {
      place_ = start;
      fail(runtime::format("{} takes {} operand{}, not {}", name, count, count == 1 ? "" : "s", x.size()));
    }
    return made(start, [&]() -> ScoreExpression {
      if (name == "exp") return exp(x[0]);
      if (name == "tanh") return tanh(x[0]);
      if (name == "abs") return abs(x[0]);
      if (name == "min") return min(x[0], x[1]);
      if (name == "max") return max(x[0], x[1]);
      return where(x[0], x[1], x[2]);
    });
  }

  ScoreExpression lookup(std::size_t start, const std::string& name, const Tensor& tensor) {
    std::vector<ScoreExpression> index;
    if (take('[')) {
      index.push_back(joined(strength_or));
      while (take(',')) index.push_back(joined(strength_or));
      close(']');
    }
    return made(start, [&] { return ScoreTable(tensor, name).at(index); });
  }

  std::string names_of_tensors() const {
    std::string names;
    for (const auto& [name, tensor] : tensors_) names += ", " + name;
    return names;
  }

  ScoreExpression constant() {
    const char *begin = text_.data() + place_, *end = text_.data() + text_.size();
    std::int64_t whole = 0;
    const auto [stop, error] = std::from_chars(begin, end, whole);
    const bool is_whole = error == std::errc() && (stop == end || (*stop != '.' && *stop != 'e' && *stop != 'E'));
    double number = 0;
    const auto [number_stop, number_error] = std::from_chars(begin, end, number);
    if (!is_whole && number_error != std::errc()) fail("a number within the range of f64 was expected");
    place_ += static_cast<std::size_t>((is_whole ? stop : number_stop) - begin);
    return is_whole ? ScoreExpression(whole) : ScoreExpression(number);
  }

  /// Calls an operation that may throw, and adds the position in the text to its error.
  template <typename F>
  ScoreExpression made(std::size_t start, F&& operation) {
    const auto fail_at_start = [&](const std::string& why) {
      place_ = start;
      const std::size_t colon = why.find(": ");
      fail(colon == std::string::npos ? why : why.substr(colon + 2));
    };
    try {
      return operation();
    } catch (const ShapeError& error) { fail_at_start(error.what()); } catch (const ValueError& error) {
      fail_at_start(error.what());
    }
    return {};
  }

  void close(char sign) {
    if (!take(sign)) fail(runtime::format("a closing {} was expected", sign));
  }

  const Infix* take_infix(int least, int most) {
    skip();
    const std::string_view rest = std::string_view(text_).substr(place_);
    for (const Infix& infix : infixes) {
      if (!rest.starts_with(infix.sign)) continue;
      if (infix.strength < least || infix.strength > most) return nullptr;
      place_ += std::string_view(infix.sign).size();
      return &infix;
    }
    return nullptr;
  }

  const std::vector<std::pair<std::string, Tensor>>& tensors_;
  int level_ = 0;
};

}  // namespace

std::string ScoreExpression::to_string() const {
  if (empty()) return "s";
  Writer writer;
  writer.write(*node_);
  if (writer.text.size() <= most_text) return writer.text;
  return std::string(text::beginning(writer.text, most_text)) + " ...";
}

std::ostream& operator<<(std::ostream& out, const ScoreExpression& expression) { return out << expression.to_string(); }

std::string short_text(const ScoreExpression& expression) {
  constexpr std::size_t most_shown = 100;
  const std::string text = expression.to_string();
  return text.size() <= most_shown ? text : std::string(text::beginning(text, most_shown)) + " ...";
}

ScoreExpression ScoreExpression::parse(const std::string& text,
                                       const std::vector<std::pair<std::string, Tensor>>& tensors) {
  const runtime::DefaultFloatingPoint floating_point;
  return Parser(text, tensors).whole();
}

}  // namespace attn
