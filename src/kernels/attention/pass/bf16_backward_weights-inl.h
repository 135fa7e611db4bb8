// src/kernels/attention/pass/bf16_backward_weights-inl.h: computes weights and derivatives of a block in the bf16
// backward pass, as the words of pairs that the products read.
#if defined(ATTN_BF16_BACKWARD_WEIGHTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_BACKWARD_WEIGHTS_INL_H
#undef ATTN_BF16_BACKWARD_WEIGHTS_INL_H
#else
#define ATTN_BF16_BACKWARD_WEIGHTS_INL_H
#endif

#include "kernels/attention/pass/bf16_backward_operands-inl.h"

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

class Bf16BackwardWeights : public Bf16BackwardOperands {
 protected:
  using Bf16BackwardOperands::Bf16BackwardOperands;

  RowConstants row_constants(int x) const { return {scratch_.m + x, scratch_.inverse + x, scratch_.delta + x}; }
  /// Stores weights p[key][vector] and derivatives d of two keys and two vectors of rows as words: weights in pairs of
  /// rows, derivatives in pairs of rows and in pairs of keys.
  HWY_INLINE void store_words(int key, int x, const __m512 (&p)[2][2], const __m512 (&d)[2][2]) const {
    __m512i rounded[2];
    ATTN_UNROLL_FOR (int k = 0; k < 2; ++k) {
      rounded[k] = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(d[k][1], d[k][0]));
      _mm512_store_si512(at_.weights + (key + k) * (R / 2) + x / 2,
                         reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(p[k][1], p[k][0])));
      _mm512_store_si512(at_.derivative + (key + k) * (R / 2) + x / 2, rounded[k]);
    }
    store_interleaved(rounded[0], rounded[1], at_.transposed + key / 2 * R + x);
  }

  /// Sets the words of keys [key, end) to 0 for the rows of the two vectors at x, which see none of them.
  void clear_words(int key, int end, int x) const {
    const __m512 none[2][2] = {{_mm512_setzero_ps(), _mm512_setzero_ps()}, {_mm512_setzero_ps(), _mm512_setzero_ps()}};
    for (; key < end; key += 2) store_words(key, x, none, none);
  }

  /// A piece of a block: keys [key, end), rows [x, last). Its scores and dP are stored `at` elements before their
  /// position in a complete block.
  struct Piece {
    int key, end, x, last, at;
  };
  /// Computes the words of a piece from products that are not scaled.
  template <bool MASKED>
  HWY_NOINLINE void weigh_piece(const KvBlock& keys, const Piece& piece) const {
    const __m512 scale = _mm512_set1_ps(static_cast<float>(p_.scale));
    const RowConstants rows[2] = {row_constants(piece.x), row_constants(piece.x + N)};
    for (int r = piece.key; r < piece.end; r += 2) {
      __m512 p[2][2], d[2][2];
      ATTN_UNROLL_FOR (int k = 0; k < 2; ++k)
        ATTN_UNROLL_FOR (int n = 0; n < 2; ++n) {
          const int place = (r + k) * R + piece.x + n * N - piece.at;
          const bool there = k == 0 || r + 1 < piece.end;  // an odd last key: its partner counts as 0
          const auto visible = static_cast<__mmask16>(MASKED ? keys.visible[r + k] >> (piece.x + n * N) : ~Word{0});
          const __m512 s = _mm512_mul_ps(_mm512_load_ps(scratch_.scores.s + place), scale);
          const __mmask16 seen = rows[n].sees(s, there ? visible : __mmask16{0});
          p[k][n] = rows[n].weight(s, seen);
          d[k][n] = rows[n].derivative(p[k][n], _mm512_load_ps(scratch_.d + place), seen);
        }
      store_words(r, piece.x, p, d);
    }
  }

  /// Computes weights (after dropout) in scores.s and derivatives by the softmax's input in d; 0 where masked. Notes in
  /// seen_ which rows see each key.
  HWY_NOINLINE void weigh_apart(const KvBlock& keys) {
    const ActiveRanges& ranges = keys.ranges;
    alignas(64) Word kept[64];
    const bool dropped = p_.drops(rows_);
    if (dropped) kept_rows(p_, rows_, keys.first, keys.count, kept);
    const __m512 keep_scale = _mm512_set1_ps(static_cast<float>(p_.keep_scale));
    Word real = 0;  // rows that see some key
    for (int i = 0; i < vectors_ * N; ++i) real |= Word{scratch_.inverse[i] != 0} << i;
    for (int r = 0; r < keys.count; ++r) seen_[r] = 0;
    for (int g = 0; g < ranges.count; ++g)
      for (int v = ranges.first[g]; v < ranges.last[g]; ++v) {
        const RowConstants rows = row_constants(v * N);
        for (int r = ranges.key[g]; r < ranges.key[g + 1]; ++r) {
          float *const place = scratch_.scores.s + r * R + v * N, *const derivative = scratch_.d + r * R + v * N;
          const __m512 s = _mm512_load_ps(place);
          const __mmask16 seen =
              rows.sees(s, static_cast<__mmask16>((keys.visible ? keys.visible[r] & real : real) >> (v * N)));
          const __m512 p = rows.weight(s, seen);
          __m512 weight = p, dp = _mm512_load_ps(derivative);
          if (dropped) {
            const auto stays = static_cast<__mmask16>(kept[r] >> (v * N));
            weight = _mm512_maskz_mul_ps(stays, p, keep_scale);
            dp = _mm512_maskz_mul_ps(stays, dp, keep_scale);
          }
          _mm512_store_ps(place, weight);
          _mm512_store_ps(derivative, rows.derivative(p, dp, seen));
          seen_[r] |= Word{seen} << (v * N);
        }
      }
  }

  /// Packs weights and derivatives to words.
  HWY_NOINLINE void pack(int keys) {
    for (int r = 0; r < keys; r += 2)
      for (int x = 0; x < vectors_ * N; x += 2 * N) {
        __m512 p[2][2], d[2][2];
        for (int k = 0; k < 2; ++k)
          ATTN_UNROLL_FOR (int n = 0; n < 2; ++n) {
            const int place = (r + k) * R + x + n * N;
            p[k][n] = r + k < keys ? _mm512_load_ps(scratch_.scores.s + place) : _mm512_setzero_ps();
            d[k][n] = r + k < keys ? _mm512_load_ps(scratch_.d + place) : _mm512_setzero_ps();
          }
        store_words(r, x, p, d);
      }
  }

  Word seen_[kv_block];  // set by weigh_apart: for each key the rows that see it
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
