// src/kernels/attention/strip_output-inl.h: the output of a strip between its blocks and memory: scaled, merged,
// divided, a line of it at a time.
//
//   many rows: [column][rows], a line is a vector of rows      few rows: [row][columns], a line is a row
//
// An element of it goes through the same operations either way.
#if defined(ATTN_STRIP_OUTPUT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_STRIP_OUTPUT_INL_H
#undef ATTN_STRIP_OUTPUT_INL_H
#else
#define ATTN_STRIP_OUTPUT_INL_H
#endif

#include "kernels/attention/few_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

template <typename T>
struct StripOutput {
  static constexpr int N = lanes<T>;
  T* o;
  std::int64_t columns, stride;  // the columns that exist; from column to column, or from row to row
  int lines;
  bool few;

  /// `width`: rows side by side.
  static StripOutput of_lanes(T* o, std::int64_t columns, std::int64_t width, int vectors) {
    return {o, columns, width, vectors, false};
  }
  static StripOutput of_rows(T* o, std::int64_t columns, int rows) {
    return {o, columns, RowOutput<T>::stride(columns), rows, true};
  }
  /// Another one of the same shape, in memory where no more rows stand side by side than it has.
  StripOutput beside(T* other, std::int64_t width) const {
    return few ? of_rows(other, columns, lines) : of_lanes(other, columns, width, lines);
  }

  T* line(int n) const { return o + n * (few ? stride : N); }
  std::int64_t vectors_of_line() const { return few ? stride / N : columns; }
  std::int64_t step() const { return few ? N : stride; }
  /// What the rows of a line have of an array with a number for each row.
  HWY_INLINE Vector<T> of_rows_in(const T* numbers, int n) const {
    const Tag<T> d;
    return few ? hn::Set(d, numbers[n]) : hn::Load(d, numbers + n * N);
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
  /// fma(this, own factors, other * its factors)
  HWY_NOINLINE void merge(const T* factors, const StripOutput& other, const T* other_factors) const {
    const Tag<T> d;
    for (int n = 0; n < lines; ++n) {
      const auto a = of_rows_in(factors, n), b = of_rows_in(other_factors, n);
      const T* from = other.line(n);
      T* at = line(n);
      for (std::int64_t i = vectors_of_line(); i > 0; --i, at += step(), from += other.step())
        hn::Store(hn::MulAdd(hn::Load(d, at), a, hn::Mul(hn::Load(d, from), b)), d, at);
    }
  }
  HWY_NOINLINE void copy_to(const StripOutput& other) const {
    const Tag<T> d;
    for (int n = 0; n < lines; ++n) {
      const T* from = line(n);
      T* at = other.line(n);
      for (std::int64_t i = vectors_of_line(); i > 0; --i, at += other.step(), from += step())
        hn::Store(hn::Load(d, from), d, at);
    }
  }
  /// fma(o, factor, +0), and + 0 because a negative result too small for T is -0. Returns false when some result of the
  /// first `rows` rows is not a number.
  HWY_NOINLINE bool divide(const T* inverse_sums, std::int64_t rows) const {
    const Tag<T> d;
    bool numbers = true;
    for (int n = 0; n < lines; ++n) {
      const auto inverse = of_rows_in(inverse_sums, n);
      auto here = hn::Eq(inverse, inverse);
      T* at = line(n);
      for (std::int64_t i = vectors_of_line(); i > 0; --i, at += step()) {
        const auto y = hn::Add(hn::MulAdd(hn::Load(d, at), inverse, hn::Zero(d)), hn::Zero(d));
        here = hn::And(here, hn::Eq(y, y));
        hn::Store(y, d, at);
      }
      if (!few && rows < (n + 1) * N)
        here = hn::Or(here, hn::Not(hn::FirstN(d, static_cast<std::size_t>(rows - n * N))));
      numbers = numbers && hn::AllTrue(d, here);
    }
    return numbers;
  }
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
