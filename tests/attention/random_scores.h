// tests/attention/random_scores.h: random score expressions, each with a plain function of C++ that computes the same.
#pragma once
#include <attn/ops.h>
#include <attn/random.h>
#include <attn/score.h>

#include "kernels/reference.h"

#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace attn::testing {

/// A pair and its score, T the compute type.
template <typename T>
struct Place {
  std::int64_t b, h, i, j;
  T s;
};

/// An expression and what it means, said without it.
template <typename V, typename T>
struct Meaning {
  ScoreExpression expression;
  std::function<V(const Place<T>&)> value;
};

template <typename T>
class RandomScores {
 public:
  using Number = Meaning<T, T>;
  using Whole = Meaning<std::int64_t, T>;
  using Condition = Meaning<bool, T>;

  /// `tame`: results stay within +-30 and are numbers.
  RandomScores(unsigned seed, std::int64_t batch, std::int64_t heads, bool tame) : random_(seed), tame_(tame) {
    manual_seed(seed);
    const Dtype dtype = dtype_of<T>;
    by_head_ = randn({heads}, dtype);
    by_batch_head_ = randn({heads, batch}, dtype).transpose(0, 1);
    table_ = randn({13, 7}, dtype);
    wide_ = randn({2, 3, 5, 4}, Dtype::bf16).to(tame ? dtype : Dtype::bf16);
    scalar_ = full({}, 0.75, dtype);
    buckets_ = randint(-9, 40, {31});
    flags_ = gt(randn({11}), 0);
  }

  Number tree(int depth) {
    Number x = number(depth);
    if (!tame_) return x;
    return {max(min(x.expression, 30), -30.0),
            [f = x.value](const Place<T>& p) { return std::max(std::min(f(p), T(30)), T(-30)); }};
  }

 private:
  int pick(int count) { return std::uniform_int_distribution<int>(0, count - 1)(random_); }

  static T unary(kernels::Unary op, T x) {
    T y;
    kernels::reference().unary(op, sizeof(T) == 8 ? kernels::Element::f64 : kernels::Element::f32, &x, &y, 1);
    return y;
  }
  static T smaller(T a, T b) { return std::isnan(a) ? a : std::isnan(b) ? b : b < a ? b : a; }
  static T larger(T a, T b) { return std::isnan(a) ? a : std::isnan(b) ? b : a < b ? b : a; }

  Number number(int depth) {
    if (depth == 0) return leaf();
    switch (pick(15)) {
      case 0: return both(depth, [](auto a, auto b) { return a + b; });
      case 1: return both(depth, [](auto a, auto b) { return a - b; });
      case 2: return both(depth, [](auto a, auto b) { return a * b; });
      case 3: {
        const Number a = number(depth - 1), b = number(depth - 1);
        if (!tame_) return {a.expression / b.expression, [=](const Place<T>& p) { return a.value(p) / b.value(p); }};
        return {a.expression / (1 + abs(b.expression)),
                [=](const Place<T>& p) { return a.value(p) / (T(1) + std::abs(b.value(p))); }};
      }
      case 4: {
        const Number a = number(depth - 1);
        if (!tame_)
          return {exp(a.expression), [=](const Place<T>& p) { return unary(kernels::Unary::exp, a.value(p)); }};
        return {exp(min(a.expression, 3)),
                [=](const Place<T>& p) { return unary(kernels::Unary::exp, smaller(a.value(p), T(3))); }};
      }
      case 5: {
        const Number a = number(depth - 1);
        return {tanh(a.expression), [=](const Place<T>& p) { return unary(kernels::Unary::tanh, a.value(p)); }};
      }
      case 6: {
        const Number a = number(depth - 1);
        return {abs(a.expression), [=](const Place<T>& p) { return std::abs(a.value(p)); }};
      }
      case 7: {
        const Number a = number(depth - 1);
        return {-a.expression, [=](const Place<T>& p) { return -a.value(p); }};
      }
      case 8: {
        const Number a = number(depth - 1), b = number(depth - 1);
        return {min(a.expression, b.expression), [=](const Place<T>& p) { return smaller(a.value(p), b.value(p)); }};
      }
      case 9: {
        const Number a = number(depth - 1), b = number(depth - 1);
        return {max(a.expression, b.expression), [=](const Place<T>& p) { return larger(a.value(p), b.value(p)); }};
      }
      case 10: {
        const Condition c = condition(depth - 1);
        const Number a = number(depth - 1), b = number(depth - 1);
        return {where(c.expression, a.expression, b.expression),
                [=](const Place<T>& p) { return c.value(p) ? a.value(p) : b.value(p); }};
      }
      case 11: {
        const Number a = number(depth - 1);
        const Whole b = whole(depth - 1);
        return {a.expression - b.expression * 0.125,
                [=](const Place<T>& p) { return a.value(p) - static_cast<T>(b.value(p)) * T(0.125); }};
      }
      case 12: {
        const Whole a = whole(depth - 1), b = whole(depth - 1);
        return {a.expression / (abs(b.expression) + 1), [=](const Place<T>& p) {
                  return static_cast<T>(a.value(p)) / static_cast<T>(std::abs(b.value(p)) + 1);
                }};
      }
      default: return lookup(depth);
    }
  }

  template <typename F>
  Number both(int depth, F f) {
    const Number a = number(depth - 1), b = number(depth - 1);
    return {f(a.expression, b.expression), [=](const Place<T>& p) { return f(a.value(p), b.value(p)); }};
  }

  Number leaf() {
    switch (pick(5)) {
      case 0: {
        const double c = pick(200) / 16.0 - 6;
        return {c, [=](const Place<T>&) { return static_cast<T>(c); }};
      }
      case 1: return {ScoreTable(scalar_)(), [](const Place<T>&) { return T(0.75); }};
      default: return {ScoreExpression::score(), [](const Place<T>& p) { return p.s; }};
    }
  }

  static std::int64_t down(std::int64_t a, std::int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  }
  /// An index that stays in 0 ... size - 1.
  Whole index(int depth, std::int64_t size) {
    const Whole x = whole(depth - 1);
    return {x.expression % size, [=](const Place<T>& p) { return x.value(p) - down(x.value(p), size) * size; }};
  }
  static T at(const Tensor& x, std::initializer_list<std::int64_t> index) {
    Tensor one = x;
    for (const std::int64_t n : index) one = one.select(0, n);
    return static_cast<T>(one.item());
  }

  Number lookup(int depth) {
    switch (pick(4)) {
      case 0:
        return {ScoreTable(by_head_)(ScoreExpression::head()),
                [x = by_head_](const Place<T>& p) { return at(x, {p.h}); }};
      case 1:
        return {ScoreTable(by_batch_head_)(ScoreExpression::batch(), ScoreExpression::head()),
                [x = by_batch_head_](const Place<T>& p) { return at(x, {p.b, p.h}); }};
      case 2: {
        const Whole a = index(depth, 13), b = index(depth, 7);
        return {ScoreTable(table_)(a.expression, b.expression),
                [=, x = table_](const Place<T>& p) { return at(x, {a.value(p), b.value(p)}); }};
      }
      default: {
        const Whole a = index(depth, 2), b = index(depth, 3), c = index(depth, 5), d = index(depth, 4);
        return {ScoreTable(wide_)(a.expression, b.expression, c.expression, d.expression),
                [=, x = wide_](const Place<T>& p) { return at(x, {a.value(p), b.value(p), c.value(p), d.value(p)}); }};
      }
    }
  }

  Whole whole(int depth) {
    if (depth <= 0) return whole_leaf();
    const Whole a = whole(depth - 1);
    const std::int64_t c = pick(9) + 1;
    switch (pick(10)) {
      case 0: return {a.expression * c, [=](const Place<T>& p) { return a.value(p) * c; }};
      case 1: return {floor_divide(a.expression, -c), [=](const Place<T>& p) { return down(a.value(p), -c); }};
      case 2: return {floor_divide(a.expression, c), [=](const Place<T>& p) { return down(a.value(p), c); }};
      case 3: return {a.expression % -c, [=](const Place<T>& p) { return a.value(p) + down(a.value(p), -c) * c; }};
      case 4: return {abs(a.expression), [=](const Place<T>& p) { return std::abs(a.value(p)); }};
      case 5: {
        const Whole n = index(depth, 31);
        return {ScoreTable(buckets_)(n.expression),
                [=, x = buckets_](const Place<T>& p) { return x.select(0, n.value(p)).item_int(); }};
      }
      case 6: {
        const Condition t = condition(depth - 1);
        const Whole b = whole(depth - 1);
        return {where(t.expression, -a.expression, b.expression),
                [=](const Place<T>& p) { return t.value(p) ? -a.value(p) : b.value(p); }};
      }
      case 7: {
        const Whole b = whole(depth - 1);
        return {min(a.expression, max(b.expression, 3)),
                [=](const Place<T>& p) { return std::min(a.value(p), std::max<std::int64_t>(b.value(p), 3)); }};
      }
      default: {
        const Whole b = whole(depth - 1);
        return {a.expression - b.expression, [=](const Place<T>& p) { return a.value(p) - b.value(p); }};
      }
    }
  }

  Whole whole_leaf() {
    switch (pick(6)) {
      case 0: {
        const std::int64_t c = pick(40) - 20;
        return {c, [=](const Place<T>&) { return c; }};
      }
      case 1: return {ScoreExpression::batch(), [](const Place<T>& p) { return p.b; }};
      case 2: return {ScoreExpression::head(), [](const Place<T>& p) { return p.h; }};
      case 3: return {ScoreExpression::key(), [](const Place<T>& p) { return p.j; }};
      default: return {ScoreExpression::row(Align::bottom_right), [](const Place<T>& p) { return p.i; }};
    }
  }

  Condition condition(int depth) {
    const Number a = number(std::max(depth - 1, 0)), b = number(std::max(depth - 1, 0));
    const Whole m = whole(depth - 1), n = whole(depth - 1);
    switch (pick(9)) {
      case 0: return {a.expression < b.expression, [=](const Place<T>& p) { return a.value(p) < b.value(p); }};
      case 1: return {a.expression >= b.expression, [=](const Place<T>& p) { return a.value(p) >= b.value(p); }};
      case 2: return {a.expression != b.expression, [=](const Place<T>& p) { return a.value(p) != b.value(p); }};
      case 3: return {m.expression <= n.expression, [=](const Place<T>& p) { return m.value(p) <= n.value(p); }};
      case 4: return {m.expression == n.expression, [=](const Place<T>& p) { return m.value(p) == n.value(p); }};
      case 5:
        return {(m.expression > n.expression) & ~(a.expression > 0.5),
                [=](const Place<T>& p) { return m.value(p) > n.value(p) && !(a.value(p) > T(0.5)); }};
      case 6:
        return {(m.expression > n.expression) | (a.expression <= b.expression),
                [=](const Place<T>& p) { return m.value(p) > n.value(p) || a.value(p) <= b.value(p); }};
      case 7: {
        const Whole at = index(depth, 11);
        return {ScoreTable(flags_)(at.expression),
                [=, x = flags_](const Place<T>& p) { return x.select(0, at.value(p)).item() != 0; }};
      }
      default:
        return {a.expression == m.expression,
                [=](const Place<T>& p) { return a.value(p) == static_cast<T>(m.value(p)); }};
    }
  }

  std::mt19937 random_;
  bool tame_;
  Tensor by_head_, by_batch_head_, table_, wide_, scalar_, buckets_, flags_;
};

}  // namespace attn::testing
