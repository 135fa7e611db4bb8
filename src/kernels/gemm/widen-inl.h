// src/kernels/gemm/widen-inl.h: widens a 16-bit B (bf16, f16) for products in f32, piece by piece, directly before use.
#if defined(ATTN_GEMM_WIDEN_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_WIDEN_INL_H
#undef ATTN_GEMM_WIDEN_INL_H
#else
#define ATTN_GEMM_WIDEN_INL_H
#endif

#include <hwy/highway.h>

#include <cstring>

#include "kernels/reference.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// The items that are widened at a time into a buffer on the stack, along k or along a row of B: the rows that are used
/// together have a few KB.
inline constexpr int wide_items = 64;

/// Loads a vector of 16-bit values, widened exactly. A NaN may become quiet; a sum with a NaN becomes the canonical NaN
/// anyway.
template <Element HALF>
HWY_INLINE auto wide_vector(const std::uint16_t* from) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<std::uint16_t, decltype(d)> halves;
  if constexpr (HALF == Element::bf16) {
    return hn::BitCast(d,
                       hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<decltype(d)>(), hn::LoadU(halves, from))));
  } else {
    const hn::Rebind<hwy::float16_t, decltype(d)> numbers;
    return hn::PromoteTo(d, hn::BitCast(numbers, hn::LoadU(halves, from)));
  }
}

template <Element HALF>
HWY_INLINE void widen_row(const std::uint16_t* from, std::int64_t items, float* to) {
  const hn::ScalableTag<float> d;
  constexpr std::int64_t N = HWY_LANES(float);
  std::int64_t i = 0;
  for (; i + N <= items; i += N) hn::StoreU(wide_vector<HALF>(from + i), d, to + i);
  if (i == items) return;
  std::uint16_t narrow[N] = {};
  float wide[N];
  std::memcpy(narrow, from + i, sizeof(std::uint16_t) * static_cast<std::size_t>(items - i));
  hn::StoreU(wide_vector<HALF>(narrow), d, wide);
  std::memcpy(to + i, wide, sizeof(float) * static_cast<std::size_t>(items - i));
}

/// Computes to[r][i] = from[r][i] for r < rows, i < items; strides in elements. `half`: bf16 or f16.
HWY_NOINLINE void widen_rows(Element half, const void* from, std::int64_t from_stride, std::int64_t rows,
                             std::int64_t items, float* to, std::int64_t to_stride) {
  const auto* row = static_cast<const std::uint16_t*>(from);
  for (std::int64_t r = 0; r < rows; ++r, row += from_stride, to += to_stride)
    half == Element::bf16 ? widen_row<Element::bf16>(row, items, to) : widen_row<Element::f16>(row, items, to);
}

/// Returns the bytes of an item of B as it is stored.
template <class Kind>
HWY_INLINE std::int64_t stored_bytes(const GemmProblem& p) {
  return p.has_half_b() ? 2 : static_cast<std::int64_t>(sizeof(typename Kind::Item));
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
