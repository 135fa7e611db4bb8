// src/kernels/rows/columns-inl.h: computes sums and softmax along the columns of a matrix in memory; each lane is a
// column.
#if defined(ATTN_ROWS_COLUMNS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_ROWS_COLUMNS_INL_H
#undef ATTN_ROWS_COLUMNS_INL_H
#else
#define ATTN_ROWS_COLUMNS_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/rows/elements-inl.h"
#include "kernels/rows/lanes-inl.h"
#include "kernels/rows/unary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// W vectors of adjacent columns.
template <class D, int W>
struct Columns {
  hn::Vec<D> v[W];

  HWY_INLINE Columns() {}  // not defaulted: an implicit constructor would not be compiled for this target
};

/// Sums each of W vectors of columns over n rows, in the order of `tree_sum`. `load(i, w)` returns vector w of row i.
/// The partial sums stay in L1, not in registers: memory bandwidth is the limit, and the code is a tenth as long.
template <class D, int W, typename Load>
HWY_INLINE Columns<D, W> tree_sum_of_columns(D d, std::int64_t n, Load load) {
  using Sums = Columns<D, W>;
  constexpr std::int64_t block = 4096;
  BlockTree<Sums> tree;
  const auto plus = [](Sums a, const Sums& b) HWY_ATTR {
    _Pragma("GCC unroll 4") for (int w = 0; w < W; ++w) a.v[w] = hn::Add(a.v[w], b.v[w]);
    return a;
  };
  for (std::int64_t start = 0; start < n; start += block) {
    const std::int64_t end = n - start < block ? n : start + block;
    Sums partial[16];
    for (int j = 0; j < 16; ++j) _Pragma("GCC unroll 4") for (int w = 0; w < W; ++w) partial[j].v[w] = hn::Zero(d);
    const auto take = [&](int j, std::int64_t i) HWY_ATTR {
      _Pragma("GCC unroll 4") for (int w = 0; w < W; ++w) partial[j].v[w] = hn::Add(partial[j].v[w], load(i, w));
    };
    std::int64_t i = start;
    for (; i + 16 <= end; i += 16) { _Pragma("GCC unroll 1") for (int j = 0; j < 16; ++j) take(j, i + j); }
    _Pragma("GCC unroll 1") for (int j = 0; i + j < end; ++j) take(j, i + j);
    for (int half = 8; half > 0; half /= 2)
      _Pragma("GCC unroll 1") for (int j = 0; j < half; ++j) partial[j] = plus(partial[j], partial[j + half]);
    tree.push(partial[0], plus);
  }
  if (n > 0) return tree.total(plus);
  Sums none;
  for (int w = 0; w < W; ++w) none.v[w] = hn::Zero(d);
  return none;
}

/// Sums the columns. Kind says how elements are read (elements-inl.h); the sums have the type of its vectors. Four
/// vectors of columns are summed at a time, so that each row is read in long contiguous pieces.
template <class Kind>
void sum_columns_of(const typename Kind::Item* x, std::int64_t stride, std::int64_t n, hn::TFromD<typename Kind::D>* y,
                    std::int64_t columns) {
  using D = typename Kind::D;
  const D d;
  constexpr std::int64_t N = HWY_LANES(hn::TFromD<D>), rows_ahead = 24, line = 64 / sizeof(typename Kind::Item);
  constexpr int ways = 4;
  std::int64_t c = 0;
  for (; c + ways * N <= columns; c += ways * N) {
    const auto sums = tree_sum_of_columns<D, ways>(d, n, [&](std::int64_t i, int w) HWY_ATTR {
      const auto* const at = x + i * stride + c + w * N;
      if (w * N % line == 0) hwy::Prefetch(at + rows_ahead * stride);
      return Kind::load(at, N);
    });
    for (int w = 0; w < ways; ++w) hn::StoreU(canonical(d, sums.v[w]), d, y + c + w * N);
  }
  for (; c < columns; c += N) {
    const std::int64_t count = columns - c < N ? columns - c : N;
    const auto sum = tree_sum_of_columns<D, 1>(
        d, n, [&](std::int64_t i, int) HWY_ATTR { return Kind::load(x + i * stride + c, count); });
    store_some(d, canonical(d, sum.v[0]), y + c, count);
  }
}

/// Computes softmax or log_softmax of `count` columns, at most a vector.
template <typename T>
HWY_NOINLINE void softmax_of_columns(RowOp op, const T* x, std::int64_t x_stride, T* y, std::int64_t y_stride,
                                     std::int64_t n, std::int64_t count) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::int64_t N = HWY_LANES(T);
  const V infinite = infinity(d), log2e = hn::Set(d, Constants<T>::log2e);
  // pass 1: the maximum; a column with NaN, or without a finite maximum, becomes NaN
  V most = hn::Neg(infinite), bad = hn::Zero(d);
  for (std::int64_t i = 0; i < n; ++i) {
    const V v = load_some(d, x + i * x_stride, count);
    most = hn::Max(most, v);
    bad = hn::IfThenElse(hn::Eq(v, v), bad, v);
  }
  const auto good = hn::And(hn::Eq(bad, bad), hn::Lt(hn::Abs(most), infinite));
  most = hn::IfThenElseZero(good, most);
  // pass 2: the weights and their sums
  const bool keep = op == RowOp::softmax;
  const V sum = tree_sum_of_columns<decltype(d), 1>(d, n, [&](std::int64_t i, int) HWY_ATTR {
                  const V p = exp2_of_negative(d, hn::Mul(hn::Sub(load_some(d, x + i * x_stride, count), most), log2e));
                  if (keep) store_some(d, p, y + i * y_stride, count);
                  return p;
                }).v[0];
  // pass 3: normalises the weights
  const V nan = hn::Set(d, std::numeric_limits<T>::quiet_NaN());
  if (keep) {
    const V inverse = hn::Div(hn::Set(d, T(1)), sum);
    for (std::int64_t i = 0; i < n; ++i)
      store_some(d, hn::IfThenElse(good, hn::MulAdd(load_some(d, y + i * y_stride, count), inverse, hn::Zero(d)), nan),
                 y + i * y_stride, count);
    return;
  }
  alignas(64) T logs[N];
  hn::Store(sum, d, logs);
  unary_of(Unary::log, logs, logs, N);
  const V log_sum = hn::Load(d, logs);
  for (std::int64_t i = 0; i < n; ++i) {
    const V value = hn::Add(hn::Sub(hn::Sub(load_some(d, x + i * x_stride, count), most), log_sum), hn::Zero(d));
    store_some(d, hn::IfThenElse(good, value, nan), y + i * y_stride, count);
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
