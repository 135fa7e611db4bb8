// src/kernels/attention/pass/amx_backward_units-inl.h: computes the products of the bf16 backward pass by AMX, in units
// of 32 columns, keys or rows: the functions of bf16_backward_pairs-inl.h.
#if defined(ATTN_AMX_BACKWARD_UNITS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_AMX_BACKWARD_UNITS_INL_H
#undef ATTN_AMX_BACKWARD_UNITS_INL_H
#else
#define ATTN_AMX_BACKWARD_UNITS_INL_H
#endif

#include "kernels/attention/pass/bf16_backward_weights-inl.h"
#include "kernels/attention/tiles/amx_backward_products-inl.h"

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

class AmxBackwardUnits : public Bf16BackwardWeights {
 protected:
  static constexpr int unit = tile_items;
  static constexpr bool rounds = false, reads_all_words = true;

  AmxBackwardUnits(const AttentionGradient& g, const Task& rows, Arena& arena)
      : Bf16BackwardWeights(g, rows, arena, 64 * N) {
    tiles_.begin();
  }

  void make_delta(const Bf16Rows& out) {
    tile_diagonal(padded_rows(out, p_.value_dim), at_.dout, tiles_, vectors_ * N, p_.value_dim, scratch_.scores.s,
                  scratch_.delta, ahead_);
  }

  void scaled_products(const KvBlock& keys, const Bf16Rows& k, const Bf16Rows& v) {
    const ActiveRanges& ranges = keys.ranges;
    for (int g = 0; g < ranges.count; ++g) {
      const Piece piece{ranges.key[g], ranges.key[g + 1], ranges.first[g] / 2 * 2 * N, (ranges.last[g] + 1) / 2 * 2 * N,
                        0};
      if (piece.x < piece.last) products(k, v, piece);
    }
    scale_scores(keys.count, static_cast<float>(p_.scale));
  }
  /// A piece has at most 32 keys, so that its products are still in the caches when its words are computed.
  void begin_pieces(const KvBlock&, const Bf16Rows&, const Bf16Rows&) {}
  void next_piece(Piece& piece, const Bf16Rows& k, const Bf16Rows& v) {
    piece.end = piece.end - piece.key < 2 * tile_rows ? piece.end : piece.key + 2 * tile_rows;
    piece.at = piece.key * R + piece.x;
    products(k, v, piece);
  }

  /// The derivatives are transposed to words of key pairs (rows of A) in the memory of the scores.
  HWY_NOINLINE void add_to_dq(const KvBlock& keys, const PairTotals& dq) {
    const int pairs = (keys.count + tile_items - 1) / tile_items * tile_pairs;
    for (int n = (keys.count + 1) / 2 * R; n < pairs * R; n += N)
      _mm512_store_si512(at_.transposed + n, _mm512_setzero_si512());
    transpose(reinterpret_cast<const float*>(at_.transposed), std::int64_t{R}, std::int64_t{pairs},
              std::int64_t{vectors_} * N, scratch_.scores.s, std::int64_t{R} / 2);
    TileProduct product{{scratch_.scores.s, 2 * R, 4 * tile_pairs},
                        {at_.k_rows, 4 * dq.stride, 4 * dq.stride * tile_pairs},
                        dq.base,
                        dq.stride,
                        dq.begins};
    for (int v = 0; v < vectors_; ++v) product.from_items(v, keys_seen_by(keys, v * N, v * N + N));
    tile_product(product, tiles_, vectors_ * N, dq.stride, ahead_);
  }
  HWY_NOINLINE void add_to_keys(const KvBlock& keys, const std::uint32_t* words, const std::uint32_t* rows,
                                std::int64_t, const PairTotals& total) {
    TileProduct product{{words, 2 * R, 4 * tile_pairs},
                        {rows, 4 * total.stride, 4 * total.stride * tile_pairs},
                        total.base,
                        total.stride,
                        total.begins};
    for (int r = 0; r < keys.count; r += tile_rows)
      product.from_items(r / tile_rows,
                         Sums::rows_that_see(keys, r, keys.count - r < tile_rows ? keys.count - r : tile_rows));
    tile_product(product, tiles_, keys.count, total.stride, ahead_);
  }

 private:
  /// Computes scores (not scaled) and dP of a piece, from the block's rows of K and V.
  HWY_NOINLINE void products(const Bf16Rows& k, const Bf16Rows& v, const Piece& piece) {
    const auto product = [&](const Bf16Rows& rows, std::int64_t columns, const std::uint32_t* transposed, float* to) {
      float* const c = to + piece.key * R + piece.x - piece.at;
      TileProduct x{{rows.row(piece.key), 2 * rows.stride, 2 * tile_items},
                    {transposed + piece.x, 4 * R, 4 * R * tile_pairs},
                    c,
                    R,
                    true};
      for (int tile = 0; tile < R / tile_rows; ++tile) x.from_items(tile, {0, static_cast<int>(columns)});
      tile_product(x, tiles_, piece.end - piece.key, piece.last - piece.x, ahead_);
    };
    product(k, p_.dim, at_.q, scratch_.scores.s);
    product(v, p_.value_dim, at_.dout, scratch_.d);
  }
  HWY_NOINLINE void scale_scores(int keys, float scale) const {
    for (int n = 0; n < keys * R; n += N)
      _mm512_store_ps(scratch_.scores.s + n,
                      _mm512_mul_ps(_mm512_load_ps(scratch_.scores.s + n), _mm512_set1_ps(scale)));
  }

  AmxTiles tiles_;
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
