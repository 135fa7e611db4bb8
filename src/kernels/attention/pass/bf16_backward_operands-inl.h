// src/kernels/attention/pass/bf16_backward_operands-inl.h: prepares the operands of the bf16 backward products, as
// pairs in the layouts that the products read, and computes the products by AMX.
#if defined(ATTN_BF16_BACKWARD_OPERANDS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_BACKWARD_OPERANDS_INL_H
#undef ATTN_BF16_BACKWARD_OPERANDS_INL_H
#else
#define ATTN_BF16_BACKWARD_OPERANDS_INL_H
#endif

#include "kernels/attention/pass/bf16_kv_gradients-inl.h"
#include "kernels/attention/pass/parameter_gradients-inl.h"
#include "kernels/attention/tiles/amx_backward_products-inl.h"

#include <algorithm>

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

class Bf16BackwardOperands : public GradientSums<float> {
 protected:
  using Sums = GradientSums<float>;
  using Bf16Rows = Matrix<std::uint16_t>;

  /// `tiles`: the configuration of whole tiles, if products are by AMX; null: products are by pairs.
  Bf16BackwardOperands(const AttentionGradient& g, const GradientRows& rows, Arena& arena, AmxTiles* tiles)
      : Sums(g, rows, arena), tiles_(tiles), at_(arena, g.problem) {
    begin_step(ahead_, g, rows, sizeof(std::uint16_t), (tiles != nullptr ? 64 : 16) * N);
    vectors_ = (vectors_ + 1) / 2 * 2;  // a word of two rows is built from two vectors
    k_ = {static_cast<const std::uint16_t*>(p_.k.base) + rows.batch * p_.k_stride[0] + k_head() * p_.k_stride[1],
          p_.k.row_stride};
    v_ = {static_cast<const std::uint16_t*>(p_.v.base) + rows.batch * p_.v_stride[0] + v_head() * p_.v_stride[1],
          p_.v.row_stride};
  }
  std::int64_t k_head() const { return p_.key_head(rows_.head); }
  std::int64_t v_head() const { return p_.value_head(rows_.head); }

  /// Returns the rows in whole vectors of rows, 0 for a row that sees no key or does not exist: in place, or copied to
  /// at_.rows.
  Bf16Rows settled(const Bf16Rows& from, std::int64_t columns) const {
    if (whole_ && columns % 32 == 0 && from.stride % 2 == 0) return from;
    const std::int64_t wide = Bf16GradientOperands::wide(columns);
    for (int r = 0; r < vectors_ * N; ++r) {
      const std::uint16_t* const row = from.row(r);
      std::uint16_t* const copy = at_.rows + r * wide;
      const bool sees = scratch_.inverse[r] != 0;
      std::int64_t c = 0;
      for (; sees && c + 32 <= columns; c += 32) _mm512_store_si512(copy + c, _mm512_loadu_si512(row + c));
      for (; c < wide; c += 32)
        _mm512_store_si512(copy + c, sees ? bf16_columns(row, c, columns) : _mm512_setzero_si512());
    }
    return {at_.rows, wide};
  }
  /// Transposes rows that `settled` returned as pairs of columns, in whole units.
  void transpose_pairs(const Bf16Rows& rows, std::int64_t columns, std::uint32_t* to) const {
    transpose(reinterpret_cast<const float*>(rows.base), rows.stride / 2, std::int64_t{vectors_} * N,
              Bf16GradientOperands::wide(columns) / 2, reinterpret_cast<float*>(to), std::int64_t{R});
  }
  /// Stores rows that `settled` returned as pairs of rows; returns true if some number is not finite.
  bool pair_all_rows(const Bf16Rows& rows, std::int64_t columns, std::uint32_t* to) const {
    const auto columns_of = [&](int r, std::int64_t c) ATTN_BF16_ATTR { return _mm512_loadu_si512(rows.row(r) + c); };
    return bf16_pair_rows(vectors_ * N, Bf16GradientOperands::wide(columns), columns_of, to);
  }
  /// Stores the block's rows of K as pairs of rows. An odd last row is paired with 0; with tiles the rest of an
  /// incomplete unit is 0 too.
  void pair_keys(const KvBlock& keys, std::int64_t wide) {
    const Bf16Rows k{k_.row(keys.first), k_.stride};
    const int whole = tiles_ != nullptr ? tile_items : 2, count = (keys.count + whole - 1) / whole * whole;
    if (p_.dim == wide && keys.count == count)
      bf16_pair_rows(
          keys.count, wide, [&](int r, std::int64_t c) ATTN_BF16_ATTR { return _mm512_loadu_si512(k.row(r) + c); },
          at_.k_rows);
    else
      bf16_pair_rows(
          count, wide,
          [&](int r, std::int64_t c)
              ATTN_BF16_ATTR { return r < keys.count ? bf16_columns(k.row(r), c, p_.dim) : _mm512_setzero_si512(); },
          at_.k_rows);
  }
  void make_delta(const Bf16Rows& out) {
    if (tiles_ != nullptr)
      return tile_diagonal(settled(out, p_.value_dim), at_.dout, *tiles_, vectors_ * N, p_.value_dim, scratch_.scores.s,
                           scratch_.delta, ahead_);
    const std::int64_t pairs = (p_.value_dim + 1) / 2;
    for (int x = 0; x < vectors_ * N; x += N) _mm512_store_ps(scratch_.delta + x, _mm512_setzero_ps());
    auto* const transposed = reinterpret_cast<std::uint32_t*>(scratch_.scores.s);
    for (std::int64_t c = 0; c < pairs; c += kv_block) {
      const std::int64_t count = pairs - c < kv_block ? pairs - c : kv_block, columns = p_.value_dim - 2 * c;
      const std::int64_t copied = columns < 2 * count ? columns : 2 * count;
      transpose_pairs(settled({out.base + 2 * c, out.stride}, copied), copied, transposed);
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
  /// Returns the block's rows of K or V; copied if the last pair or unit would read beyond the row.
  Bf16Rows whole_pairs(const Bf16Rows& from, const KvBlock& keys, std::int64_t columns, std::uint16_t* copy) const {
    if (columns % (tiles_ != nullptr ? tile_items : 2) == 0) return {from.row(keys.first), from.stride};
    const std::int64_t wide = Bf16GradientOperands::wide(columns);
    for (int r = 0; r < keys.count; ++r)
      for (std::int64_t c = 0; c < wide; c += 32)
        _mm512_store_si512(copy + r * wide + c, bf16_columns(from.row(keys.first + r), c, columns));
    return {copy, wide};
  }

  /// Returns the keys of a block that contribute to the rows [begin, end) of one vector.
  static RowRange keys_seen_by(const KvBlock& keys, int begin, int end) {
    RowRange range{keys.ranges.begin[begin / N], keys.ranges.end[begin / N]};
    if (!keys.visible) return range;
    const Word rows = bits_between(begin, end);
    while (range.begin < range.end && (keys.visible[range.begin] & rows) == 0) ++range.begin;
    while (range.begin < range.end && (keys.visible[range.end - 1] & rows) == 0) --range.end;
    return range;
  }

  // --- by AMX ------------------------------------------------------------------------------------------------
  /// A piece of a block: keys [key, end), rows [x, last). Its scores and dP are stored `at` elements before their usual
  /// place.
  struct Piece {
    int key, end, x, last, at;
  };

  /// Computes scores (not scaled) and dP of a piece, from the block's rows of K and V.
  HWY_NOINLINE void tile_products(const Bf16Rows& k, const Bf16Rows& v, const Piece& piece) {
    const auto product = [&](const Bf16Rows& rows, std::int64_t columns, const std::uint32_t* transposed, float* to) {
      float* const c = to + piece.key * R + piece.x - piece.at;
      TileProduct x{{rows.row(piece.key), 2 * rows.stride, 2 * tile_items},
                    {transposed + piece.x, 4 * R, 4 * R * tile_pairs},
                    c,
                    R,
                    true};
      for (int tile = 0; tile < R / tile_rows; ++tile) x.from_items(tile, {0, static_cast<int>(columns)});
      tile_product(x, *tiles_, piece.end - piece.key, piece.last - piece.x, ahead_);
    };
    product(k, p_.dim, at_.q, scratch_.scores.s);
    product(v, p_.value_dim, at_.dout, scratch_.d);
  }
  HWY_NOINLINE void scale_scores(int keys, float scale) const {
    for (int n = 0; n < keys * R; n += N)
      _mm512_store_ps(scratch_.scores.s + n,
                      _mm512_mul_ps(_mm512_load_ps(scratch_.scores.s + n), _mm512_set1_ps(scale)));
  }
  /// Adds the block's sums to dQ by AMX. The derivatives are transposed to words of key pairs (rows of A) in the memory
  /// of the scores.
  HWY_NOINLINE void tile_queries(const KvBlock& keys, std::int64_t wide) {
    const int pairs = (keys.count + tile_items - 1) / tile_items * tile_pairs;
    for (int n = (keys.count + 1) / 2 * R; n < pairs * R; n += N)
      _mm512_store_si512(at_.transposed + n, _mm512_setzero_si512());
    transpose(reinterpret_cast<const float*>(at_.transposed), std::int64_t{R}, std::int64_t{pairs},
              std::int64_t{vectors_} * N, scratch_.scores.s, std::int64_t{R} / 2);
    TileProduct product{{scratch_.scores.s, 2 * R, 4 * tile_pairs},
                        {at_.k_rows, 4 * wide, 4 * wide * tile_pairs},
                        at_.dq,
                        wide,
                        keys.first_of_rows};
    for (int v = 0; v < vectors_; ++v) product.from_items(v, keys_seen_by(keys, v * N, v * N + N));
    tile_product(product, *tiles_, vectors_ * N, wide, ahead_);
  }
  HWY_NOINLINE void tile_keys(const KvBlock& keys, const std::uint32_t* words, const std::uint32_t* rows,
                              const PairTotals& total) {
    TileProduct product{{words, 2 * R, 4 * tile_pairs},
                        {rows, 4 * total.stride, 4 * total.stride * tile_pairs},
                        total.base,
                        total.stride,
                        total.begins};
    for (int r = 0; r < keys.count; r += tile_rows)
      product.from_items(r / tile_rows,
                         Sums::rows_that_see(keys, r, keys.count - r < tile_rows ? keys.count - r : tile_rows));
    tile_product(product, *tiles_, keys.count, total.stride, ahead_);
  }

  AmxTiles* tiles_;
  Bf16GradientOperands at_;
  TilePrefetch ahead_;
  Bf16Rows k_{}, v_{};
  bool whole_ = false;  // the step has 64 or 32 rows, all of which see some key
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
