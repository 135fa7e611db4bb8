// src/kernels/attention/pass/bf16_lane_weights-inl.h: computes the weights of a block in bf16 with query rows in the
// lanes: in prefill, and in decode if an option needs that layout.
#if defined(ATTN_BF16_LANE_WEIGHTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_LANE_WEIGHTS_INL_H
#undef ATTN_BF16_LANE_WEIGHTS_INL_H
#else
#define ATTN_BF16_LANE_WEIGHTS_INL_H
#endif

#include "kernels/attention/pass/bf16_kv_rows-inl.h"
#include "kernels/attention/pass/query_tile_pass-inl.h"
#include "kernels/attention/score/dropout-inl.h"
#include "kernels/attention/softmax/bf16_softmax-inl.h"
#include "kernels/attention/tiles/bf16_dot_instruction-inl.h"

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// Computes pairs of weights, wide.p [128][R], from scores, wide.s [256][R].
struct Bf16LaneWeights {
  QueryTilePass<float>& pass;
  const Bf16Scratch& wide;

  /// Applies all score modifiers and the mask, 64 keys at a time.
  HWY_NOINLINE void apply_modifiers(std::int64_t first, int keys, const Word* visible,
                                    const ActiveRanges& ranges) const {
    restart_maximum(pass.scratch);
    for (int part = 0; part < keys; part += kv_block) {
      const int end = part + kv_block < keys ? part + kv_block : keys;
      ActiveRanges inside;
      for (int g = 0; g < ranges.count; ++g) {
        const int begin = ranges.key[g] > part ? ranges.key[g] : part,
                  stop = ranges.key[g + 1] < end ? ranges.key[g + 1] : end;
        if (begin >= stop) continue;
        inside.key[inside.count] = begin - part;
        inside.key[inside.count + 1] = stop - part;
        inside.first[inside.count] = ranges.first[g];
        inside.last[inside.count] = ranges.last[g];
        inside.whole[inside.count] = 0;
        ++inside.count;
      }
      QueryTileScratch<float> view = pass.scratch;
      view.s = wide.s + part * bf16_rows;
      apply_score_modifiers(pass.problem, pass.tile, first + part, end - part, visible ? visible + part : nullptr,
                            inside, view, pass.score_mod);
    }
  }

  /// Computes the online softmax of a block. Dropout and the scales of int8 values multiply weights after their sum.
  HWY_NOINLINE void weigh(std::int64_t first, const ActiveRanges& ranges, const BlockScales& scales) const {
    const bool dropout = pass.problem.drops(pass.tile), keep = dropout || scales.there;
    raise_maximum(pass.scratch, pass.vectors);
    for (int g = 0; g < ranges.count; ++g)
      for_each_tile(ranges.first[g], ranges.last[g], [&]<int V>(int v) ATTN_BF16_ATTR {
        weigh_pairs<V>(ranges.key[g], ranges.key[g + 1] - ranges.key[g], v, keep);
      });
    accumulate_sums(pass.scratch, pass.vectors);
    if (keep) drop_or_scale(first, ranges, dropout, scales);
  }

 private:
  /// Computes the weights of `keys` keys for V vectors of rows, rounds them to bf16, sums the rounded weights and
  /// stores pairs of them. `keep`: the unrounded weights replace the scores, for dropout and scales.
  template <int V>
  HWY_INLINE void weigh_pairs(int key, int keys, int vector, bool keep) const {
    const int at = vector * 16;
    float* s = wide.s + key * bf16_rows + at;
    std::uint32_t* p = wide.p + key / 2 * bf16_rows + at;
    __m512 reference[V], sum[V];
    ATTN_UNROLL_FOR (int v = 0; v < V; ++v) reference[v] = _mm512_load_ps(pass.scratch.reference + at + v * 16);
    ATTN_UNROLL_FOR (int v = 0; v < V; ++v) sum[v] = _mm512_load_ps(pass.scratch.sum + at + v * 16);
    const auto pair = [&](int v, __m512 low, __m512 high) ATTN_BF16_ATTR {
      const __m512i words = bf16_pairs(low, high);
      sum[v] = dot_pair(sum[v], words, _mm512_set1_epi32(0x3F803F80));  // times (1, 1)
      _mm512_store_si512(p + v * 16, words);
    };
    const auto weight = [&](int v, float* score) ATTN_BF16_ATTR {
      const __m512 w = bf16_weight(_mm512_load_ps(score), reference[v]);
      if (keep) _mm512_store_ps(score, w);
      return w;
    };
    int r = 0;
    for (; r + 2 <= keys; r += 2, s += 2 * bf16_rows, p += bf16_rows)
      ATTN_UNROLL_FOR (int v = 0; v < V; ++v) pair(v, weight(v, s + v * 16), weight(v, s + bf16_rows + v * 16));
    if (r < keys)
      ATTN_UNROLL_FOR (int v = 0; v < V; ++v) pair(v, weight(v, s + v * 16), _mm512_setzero_ps());
    ATTN_UNROLL_FOR (int v = 0; v < V; ++v) _mm512_store_ps(pass.scratch.sum + at + v * 16, sum[v]);
  }

  /// Applies dropout and the scales of int8 values to the unrounded weights and stores the rounded pairs again. The
  /// sums do not change.
  void drop_or_scale(std::int64_t first, const ActiveRanges& ranges, bool dropout, const BlockScales& scales) const {
    if (dropout) drop_block(pass.problem, pass.tile, first, ranges, wide.s);
    for (int g = 0; g < ranges.count; ++g)
      for (int r = ranges.key[g]; r < ranges.key[g + 1]; r += 2)
        for (int v = ranges.first[g]; v < ranges.last[g]; ++v) {
          const auto weight = [&](int key) ATTN_BF16_ATTR {
            if (key >= ranges.key[g + 1]) return _mm512_setzero_ps();
            const __m512 w = _mm512_load_ps(wide.s + key * bf16_rows + v * 16);
            return scales.there ? _mm512_mul_ps(w, _mm512_set1_ps(scales.value[key])) : w;
          };
          _mm512_store_si512(wide.p + r / 2 * bf16_rows + v * 16, bf16_pairs(weight(r), weight(r + 1)));
        }
  }
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
