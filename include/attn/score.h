// include/attn/score.h: changes attention scores by the caller's own function: an expression, or a C++ callable on
// tiles.
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

/// Detects a callable that takes another number of arguments than the five of a score_mod.
template <typename F>
concept OtherwiseCalled =
    !std::invocable<F, ScoreExpression, ScoreExpression, ScoreExpression, ScoreExpression, ScoreExpression> &&
    (std::invocable<F, ScoreExpression, ScoreExpression, ScoreExpression, ScoreExpression> ||
     std::invocable<F, ScoreExpression, ScoreExpression, ScoreExpression> ||
     std::invocable<F, ScoreExpression, ScoreExpression> || std::invocable<F, ScoreExpression> || std::invocable<F> ||
     std::invocable<F, ScoreExpression, ScoreExpression, ScoreExpression, ScoreExpression, ScoreExpression,
                    ScoreExpression>);

/// An expression that computes a new score from s (the score), b and h (batch item or packed sequence, query head), i
/// (row position), j (key position), constants, and lookups in tensors. It is FlexAttention's score_mod as a value.
///
///   attention(q, k, v, {.score_mod = [&](auto s, auto, auto h, auto i, auto j) { return s - slope(h) * (i - j); }});
///  An expression has one of three kinds. Floating: s, floating constants and tensors; computed in the compute type,
/// each operation rounded once. Integer: b, h, i, j, integer constants and tensors; exact, within 2^53. Boolean:
/// comparisons and bool tensors. An integer combined with a floating value is converted, with one rounding.
///
/// Positions are those of the call (docs/numerics.md section 2). If Tq != Tk, i needs an alignment: see `aligned`.
/// Place      after softcap and bias, before the division by temperature. A result of -inf masks the pair.
/// Bits       those of src/kernels/ref on every target; operations run in the order written.
/// Errors     ValueError while building an expression whose kinds do not fit. A lookup that does not fit the call, or
///            whose index can leave the tensor, is a ShapeError or ValueError of the attention call, before any
///            computation.
/// A value type: cheap to copy, copies share tensors. Immutable, so safe to use from several threads.
/// Source     He 2024 (FlexAttention, 2412.05496).
class ATTN_API ScoreExpression {
 public:
  /// The empty expression: scores stay unchanged.
  ScoreExpression() = default;
  // Moving copies: a moved-from expression would silently mean "no change".
  ScoreExpression(const ScoreExpression&) = default;
  ScoreExpression& operator=(const ScoreExpression&) = default;
  /// A constant, integer or floating.
  template <std::integral I>
    requires(!std::same_as<I, bool>)
  ScoreExpression(I value) : ScoreExpression(whole(static_cast<std::int64_t>(value))) {}
  template <std::floating_point F>
  ScoreExpression(F value) : ScoreExpression(number(static_cast<double>(value))) {}
  /// Calls f(s, b, h, i, j) once, now; its operators build the expression.
  template <typename F>
    requires(!std::same_as<std::remove_cvref_t<F>, ScoreTable> &&
             std::invocable<F, ScoreExpression, ScoreExpression, ScoreExpression, ScoreExpression, ScoreExpression>)
  ScoreExpression(F&& f) : ScoreExpression(std::forward<F>(f)(score(), batch(), head(), row(), key())) {}

  // Deleted conversions: arguments of other types give a compiler error that says what to write.
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

  /// Returns the expression with alignment `align` for every i that has none.
  ScoreExpression aligned(Align align) const;

  friend ATTN_API ScoreExpression operator+(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator-(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator*(const ScoreExpression& a, const ScoreExpression& b);
  /// Floating division; integer operands are converted first, as in Python.
  friend ATTN_API ScoreExpression operator/(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator-(const ScoreExpression& a);
  /// Integer division rounded down, and its remainder with the divisor's sign: Python's // and %.
  friend ATTN_API ScoreExpression floor_divide(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator%(const ScoreExpression& a, const ScoreExpression& b);

  friend ATTN_API ScoreExpression operator<(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator<=(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator>(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator>=(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator==(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator!=(const ScoreExpression& a, const ScoreExpression& b);
  /// Boolean operators.
  friend ATTN_API ScoreExpression operator&(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator|(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression operator~(const ScoreExpression& a);
  // An expression cannot be evaluated as a bool: combine conditions with &, | and ~, and choose values with `where`.
  friend void operator&&(const ScoreExpression&, const ScoreExpression&) = delete;  // write a & b
  friend void operator||(const ScoreExpression&, const ScoreExpression&) = delete;  // write a | b
  friend void operator!(const ScoreExpression&) = delete;                           // write ~a
  explicit operator bool() const = delete;  // in place of `if` and `c ? a : b` write where(c, a, b)

  /// Selects a where the condition is true, else b. The value that is not selected has no effect, even if it is NaN.
  friend ATTN_API ScoreExpression where(const ScoreExpression& condition, const ScoreExpression& a,
                                        const ScoreExpression& b);
  /// The result is NaN if either operand is NaN, as with torch.minimum and torch.maximum.
  friend ATTN_API ScoreExpression min(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression max(const ScoreExpression& a, const ScoreExpression& b);
  friend ATTN_API ScoreExpression abs(const ScoreExpression& a);
  friend ATTN_API ScoreExpression exp(const ScoreExpression& a);
  friend ATTN_API ScoreExpression tanh(const ScoreExpression& a);

  /// Returns whether this is the default expression, which changes nothing.
  bool empty() const { return node_ == nullptr; }
  /// Returns the expression as text: "s - slope[h] * (i - j)".
  std::string to_string() const;
  friend ATTN_API std::ostream& operator<<(std::ostream& out, const ScoreExpression& expression);
  /// Parses the notation of to_string: s, b, h, i (i(top_left), i(bottom_right)), j; numbers, inf; + - * / // %; < <= >
  /// >= == !=; & | ~; exp, tanh, abs, min, max, where; name[index, ...] for the given tensors, the name for a tensor of
  /// rank 0. ValueError shows where parsing failed.
  static ScoreExpression parse(const std::string& text,
                               const std::vector<std::pair<std::string, Tensor>>& tensors = {});

  /// Returns each distinct lookup of a floating tensor; these are the tensors that get gradients.
  std::vector<ScoreExpression> lookups() const;
  /// Return a lookup's tensor, and the index expression of each of its dims. ValueError if this is not a lookup.
  const Tensor& tensor() const;
  std::vector<ScoreExpression> index() const;

  /// Applies the expression to scores [B, H, Tq, Tk] with the reference code (for tests and small pictures).
  Tensor apply(const Tensor& scores, const Lengths& lengths = {}) const;

  struct Node;
  const std::shared_ptr<const Node>& node() const { return node_; }
  explicit ScoreExpression(std::shared_ptr<const Node> node) : node_(std::move(node)) {}

 private:
  static ScoreExpression whole(std::int64_t value);
  static ScoreExpression number(double value);
  std::shared_ptr<const Node> node_;
};

/// Returns the derivative of `of` by `by` as an expression; `by` is s or a lookup. As in torch, ties of min and max
/// share the gradient evenly, and abs has derivative 0 at 0. The derivative is 0 if `of` depends on `by` only through
/// comparisons, or not at all.
ATTN_API ScoreExpression derivative(const ScoreExpression& of, const ScoreExpression& by);

/// A tensor that expressions look up: slope(h), table(h, j - i + 127), scalar(). Rank 0 to 4. f32, f64, bf16 and f16
/// give floating values, i64 and i32 integers, bool conditions. The values are read during the attention call.
class ATTN_API ScoreTable {
 public:
  /// to_string shows the tensor as `name`.
  explicit ScoreTable(const Tensor& values, std::string name = "table");
  /// Looks up one element; give one integer index per dim. A dim that is indexed by h alone must have Hq entries, a dim
  /// indexed by b alone B entries.
  ScoreExpression at(const std::vector<ScoreExpression>& index) const;
  template <typename... Index>
  ScoreExpression operator()(const Index&... index) const {
    return at({ScoreExpression(index)...});
  }

 private:
  Tensor values_;
  std::string name_;
};

/// A tile of scores of adjacent rows and keys, changed in place, in the compute type (f32, or f64 for f64).
struct ATTN_API ScoreTile {
  void* data = nullptr;
  Dtype dtype = Dtype::f32;                     // f32 or f64
  std::int64_t rows = 0, keys = 0;              // at most 64 each
  std::int64_t row_stride = 0, key_stride = 0;  // in elements; row_stride is 1
  std::int64_t batch = 0, head = 0;             // batch: the packed sequence if the call is packed
  std::int64_t row = 0, key = 0;                // index of the tile's first row and first key
  std::int64_t row_position = 0, key_position = 0;

  /// Replaces every score by change(score, row position, key position).
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
  /// Replaces every score of the tile by e^score or tanh(score), vectorised, with the bits of attn::exp and attn::tanh.
  void exp() const;
  void tanh() const;
};

/// A C++ callable that changes tiles of scores in place, called from the fused pass. Use it for what score_mod cannot
/// express.
///
///   attention(q, k, v, {.score_callback = [](const ScoreTile& tile) {
///     tile.each([](auto s, auto i, auto j) { return s / (1 + i - j); });
///   }});
///
/// Place      after score_mod, before the division by temperature. A result of -inf masks the pair.
/// Calls      come from several threads at once, in any order. A pair may be passed more than once: a query tile whose
///            result holds NaN is recomputed in tiles of one row or one pair. So a callable that keeps no state and
///            changes each element by its own score and position gives the same bits however the work is split; the
///            split depends on the shape only. attn promises no bits for the callable's own arithmetic. Masked pairs
///            may be passed with any content; their new values are ignored.
/// Errors     An exception ends the call: attention() rethrows the first one; `out` may then be partly written.
struct ATTN_API ScoreCallback {
  ScoreCallback() = default;
  // Moving copies: a moved-from callback would silently mean "no change".
  ScoreCallback(const ScoreCallback&) = default;
  ScoreCallback& operator=(const ScoreCallback&) = default;
  template <typename F>
    requires std::invocable<F&, const ScoreTile&>
  ScoreCallback(F callable, Align rows = Align::unset) : function(std::move(callable)), align(rows) {}

  std::function<void(const ScoreTile&)> function;
  Align align = Align::unset;  ///< alignment of row_position; required if Tq != Tk and query_start is not given
};

}  // namespace attn
