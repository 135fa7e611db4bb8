// src/kernels/attention/mask/transpose_bits-inl.h: transposes a 64 x 64 bit matrix: from one word per row to one word
// per key.
#if defined(ATTN_TRANSPOSE_BITS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_TRANSPOSE_BITS_INL_H
#undef ATTN_TRANSPOSE_BITS_INL_H
#else
#define ATTN_TRANSPOSE_BITS_INL_H
#endif

#include "kernels/attention/mask/mask_bits.h"
#include "kernels/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Exchanges bits between words whose indices differ in the bit `STEP`: each bit moves to the word and bit where it
/// belongs.
template <int STEP>
HWY_INLINE void exchange_bits(Word* words, int distance) {
  const hn::ScalableTag<Word> d;
  constexpr int N = static_cast<int>(HWY_LANES(Word));
  constexpr Word kept = STEP == 32   ? 0x00000000FFFFFFFFull
                        : STEP == 16 ? 0x0000FFFF0000FFFFull
                        : STEP == 8  ? 0x00FF00FF00FF00FFull
                        : STEP == 4  ? 0x0F0F0F0F0F0F0F0Full
                        : STEP == 2  ? 0x3333333333333333ull
                                     : 0x5555555555555555ull;
  const auto mask = hn::Set(d, kept);
  for (int first = 0; first < 64; first += 2 * distance)
    for (int i = first; i < first + distance; i += N) {
      const auto low = hn::Load(d, words + i), high = hn::Load(d, words + i + distance);
      const auto moved = hn::And(hn::Xor(hn::ShiftRight<STEP>(low), high), mask);
      hn::Store(hn::Xor(low, hn::ShiftLeft<STEP>(moved)), d, words + i);
      hn::Store(hn::Xor(high, moved), d, words + i + distance);
    }
}

/// Transposes: bit j of word i becomes bit i of word j. `words` is 64-byte aligned.
inline HWY_NOINLINE void transpose_bits(Word* words) {
  constexpr int N = static_cast<int>(HWY_LANES(Word)), rows = 64 / N;
  // steps below N would exchange lanes of a vector, so they are done after the words are transposed as a [64 / N][N]
  // matrix
  const auto step = [&]<int STEP>() HWY_ATTR { exchange_bits<STEP>(words, STEP >= N ? STEP : STEP * rows); };
  alignas(64) Word transposed[64];
  const auto transpose_words = [&](int from_rows, int from_columns) HWY_ATTR {
    transpose(reinterpret_cast<const double*>(words), from_columns, from_rows, from_columns,
              reinterpret_cast<double*>(transposed), from_rows);
    std::memcpy(words, transposed, sizeof transposed);
  };
  step.template operator()<32>();
  step.template operator()<16>();
  step.template operator()<8>();
  if constexpr (N <= 4) step.template operator()<4>();
  if constexpr (N <= 2) step.template operator()<2>();
  transpose_words(rows, N);
  if constexpr (N > 4) step.template operator()<4>();
  if constexpr (N > 2) step.template operator()<2>();
  step.template operator()<1>();
  transpose_words(N, rows);
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
