// src/kernels/gemm/operand_types-inl.h: defines the operands of a product for each element type (f32, f64, bf16,
// widened bf16 and f16). A word is what one step reads of an operand; each type makes words of items, multiplies them
// and adds the products to a sum.
#if defined(ATTN_GEMM_OPERAND_TYPES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_OPERAND_TYPES_INL_H
#undef ATTN_GEMM_OPERAND_TYPES_INL_H
#else
#define ATTN_GEMM_OPERAND_TYPES_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "kernels/reference.h"
#include "kernels/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// For f32 and f64: a word is one element, and a step is one fused multiply-add.
template <typename T>
struct Plain : MultiplyAdd<T> {
  using Left = T;  // element type of a
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

  /// Make the word of one item, and a vector of words of adjacent items. Only Pairs uses the second argument.
  static HWY_INLINE T word(const T* item, const T*) { return *item; }
  static HWY_INLINE V words(const T* items, const T*) { return hn::LoadU(D(), items); }
  /// Returns sum + a b: the word at `a` times a vector of words of b.
  static HWY_INLINE V add(const Left* a, V b, V sum) { return Plain::step(hn::Set(D(), *a), b, sum); }
};

#if HWY_TARGET == HWY_AVX3
/// For bf16: a word is the pair of items (2k, 2k + 1), stored in the bits of an f32, and a step is one vdpbf16ps.
struct Pairs : DotPairs {
  using Left = std::uint16_t;
  using Word = float;
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;

  /// Makes a word of two items; if `second` is null (the last item of an odd number), its other half is 0.
  static HWY_INLINE Word word(const Item* first, const Item* second) {
    const std::uint32_t bits = *first | (second ? static_cast<std::uint32_t>(*second) << 16 : 0u);
    return __builtin_bit_cast(float, bits);
  }
  static HWY_INLINE V words(const Item* first, const Item* second) {
    const hn::ScalableTag<std::uint32_t> d;
    const hn::Rebind<Item, decltype(d)> items;
    const auto low = hn::PromoteTo(d, hn::LoadU(items, first));
    const auto high = second ? hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(items, second))) : hn::Zero(d);
    return hn::BitCast(D(), hn::Or(low, high));
  }
  static HWY_INLINE V add(const Left* a, V b, V sum) { return step(broadcast(word_at<float>(a)), b, sum); }
  /// Adds the product for the last word of an odd number of items: its second item counts as 0.
  static HWY_INLINE V add_odd(const Left* a, V b, V sum) { return step(hn::Set(D(), word(a, nullptr)), b, sum); }
};
#endif

/// For an f32 a times a bf16 or f16 b, widened exactly: a word is a pair of items of b and takes two multiply-adds.
/// Used for few rows if b is contiguous along k. Otherwise b is widened before use, and the type is Plain<float>.
template <Element HALF>
struct Widened {
  using Item = std::uint16_t;
  using Left = float;
  using Word = float;
  using Sum = float;
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  static constexpr int depth = 2;

  static HWY_INLINE Word word(const Item* item, const Item*) { return __builtin_bit_cast(float, std::uint32_t{*item}); }
  static HWY_INLINE V add(const Left* a, V b, V sum) {
    return hn::MulAdd(hn::Set(D(), a[1]), second(b), add_odd(a, b, sum));
  }
  static HWY_INLINE V add_odd(const Left* a, V b, V sum) { return hn::MulAdd(hn::Set(D(), *a), first(b), sum); }

  using Bits = hn::RebindToUnsigned<D>;
  /// Widens the f16 in the lower half of each word.
  static HWY_INLINE V of_lower(hn::Vec<Bits> bits) {
    return hn::PromoteTo(
        D(), hn::BitCast(hn::Rebind<hwy::float16_t, D>(), hn::TruncateTo(hn::Rebind<std::uint16_t, D>(), bits)));
  }

 private:
  static HWY_INLINE V first(V pairs) {
    const auto bits = hn::BitCast(Bits(), pairs);
    if constexpr (HALF == Element::bf16) return hn::BitCast(D(), hn::ShiftLeft<16>(bits));
    else return of_lower(bits);
  }
  static HWY_INLINE V second(V pairs) {
    const auto bits = hn::BitCast(Bits(), pairs);
    if constexpr (HALF == Element::bf16) return hn::BitCast(D(), hn::And(bits, hn::Set(Bits(), 0xffff0000u)));
    else return of_lower(hn::ShiftRight<16>(bits));
  }
};

/// Returns the bytes of an item of B as it is stored.
template <class Kind>
HWY_INLINE std::int64_t stored_bytes(const GemmProblem& p) {
  return p.has_half_b() ? 2 : static_cast<std::int64_t>(sizeof(typename Kind::Item));
}

/// Returns the address of row i of A, or of the last row if A has no row i.
template <class Kind>
HWY_INLINE const typename Kind::Left* row_of_a(const GemmProblem& p, std::int64_t i) {
  return static_cast<const typename Kind::Left*>(p.a) + std::min(i, p.m - 1) * p.a_stride[0];
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
