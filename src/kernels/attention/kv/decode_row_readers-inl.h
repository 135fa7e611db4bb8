// src/kernels/attention/kv/decode_row_readers-inl.h: defines how decode reads stored rows of K and V in registers, by
// one struct for each format of rows. int8, which is stored in groups of rows, has its own loaders
// (tiles/decode_int8-inl.h).
//
//   RowFormat   Compute      the type of the scores
//               Item, Word   an element of a row; the word that a transpose moves: one or two items
//               item()       converts item i of each word exactly; load() converts adjacent items, one per lane
#if defined(ATTN_DECODE_ROW_READERS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_DECODE_ROW_READERS_INL_H
#undef ATTN_DECODE_ROW_READERS_INL_H
#else
#define ATTN_DECODE_ROW_READERS_INL_H
#endif

#include "kernels/simd/widen-inl.h"
#include "kernels/attention/kv_rows.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Rows whose elements have the type of the scores, f32 or f64: nothing is converted. SameFormat<float> also serves the
/// bf16 dot product (DotPairs): it moves each pair of bf16 unchanged, as one 32-bit word.
template <typename T>
struct SameFormat {
  using Compute = T;
  using Item = T;
  using Word = T;
  static constexpr int word_items = 1;
  static HWY_INLINE Vector<T> item(Vector<T> words, int) { return words; }
  static HWY_INLINE Vector<T> load(const T* items) { return hn::LoadU(Tag<T>(), items); }
};

/// Rows of f16, widened to f32; a word is a pair of f16.
struct F16Format {
  using Compute = float;
  using Item = std::uint16_t;
  using Word = float;
  static constexpr int word_items = 2;

  static HWY_INLINE Vector<float> item(Vector<float> words, int i) {
    const auto bits = hn::BitCast(hn::RebindToUnsigned<Tag<float>>(), words);
    const auto low = hn::TruncateTo(hn::Rebind<Item, Tag<float>>(), i == 0 ? bits : hn::ShiftRight<16>(bits));
    return hn::PromoteTo(Tag<float>(), hn::BitCast(hn::Rebind<hwy::float16_t, Tag<float>>(), low));
  }
  static HWY_INLINE Vector<float> load(const Item* items) {
    return widen(Tag<float>(), reinterpret_cast<const hwy::float16_t*>(items));
  }
};

/// Returns whether an element type has a format. Rows of other types are converted first, block by block. So are rows
/// of bf16 without a bf16 kernel: few processors need it, and the tiles of a format take 25 KB of code.
template <typename T>
constexpr bool has_row_format(Element element) {
  return bytes_of(element) == sizeof(T) || (sizeof(T) == 4 && element == Element::f16);
}
/// Calls visit.template operator()<Format>() for the format of an element; of T for converted rows.
template <typename T, class F>
HWY_INLINE void by_row_format(Element element, F&& visit) {
  if constexpr (sizeof(T) == 4)
    if (element == Element::f16) return visit.template operator()<F16Format>();
  visit.template operator()<SameFormat<T>>();
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
