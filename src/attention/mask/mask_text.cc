// src/attention/mask/mask_text.cc: writes masks as text and parses them: "causal(bottom_right) & ~window(3, 0)".
#include "attention/mask/mask_expression.h"
#include "attention/operand_text.h"
#include "attention/text_cursor.h"

#include "runtime/format.h"

#include <charconv>
#include <ostream>
#include <string_view>

namespace attn {
namespace {

using Expression = Mask::Expression;
using Kind = Expression::Kind;

std::string leaf_text(const Expression& e) {
  const std::string align = name_of(e.align);
  switch (e.kind) {
    case Kind::causal: return align.empty() ? "causal" : runtime::format("causal({})", align);
    case Kind::window: return runtime::format("window({}, {}{}{})", e.left, e.right, align.empty() ? "" : ", ", align);
    case Kind::prefix:
      return e.first.defined() ? runtime::format("prefix({})", shape_of(e.first)) : runtime::format("prefix({})", e.n);
    case Kind::documents: return runtime::format("documents({})", shape_of(e.first));
    case Kind::blocks: return runtime::format("blocks({}, {}, {})", shape_of(e.first), e.block_rows, e.block_keys);
    case Kind::dense: return runtime::format("{}({})", e.name, shape_of(e.first));
    default: return "none";
  }
}

/// Writes the expression. Uses a list instead of recursion, because a tree may be deep.
std::string text_of(const Expression& whole) {
  struct Piece {
    const Expression* e;  // null: write `sign`
    const char* sign;
    int strength;  // precedence of the operator around it: | 1, & 2, ~ 3
  };
  std::vector<Piece> next{{&whole, "", 0}};
  std::string text;
  while (!next.empty()) {
    const auto [e, sign, strength] = next.back();
    next.pop_back();
    if (e == nullptr) {
      text += sign;
    } else if (e->kind == Kind::negation) {
      text += '~';
      next.push_back({e->a.get(), "", 3});
    } else if (e->kind == Kind::both || e->kind == Kind::either) {
      const int own = e->kind == Kind::both ? 2 : 1;
      if (own < strength) text += '(', next.push_back({nullptr, ")", 0});
      next.insert(next.end(), {{e->b.get(), "", own}, {nullptr, own == 2 ? " & " : " | ", 0}, {e->a.get(), "", own}});
    } else {
      text += leaf_text(*e);
    }
  }
  return text;
}

constexpr int most_terms = 1000;
constexpr int most_levels = 100;  // of parentheses; deeper nesting could overflow the 256 KiB stack of a thread

/// The grammar:
/// either := both ('|' both)*
/// both := term ('&' term)*
/// term := '~' term | '(' either ')' | name [ '(' arguments ')' ]
class Parser : TextCursor {
 public:
  explicit Parser(const std::string& text) : TextCursor("Mask::parse", text) {}

  Mask whole() {
    const Mask mask = either();
    if (skip() < text_.size()) fail("an operator, & or |, was expected");
    return mask;
  }

 private:
  Mask either() {
    Mask mask = both();
    while (take('|')) mask = mask | both();
    return mask;
  }

  Mask both() {
    Mask mask = term();
    while (take('&')) mask = mask & term();
    return mask;
  }

  Mask term() {
    int negations = 0;
    for (; take('~'); ++negations) count();
    Mask mask = operand();
    while (negations-- > 0) mask = ~mask;
    return mask;
  }

  void count() {
    if (++terms_ > most_terms) fail(runtime::format("there are more than {} terms", most_terms));
  }

  Mask operand() {
    count();
    if (take('(')) {
      if (++level_ > most_levels) fail(runtime::format("it is nested more than {} deep", most_levels));
      const Mask mask = either();
      --level_;
      if (!take(')')) fail("a closing parenthesis was expected");
      return mask;
    }
    const std::size_t start = skip();
    const std::string name = word();
    if (name == "causal") return causal();
    if (name == "window") return window();
    if (name == "prefix") return prefix();
    if (name == "all") return Mask::all();
    if (name == "none") return Mask::none();
    place_ = start;
    fail("a mask was expected: causal, window(left, right), prefix(n), all, none");
  }

  Mask causal() {
    if (!take('(')) return Mask::causal();
    const Align align = alignment();
    close();
    return Mask::causal(align);
  }

  Mask window() {
    open("window(left, right)");
    const std::int64_t left = number(-1);
    if (!take(',')) fail("a comma and the keys to the right were expected");
    const std::int64_t right = number(-1);
    const Align align = take(',') ? alignment() : Align::unset;
    close();
    return Mask::window(left, right, align);
  }

  Mask prefix() {
    open("prefix(n)");
    const std::int64_t n = number(0);
    close();
    return Mask::prefix(n);
  }

  void open(const char* form) {
    if (!take('(')) fail(runtime::format("{} was expected", form));
  }
  void close() {
    if (!take(')')) fail("a closing parenthesis was expected");
  }

  std::int64_t number(std::int64_t least) {
    skip();
    std::int64_t value = 0;
    const char* begin = text_.data() + place_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc() || value < least)
      fail(runtime::format("a whole number of at least {} was expected", least));
    place_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  int terms_ = 0, level_ = 0;
};

}  // namespace

std::string Mask::to_string() const { return expression_ ? text_of(*expression_) : "all"; }
std::ostream& operator<<(std::ostream& out, const Mask& mask) { return out << mask.to_string(); }

Mask Mask::parse(const std::string& text) { return Parser(text).whole(); }

}  // namespace attn
