// src/kernels/attention/softmax/output_accumulator-inl.h: defines the output accumulator of a query tile, which is
// rescaled, merged and divided.
//
//   many rows: [column][rows], a line is a vector of rows      decode rows: [row][columns], a line is a row
//
// An element of the output goes through the same operations in both layouts.
#if defined(ATTN_OUTPUT_ACCUMULATOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_OUTPUT_ACCUMULATOR_INL_H
#undef ATTN_OUTPUT_ACCUMULATOR_INL_H
#else
#define ATTN_OUTPUT_ACCUMULATOR_INL_H
#endif

#include "kernels/attention/mask/masked_values-inl.h"
#include "kernels/attention/query_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// The output of decode rows: one row after the other, each as vectors of columns. The last vector holds the last N
/// columns; if N does not divide their number it overlaps the vector before.
template <typename T>
class DecodeOutput {
 public:
  static constexpr int N = lanes<T>;
  /// Returns whether this form is used for `rows` rows, which must fit in one vector, and `value_dim` columns. `memory`
  /// must then hold at least 2 * max_decode_rows * (value_dim + N) elements.
  static bool takes(std::int64_t rows, std::int64_t value_dim) {
    return rows <= max_decode_rows && rows <= N && value_dim >= N;
  }

  /// `columns`: elements of a row of V that may be read: value_dim, or more.
  DecodeOutput(T* memory, std::int64_t columns) : o_(memory), columns_(columns), vectors_((columns + N - 1) / N) {}

  /// Calls tile.template operator()<ROWS, VECTORS>(row, column, o) for tiles that cover the output: ROWS rows from
  /// `row`, VECTORS vectors of columns from `column`, stored from `o` on, rows stride() apart. A tile with `eight_rows`
  /// takes eight rows at once: V, which may come from L2, is then read once.
  template <class Tile>
  void for_each(int rows, const Tile& tile) const {
    int row = 0;
    if constexpr (requires { requires Tile::eight_rows; })
      if (rows == 8) return for_each_vector<8, 2>(0, tile);
    for (; row + 4 <= rows; row += 4) for_each_vector<4, registers == 16 ? 2 : 4>(row, tile);
    for (; row < rows; ++row) for_each_vector<1, 8>(row, tile);  // enough chains to hide an FMA's latency
  }
  std::int64_t stride() const { return vectors_ * N; }
  static std::int64_t stride(std::int64_t columns) { return (columns + N - 1) / N * N; }
  /// Returns the offset from an output to its partial sum, for a block that is computed in parts.
  std::int64_t to_sums() const { return max_decode_rows * stride(); }
  T* memory() const { return o_; }
  /// Returns the first column of a vector.
  std::int64_t column_of(std::int64_t vector) const { return vector * N + N <= columns_ ? vector * N : columns_ - N; }
  std::int64_t vectors() const { return vectors_; }

 private:
  template <int ROWS, int VECTORS, class Tile>
  void for_each_vector(int row, const Tile& tile) const {
    T* const o = o_ + row * stride();
    std::int64_t v = 0;
    for (; v + VECTORS <= columns_ / N; v += VECTORS)
      tile.template operator()<ROWS, VECTORS>(row, column_of(v), o + v * N);
    for (; v < vectors_; ++v) tile.template operator()<ROWS, 1>(row, column_of(v), o + v * N);
  }

  T* o_;
  std::int64_t columns_, vectors_;
};

template <typename T>
struct OutputAccumulator {
  static constexpr int N = lanes<T>;
  T* o;
  std::int64_t columns, stride;  // valid columns; stride between columns, or between rows
  int lines;
  bool decode;

  /// `width`: rows in memory, the distance between two columns.
  static OutputAccumulator of_lanes(T* o, std::int64_t columns, std::int64_t width, int vectors) {
    return {o, columns, width, vectors, false};
  }
  static OutputAccumulator of_rows(T* o, std::int64_t columns, int rows) {
    return {o, columns, DecodeOutput<T>::stride(columns), rows, true};
  }
  /// Returns an accumulator of the same shape in the memory `other`. `width`: the elements from a column to the next,
  /// at least the number of rows. Decode ignores it.
  OutputAccumulator beside(T* other, std::int64_t width) const {
    return decode ? of_rows(other, columns, lines) : of_lanes(other, columns, width, lines);
  }

  T* line(int n) const { return o + n * (decode ? stride : N); }
  std::int64_t vectors_of_line() const { return decode ? stride / N : columns; }
  std::int64_t step() const { return decode ? N : stride; }
  /// Returns the values of an array with one number per query row, for the rows of line n.
  HWY_INLINE Vector<T> of_rows_in(const T* numbers, int n) const {
    const Tag<T> d;
    return decode ? hn::Set(d, numbers[n]) : hn::Load(d, numbers + n * N);
  }

  HWY_NOINLINE void clear() const {
    const Tag<T> d;
    for (int n = 0; n < lines; ++n) {
      T* at = line(n);
      for (std::int64_t i = vectors_of_line(); i > 0; --i, at += step()) hn::Store(hn::Zero(d), d, at);
    }
  }
  HWY_NOINLINE void scale(const T* factors) const {
    const Tag<T> d;
    for (int n = 0; n < lines; ++n) {
      const auto factor = of_rows_in(factors, n);
      T* at = line(n);
      for (std::int64_t i = vectors_of_line(); i > 0; --i, at += step())
        hn::Store(hn::Mul(hn::Load(d, at), factor), d, at);
    }
  }
  /// Computes o = fma(o, factors, other * other_factors); the factors belong to query rows.
  HWY_NOINLINE void merge(const T* factors, const OutputAccumulator& other, const T* other_factors) const {
    const Tag<T> d;
    for (int n = 0; n < lines; ++n) {
      const auto a = of_rows_in(factors, n), b = of_rows_in(other_factors, n);
      const T* from = other.line(n);
      T* at = line(n);
      for (std::int64_t i = vectors_of_line(); i > 0; --i, at += step(), from += other.step())
        hn::Store(hn::MulAdd(hn::Load(d, at), a, hn::Mul(hn::Load(d, from), b)), d, at);
    }
  }
  HWY_NOINLINE void copy_to(const OutputAccumulator& other) const {
    const Tag<T> d;
    for (int n = 0; n < lines; ++n) {
      const T* from = line(n);
      T* at = other.line(n);
      for (std::int64_t i = vectors_of_line(); i > 0; --i, at += other.step(), from += step())
        hn::Store(hn::Load(d, from), d, at);
    }
  }
  /// Returns whether no element of the first `rows` rows is NaN.
  HWY_NOINLINE bool are_numbers(std::int64_t rows) const {
    const Tag<T> d;
    bool numbers = true;
    for (int n = 0; n < lines; ++n) {
      AreNumbers<T> here;
      const T* at = line(n);
      for (std::int64_t i = vectors_of_line(); i > 0; --i, at += step()) here.add(hn::Load(d, at));
      numbers = numbers && all_of(here, n, rows);
    }
    return numbers;
  }
  /// Computes o = fma(o, inverse_sums, +0), then adds +0, because a negative result too small for T would be -0.
  /// Returns false when some result or inverse sum of the first `rows` rows is NaN.
  HWY_NOINLINE bool divide(const T* inverse_sums, std::int64_t rows) const {
    const Tag<T> d;
    bool numbers = true;
    for (int n = 0; n < lines; ++n) {
      const auto inverse = of_rows_in(inverse_sums, n);
      AreNumbers<T> here;
      here.add(inverse);
      T* at = line(n);
      for (std::int64_t i = vectors_of_line(); i > 0; --i, at += step()) {
        const auto y = hn::Add(hn::MulAdd(hn::Load(d, at), inverse, hn::Zero(d)), hn::Zero(d));
        here.add(y);
        hn::Store(y, d, at);
      }
      numbers = numbers && all_of(here, n, rows);
    }
    return numbers;
  }

 private:
  /// Returns whether the results of line n that belong to the first `rows` rows are numbers.
  HWY_INLINE bool all_of(const AreNumbers<T>& here, int n, std::int64_t rows) const {
    if (decode || rows >= (n + 1) * N) return here.everywhere();
    return here.in(hn::FirstN(Tag<T>(), static_cast<std::size_t>(rows - n * N)));
  }
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
