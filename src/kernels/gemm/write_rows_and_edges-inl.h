// src/kernels/gemm/write_rows_and_edges-inl.h: writes finished sums of a product to y: applies the activation, rounds
// to bf16, and handles the edges of the matrix.
#if defined(ATTN_GEMM_WRITE_ROWS_AND_EDGES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_WRITE_ROWS_AND_EDGES_INL_H
#undef ATTN_GEMM_WRITE_ROWS_AND_EDGES_INL_H
#else
#define ATTN_GEMM_WRITE_ROWS_AND_EDGES_INL_H
#endif

#include <hwy/highway.h>

#include <cstring>
#include <limits>

#include "kernels/math/activations-inl.h"
#include "kernels/reference.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// Rounds f32 to bf16, to nearest even; denormals are kept. A NaN must be canonical.
template <class D>
HWY_INLINE auto rounded_to_bf16(D, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> bits;
  const hn::Rebind<std::uint16_t, D> halves;
  const auto word = hn::BitCast(bits, x), odd = hn::And(hn::ShiftRight<16>(word), hn::Set(bits, 1u));
  const auto upper = hn::ShiftRight<16>(hn::Add(word, hn::Add(odd, hn::Set(bits, 0x7fffu))));
  return hn::DemoteTo(halves, hn::BitCast(hn::RebindToSigned<D>(), upper));
}

/// Computes x = f(x) for whole vectors of aligned memory.
template <class D, typename F>
HWY_INLINE void each_vector(D d, hn::TFromD<D>* x, int count, F f) {
  for (int i = 0; i < count; i += static_cast<int>(hn::Lanes(d))) hn::Store(f(hn::Load(d, x + i)), d, x + i);
}

template <typename T>
HWY_NOINLINE void activate(Activation activation, T* x, int count) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  switch (activation) {
    case Activation::none: return;
    case Activation::relu:
      return each_vector(d, x, count, [d](V v) HWY_ATTR { return hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v); });
    case Activation::silu: return each_vector(d, x, count, [d](V v) HWY_ATTR { return silu(d, v); });
    case Activation::gelu_none: return each_vector(d, x, count, [d](V v) HWY_ATTR { return gelu_none(d, v); });
    case Activation::gelu_tanh: return each_vector(d, x, count, [d](V v) HWY_ATTR { return gelu_tanh(d, v); });
  }
}

/// Writes the first `columns` of `width` sums of each of `rows` rows to y. Sums are aligned whole vectors that include
/// the bias and have canonical NaN. With a bf16 y the activation is applied to the rounded sum, as if the sum had been
/// stored first.
template <typename T>
HWY_NOINLINE void finish_rows(Activation activation, bool narrow, T* sums, int rows, int width, int columns, void* y,
                              std::int64_t y_stride) {
  const hn::ScalableTag<T> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  if constexpr (sizeof(T) == 4) {
    if (narrow) {
      const hn::RebindToUnsigned<decltype(d)> bits;
      const hn::Rebind<std::uint16_t, decltype(d)> halves;
      if (activation != Activation::none) {
        each_vector(d, sums, rows * width, [d, bits](hn::Vec<decltype(d)> v) HWY_ATTR {
          return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, rounded_to_bf16(d, v))));
        });
        activate(activation, sums, rows * width);
      }
      for (int i = 0; i < rows; ++i) {
        std::uint16_t* to = static_cast<std::uint16_t*>(y) + i * y_stride;
        int c = 0;
        for (; c + lanes <= columns; c += lanes)
          hn::StoreU(rounded_to_bf16(d, hn::Load(d, sums + i * width + c)), halves, to + c);
        if (c < columns) {
          alignas(64) std::uint16_t edge[HWY_LANES(T)];
          hn::Store(rounded_to_bf16(d, hn::Load(d, sums + i * width + c)), halves, edge);
          std::memcpy(to + c, edge, sizeof(std::uint16_t) * static_cast<std::size_t>(columns - c));
        }
      }
      return;
    }
  }
  activate(activation, sums, rows * width);
  for (int i = 0; i < rows; ++i)
    std::memcpy(static_cast<T*>(y) + i * y_stride, sums + i * width, sizeof(T) * static_cast<std::size_t>(columns));
}

/// Adds the bias to sums [rows][width] of columns [column, column + columns) and writes them to y.
template <class Kind>
void finish_few_rows(const GemmProblem& p, typename Kind::Sum* sums, int rows, int width, std::int64_t column,
                     int columns) {
  using Sum = typename Kind::Sum;
  const Sum* bias = static_cast<const Sum*>(p.bias);
  for (int i = 0; i < rows; ++i)
    for (int c = 0; c < columns; ++c) {
      Sum& value = sums[i * width + c];
      if (bias) value += bias[column + c];
      if (value != value) value = std::numeric_limits<Sum>::quiet_NaN();
    }
  void* y = p.narrow ? static_cast<void*>(static_cast<std::uint16_t*>(p.y) + column) : static_cast<Sum*>(p.y) + column;
  finish_rows(p.activation, p.narrow, sums, rows, width, columns, y, p.y_stride[0]);
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
