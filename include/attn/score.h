// include/attn/score.h: the caller's own function of a score: as an expression, or as a callable on tiles.
#pragma once
#include <attn/mask.h>
#include <attn/tensor.h>

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace attn {

class ScoreExpression;
class ScoreTable;

/// A callable for another number of arguments than the five of a score_mod.
template <typename F>
concept OtherwiseCalled =
    !std::invocable<F, ScoreExpression, ScoreExpression, ScoreExpression, ScoreExpression, ScoreExpression> &&
    (std::invocable<F, ScoreExpression, ScoreExpression, ScoreExpression, ScoreExpression> ||
     std::invocable<F, ScoreExpression, ScoreExpression, ScoreExpression> ||
     std::invocable<F, ScoreExpression, ScoreExpression> || std::invocable<F, ScoreExpression> || std::invocable<F> ||
     std::invocable<F, ScoreExpression, ScoreExpression, ScoreExpression, ScoreExpression, ScoreExpression,
                    ScoreExpression>);

/// A score as a function of itself and of where it stands: s (the score), b, h (batch item or packed sequence, query
/// head), i (position of the row), j (position of the key), constants and lookups in tensors. FlexAttention's
/// score_mod, as a value.
///
///   attention(q, k, v, {.score_mod = [&](auto s, auto, auto h, auto i, auto j) { return s - slope(h) * (i - j); }});
///  There are three kinds. Numbers: s, floating constants and tensors; computed in the compute type, each operation
/// with one rounding. Whole numbers: b, h, i, j, integer constants and tensors; exact, within 2^53. Conditions:
/// comparisons and bool tensors. A whole number that meets a number becomes one, with one rounding.
///
/// Positions are those of the call (docs/numerics.md section 2), so i needs an alignment where Tq != Tk: see `aligned`.
/// Place      after softcap and bias, before / temperature. A result of -inf hides the pair.
/// Bits       those of src/kernels/ref on every target; the order of operations is the one written.
/// Errors     ValueError where kinds do not fit, when the expression is made; a lookup that does not fit the call, or
///            whose index can leave the tensor, is a ShapeError or ValueError of the call, before any work.
/// A value: cheap to copy, shares its tensors. Immutable, so safe to use from several threads.
/// Source     He 2024 (FlexAttention, 2412.05496).
class ATTN_API ScoreExpression {
 public:
  /// No expression: scores stay as they are.
  ScoreExpression() = default;
  // Copies only: what was moved from keeps its value, which would otherwise silently mean "none".
  ScoreExpression(const ScoreExpression&) = default;
  ScoreExpression& operator=(const ScoreExpression&) = default;
  /// A constant: whole, or a number.
  template <std::integral I>
    requires(!std::same_as<I, bool>)
  ScoreExpression(I value) : ScoreExpression(whole(static_cast<std::int64_t>(value))) {}
  template <std::floating_point F>
  ScoreExpression(F value) : ScoreExpression(number(static_cast<double>(value))) {}
  /// f(s, b, h, i, j), called once, now: its operators build the expression.
  template <typename F>
    requires(!std::same_as<std::remove_cvref_t<F>, ScoreTable> &&
             std::invocable<F, ScoreExpression, ScoreExpression, ScoreExpression, ScoreExpression, ScoreExpression>)
  ScoreExpression(F&& f) : ScoreExpression(std::forward<F>(f)(score(), batch(), head(), row(), key())) {}

  // No conversions: what looks like one says what to write.
  template <typename F>
    requires(!std::same_as<std::remove_cvref_t<F>, ScoreTable> && OtherwiseCalled<F>)
  ScoreExpression(F&&) {
    static_assert(!sizeof(F),
                  "attn: a score_mod takes five arguments: [](auto s, auto b, auto h, auto i, auto j) { ... }");
  }
  template <std::same_as<bool> T>
  ScoreExpression(T) {
    static_assert(!sizeof(T), "attn: a bool is no score; a number is: where(condition, 1.0, 0.0)");
  }
  template <std::same_as<Tensor> T>
  ScoreExpression(const T&) {
    static_assert(!sizeof(T), "attn: a tensor is looked up: ScoreTable table(values), then table(h) or table(i, j)");
  }
  template <std::same_as<ScoreTable> T>
  ScoreExpression(const T&) {
    static_assert(!sizeof(T), "attn: a ScoreTable is looked up: table(h), table(i, j); table() of rank 0");
  }

  static ScoreExpression score();                          ///< s
  static ScoreExpression batch();                          ///< b
  static ScoreExpression head();                           ///< h, of the query
  static ScoreExpression row(Align align = Align::unset);  ///< i
  static ScoreExpression key();                            ///< j

  /// The same with every i that has no alignment standing as `align` says.
  ScoreExpression aligned(Align align) const;

  friend ATTN_API ScoreExpression operator+(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator-(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator*(const ScoreExpression& a, const ScoreExpression& b);
  /// Of numbers; whole operands become numbers, as in Python.
  friend ATTN_API ScoreExpression operator/(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator-(const ScoreExpression& a);
  /// Of whole numbers, rounded down, and what remains, with the divisor's sign: Python's // and %.
  friend ATTN_API ScoreExpression floor_divide(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator%(const ScoreExpression& a, const ScoreExpression& b);

  friend ATTN_API ScoreExpression operator<(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator<=(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator>(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator>=(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator==(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator!=(const ScoreExpression& a, const ScoreExpression& b);
  /// Of conditions.
  friend ATTN_API ScoreExpression operator&(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator|(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator~(const ScoreExpression& a);
  // An expression is built, not decided: conditions join by &, | and ~, and `where` chooses.
  friend void operator&&(const ScoreExpression&, const ScoreExpression&) = delete;  // write a & b
  friend void operator||(const ScoreExpression&, const ScoreExpression&) = delete;  // write a | b
  friend void operator!(const ScoreExpression&) = delete;                           // write ~a
  explicit operator bool() const = delete;  // in place of `if` and `c ? a : b` write where(c, a, b)

  /// One of the two, by selection: what was not chosen changes nothing, even if it is NaN.
  friend ATTN_API ScoreExpression where(const ScoreExpression& condition, const ScoreExpression& a,
                                        const ScoreExpression& b);
  /// NaN where either is NaN, as torch.minimum and torch.maximum.
  friend ATTN_API ScoreExpression min(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression max(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression abs(const ScoreExpression& a);
  friend ATTN_API ScoreExpression exp(const ScoreExpression& a);
  friend ATTN_API ScoreExpression tanh(const ScoreExpression& a);

  /// The default: no expression.
  bool empty() const { return node_ == nullptr; }
  /// "s - slope[h] * (i - j)".
  std::string to_string() const;
  friend ATTN_API std::ostream& operator<<(std::ostream& out, const ScoreExpression& expression);
  /// From the same notation: s, b, h, i (i(top_left), i(bottom_right)), j; numbers, inf; + - * / // %; < <= > >= == !=;
  /// & | ~; exp, tanh, abs, min, max, where; name[index, ...] of the tensors given, the name alone for one of rank 0.
  /// ValueError shows the place that was not understood.
  static ScoreExpression parse(const std::string& text,
                               const std::vector<std::pair<std::string, Tensor>>& tensors = {});

  /// The lookups of numbers in it, each once: where gradients of tensors come from.
  std::vector<ScoreExpression> lookups() const;
  /// Of a lookup: its tensor, and the index of each of its dims. ValueError otherwise.
  const Tensor& tensor() const;
  std::vector<ScoreExpression> index() const;

  /// Scores [B, H, Tq, Tk] after the expression, by the specification (tests, small pictures).
  Tensor apply(const Tensor& scores, const Lengths& lengths = {}) const;

  struct Node;
  const std::shared_ptr<const Node>& node() const { return node_; }
  explicit ScoreExpression(std::shared_ptr<const Node> node) : node_(std::move(node)) {}

 private:
  static ScoreExpression whole(std::int64_t value);
  static ScoreExpression number(double value);
  std::shared_ptr<const Node> node_;
};

/// d of / d by, as an expression; `by` is s or a lookup. Ties of min and max share evenly, abs has 0 at 0, as in torch.
/// What depends on `by` through a comparison or not at all has derivative 0.
ATTN_API ScoreExpression derivative(const ScoreExpression& of, const ScoreExpression& by);

/// A tensor that expressions look up: slope(h), table(h, j - i + 127), scalar(). Rank 0 to 4; f32, f64, bf16, f16 give
/// numbers, i64 and i32 whole numbers, bool conditions. The tensor's values are read at the call.
class ATTN_API ScoreTable {
 public:
  /// `name` is what to_string shows.
  explicit ScoreTable(const Tensor& values, std::string name = "table");
  /// An index for each dim: whole numbers. A dim that is looked up by h alone has one entry a query head, by b alone
  /// one a batch item.
  ScoreExpression at(const std::vector<ScoreExpression>& index) const;
  template <typename... Index>
  ScoreExpression operator()(const Index&... index) const {
    return at({ScoreExpression(index)...});
  }

 private:
  Tensor values_;
  std::string name_;
};

/// Scores of neighbouring rows and keys, in place, in the compute type (f32, or f64 for f64).
struct ATTN_API ScoreTile {
  void* data = nullptr;
  Dtype dtype = Dtype::f32;                     // f32 or f64
  std::int64_t rows = 0, keys = 0;              // at most 64 each
  std::int64_t row_stride = 0, key_stride = 0;  // elements; row_stride is 1 where keys > 1
  std::int64_t batch = 0, head = 0;             // batch: the packed sequence where there is one
  std::int64_t row = 0, key = 0;                // index of the first of each
  std::int64_t row_position = 0, key_position = 0;

  /// change(score, position of the row, position of the key) for every element: scores become what it returns.
  template <typename F>
  void each(F&& change) const {
    const auto all = [&]<typename T>(T* scores) {
      for (std::int64_t n = 0; n < keys; ++n)
        for (std::int64_t m = 0; m < rows; ++m) {
          T& score = scores[m * row_stride + n * key_stride];
          score = static_cast<T>(change(score, row_position + m, key_position + n));
        }
    };
    dtype == Dtype::f64 ? all(static_cast<double*>(data)) : all(static_cast<float*>(data));
  }
  /// e^score, tanh(score) of the whole tile, in vectors, with the bits of attn::exp and attn::tanh.
  void exp() const;
  void tanh() const;
};

/// The escape hatch: a callable that changes tiles of scores in place, called from the fused pass.
///
///   attention(q, k, v, {.score_callback = [](const ScoreTile& tile) { tile.each([](auto s, auto i, auto j) { return s
///   / (1 + i - j); }); }});
///
/// Place      after score_mod, before / temperature. A result of -inf hides the pair.
/// Calls      from several threads at once, in any order. A pair may be shown again (when a result holds NaN, rows are
///            decided once more, one pair at a time), so a callable that keeps no state and changes each element by its
///            own score and position gives the same bits whatever the cut, which is fixed by the shape. Those bits are
///            the callable's, not attn's, to promise. Pairs that the mask hides may be shown with any content; what is
///            written there is ignored.
/// Errors     An exception ends the call: the first one reaches the caller of attention; `out` may be written in part.
struct ATTN_API ScoreCallback {
  ScoreCallback() = default;
  // Copies only: what was moved from keeps its value, which would otherwise silently mean "none".
  ScoreCallback(const ScoreCallback&) = default;
  ScoreCallback& operator=(const ScoreCallback&) = default;
  template <typename F>
    requires std::invocable<F&, const ScoreTile&>
  ScoreCallback(F callable, Align rows = Align::unset) : function(std::move(callable)), align(rows) {}

  std::function<void(const ScoreTile&)> function;
  Align align = Align::unset;  ///< of row_position; must be given where Tq != Tk without query_start
};

}  // namespace attn
