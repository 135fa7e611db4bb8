// src/kernels/attention/pass/bf16_backward_pairs-inl.h: computes the products of the bf16 backward pass by vdpbf16ps,
// on pairs. amx_backward_units-inl.h has the same functions by AMX; the pass gets one of the two classes.
#if defined(ATTN_BF16_BACKWARD_PAIRS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_BACKWARD_PAIRS_INL_H
#undef ATTN_BF16_BACKWARD_PAIRS_INL_H
#else
#define ATTN_BF16_BACKWARD_PAIRS_INL_H
#endif

#include "kernels/attention/pass/bf16_backward_weights-inl.h"

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

class Bf16BackwardPairs : public Bf16BackwardWeights {
 protected:
  /// `unit`: the columns, keys or rows of a chain that a product takes together. `rounds`: whether a product rounds
  /// sums that are complete. `reads_all_words`: whether products read the words of vectors without a visible key even
  /// if the block has no gaps.
  static constexpr int unit = 2;
  static constexpr bool rounds = true, reads_all_words = false;

  Bf16BackwardPairs(const AttentionGradient& g, const Task& rows, Arena& arena)
      : Bf16BackwardWeights(g, rows, arena, 16 * N) {}

  void make_delta(const Bf16Rows& out) {
    const std::int64_t pairs = (p_.value_dim + 1) / 2;
    for (int x = 0; x < vectors_ * N; x += N) _mm512_store_ps(scratch_.delta + x, _mm512_setzero_ps());
    auto* const transposed = reinterpret_cast<std::uint32_t*>(scratch_.scores.s);
    for (std::int64_t c = 0; c < pairs; c += kv_block) {
      const std::int64_t count = pairs - c < kv_block ? pairs - c : kv_block, columns = p_.value_dim - 2 * c;
      const std::int64_t copied = columns < 2 * count ? columns : 2 * count;
      transpose_pairs(padded_rows({out.base + 2 * c, out.stride}, copied), copied, transposed);
      const auto add = [&]<int V>() ATTN_BF16_ATTR {  // several chains at a time
        __m512 sum[V];
        ATTN_UNROLL_FOR (int v = 0; v < V; ++v) sum[v] = _mm512_load_ps(scratch_.delta + v * N);
        for (std::int64_t n = 0; n < count; ++n)
          ATTN_UNROLL_FOR (int v = 0; v < V; ++v)
            sum[v] = dot_pair(sum[v], _mm512_load_si512(transposed + n * R + v * N),
                              _mm512_load_si512(at_.dout + (c + n) * R + v * N));
        ATTN_UNROLL_FOR (int v = 0; v < V; ++v) _mm512_store_ps(scratch_.delta + v * N, sum[v]);
      };
      vectors_ == 4 ? add.template operator()<4>() : add.template operator()<2>();
    }
  }

  /// Computes scores times the scale and dP of a block, from its rows of K and V.
  void scaled_products(const KvBlock& keys, const Bf16Rows& k, const Bf16Rows& v) {
    products(keys, k, v, static_cast<float>(p_.scale));
  }
  /// Computes scores (not scaled) and dP of the block. (AmxBackwardUnits computes them piece by piece, in next_piece.)
  void begin_pieces(const KvBlock& keys, const Bf16Rows& k, const Bf16Rows& v) { products(keys, k, v, 1); }
  void next_piece(Piece&, const Bf16Rows&, const Bf16Rows&) {}

  /// Adds the block to dQ: the words of pairs of keys times `k_rows`.
  void add_to_dq(const KvBlock& keys, const PairTotals& dq) {
    RowRange keys_of_rows[R / 8];
    for (int row = 0; row < vectors_ * N; row += 8) keys_of_rows[row / 8] = keys_seen_by(keys, row, row + 8);
    const auto keys_of = [&](int row, int) { return keys_of_rows[row / 8]; };
    bf16_add<1, R>(at_.transposed, static_cast<int>(rows_.rows), at_.k_rows, p_.dim, keys_of, dq, ahead_);
  }
  /// Adds the words of pairs of rows times `rows` to dK or dV of the block.
  void add_to_keys(const KvBlock& keys, const std::uint32_t* words, const std::uint32_t* rows, std::int64_t columns,
                   const PairTotals& total) {
    const auto range_of = [&](int key, int count) { return Sums::rows_that_see(keys, key, count); };
    bf16_add<R / 2, 1>(words, keys.count, rows, columns, range_of, total, ahead_);
  }

 private:
  void products(const KvBlock& keys, const Bf16Rows& k, const Bf16Rows& v, float scale) {
    const ActiveRanges& ranges = keys.ranges;
    const auto product = [&](const Bf16Rows& rows, std::int64_t columns, const std::uint32_t* transposed, float factor,
                             float* to) {
      for (int g = 0; g < ranges.count; ++g) {
        const int key = ranges.key[g], count = ranges.key[g + 1] - key;
        in_pairs(ranges.first[g], ranges.last[g], [&]<int V>(int x) ATTN_BF16_ATTR {
          pair_columns<DotPairs, V>({rows.row(key), rows.stride}, count, (columns + 1) / 2, transposed + x * N, factor,
                                    to + key * R + x * N, ahead_);
        });
      }
    };
    product(k, p_.dim, at_.q, scale, scratch_.scores.s);
    product(v, p_.value_dim, at_.dout, 1, scratch_.d);
  }
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
