// src/kernels/attention/pass/bf16_backward_pass-inl.h: the backward pass of 64 query rows over their keys in bf16.
//  As backward_pass-inl.h, with sums of pairs: columns (2d, 2d + 1) for scores and dP, keys (2j, 2j + 1) from the
// origin for dQ, rows (2i, 2i + 1) for dK and dV, whose sums stay in f32 until the unit is done. A number that is
// not finite shows in the gradient of its pair. In products with rows of Q or K it counts as 0, so that a masked one
// has no effect and a visible one does.
//
// By AMX the five products go over units of 32 columns, keys or rows; the rest is the same code.
#if defined(ATTN_BF16_BACKWARD_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_BACKWARD_PASS_INL_H
#undef ATTN_BF16_BACKWARD_PASS_INL_H
#else
#define ATTN_BF16_BACKWARD_PASS_INL_H
#endif

#include "kernels/attention/pass/bf16_kv_gradients-inl.h"
#include "kernels/attention/pass/parameter_gradients-inl.h"

#include <algorithm>
#include <cmath>

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

class Bf16BackwardPass : public GradientSums<float> {
  using Sums = GradientSums<float>;
  using Bf16Rows = Matrix<std::uint16_t>;

 public:
  /// `tiles`: whole ones, for the products; null: by pairs.
  Bf16BackwardPass(const AttentionGradient& g, const GradientRows& rows, Arena& arena, AmxTiles* tiles)
      : Sums(g, rows, arena), tiles_(tiles), at_(arena, g.problem), totals_(g.problem, g.totals_end - g.totals_begin) {
    begin_step(ahead_, g, rows, sizeof(std::uint16_t), (tiles != nullptr ? 64 : 16) * N);
    vectors_ = (vectors_ + 1) / 2 * 2;  // pairs of rows are built from two vectors
    plain_ = p_.softcap == 0 && p_.bias_count == 0 && p_.score_gradient == nullptr && p_.temperature == 1 &&
             !Sums::dropped();
    k_ = {static_cast<const std::uint16_t*>(p_.k.base) + rows.batch * p_.k_stride[0] + k_head() * p_.k_stride[1],
          p_.k.row_stride};
    v_ = {static_cast<const std::uint16_t*>(p_.v.base) + rows.batch * p_.v_stride[0] + v_head() * p_.v_stride[1],
          p_.v.row_stride};
  }
  static std::size_t bytes(const AttentionProblem& p) {
    return scratch_bytes<BackwardScratch<float>, Bf16GradientOperands>(p);
  }

  const AttentionGradient& gradient() const { return g_; }
  std::int64_t batch() const { return rows_.batch; }
  void clear_dq() {
    std::memset(at_.dq, 0, sizeof(float) * static_cast<std::size_t>(R * Bf16GradientOperands::wide(p_.dim)));
  }

  HWY_NOINLINE void load_rows() {
    Sums::load_saved();
    const auto row = [&](const void* base, const std::int64_t(&stride)[3]) {
      return Bf16Rows{static_cast<const std::uint16_t*>(base) + rows_.batch * stride[0] + rows_.head * stride[1] +
                          rows_.row * stride[2],
                      stride[2]};
    };
    whole_ = rows_.rows == vectors_ * N &&
             std::all_of(scratch_.inverse, scratch_.inverse + vectors_ * N, [](float x) { return x != 0; });
    dout_ = row(g_.dout, g_.dout_stride);
    const Bf16Rows q = settled(row(p_.q, p_.q_stride), p_.dim);
    transpose_pairs(q, p_.dim, at_.q);
    pair_all_rows(q, p_.dim, at_.q_rows);
    const Bf16Rows dout = settled(dout_, p_.value_dim);
    transpose_pairs(dout, p_.value_dim, at_.dout);
    wild_dout_ = pair_all_rows(dout, p_.value_dim, at_.dout_rows);
    make_delta(row(p_.out, p_.out_stride));
    Sums::finish_delta();
  }

  /// Computes weights and derivatives as words of pairs; in f32 first, as for other types, if `in_f32` is set or other
  /// operations come in between.
  void derive(const KvBlock& keys, bool in_f32) {
    const std::int64_t first = keys.first - g_.totals_begin;
    const MemoryPieces none;
    ahead_.soon.clear();
    add_block({ahead_.soon, sizeof(std::uint16_t)}, p_, tile_, keys.first, keys.count,
              {g_.dv == nullptr ? none : totals_.v(g_.totals, v_head(), first).pieces(keys.count),
               g_.dk == nullptr ? none : totals_.k(g_.totals, k_head(), first).pieces(keys.count)});
    ahead_.begin_block();
    const ActiveRanges& ranges = keys.ranges;
    const auto products = [&](const Bf16Rows& rows, std::int64_t columns, const std::uint32_t* transposed, float factor,
                              float* to) {
      for (int g = 0; g < ranges.count; ++g) {
        const int key = ranges.key[g], count = ranges.key[g + 1] - key;
        in_pairs(ranges.first[g], ranges.last[g], [&]<int V>(int x) ATTN_BF16_ATTR {
          pair_columns<DotPairs, V>({rows.row(key), rows.stride}, count, (columns + 1) / 2, transposed + x * N, factor,
                                    to + key * R + x * N, ahead_);
        });
      }
    };
    const Bf16Rows k = whole_pairs(k_, keys, p_.dim, at_.rows), v = whole_pairs(v_, keys, p_.value_dim, at_.values);
    const auto scale = static_cast<float>(p_.scale);
    in_words_ = plain_ && !in_f32 && !wild_dout_;
    if (tiles_ == nullptr) {
      products(k, p_.dim, at_.q, in_words_ ? 1 : scale, scratch_.scores.s);
      products(v, p_.value_dim, at_.dout, 1, scratch_.d);
    }
    if (in_words_) return weigh_words(keys, k, v);
    if (tiles_ != nullptr) {
      for (int g = 0; g < ranges.count; ++g) {
        const Piece piece{ranges.key[g], ranges.key[g + 1], ranges.first[g] / 2 * 2 * N,
                          (ranges.last[g] + 1) / 2 * 2 * N, 0};
        if (piece.x < piece.last) tile_products(k, v, piece);
      }
      scale_scores(keys.count, scale);
    }
    Sums::apply_modifiers(keys);
    if (keys.visible) Sums::clear_trimmed(keys.ranges);
    weigh_apart(keys);
    if (p_.temperature != 1) Sums::back_through_temperature(keys.ranges);
  }

  void back_to_scores(const KvBlock& keys) {
    if (p_.softcap != 0) Sums::back_through_softcap(keys.ranges);
    if (!in_words_) pack(keys.count);
  }

  HWY_NOINLINE void add_to_queries(const KvBlock& keys) {
    const std::int64_t wide = Bf16GradientOperands::wide(p_.dim);
    pair_keys(keys, wide);
    if (tiles_ != nullptr) return tile_queries(keys, wide);
    RowRange keys_of_rows[R / 8];
    for (int row = 0; row < vectors_ * N; row += 8) keys_of_rows[row / 8] = keys_seen_by(keys, row, row + 8);
    const auto keys_of = [&](int row, int) { return keys_of_rows[row / 8]; };
    PairTotals dq{at_.dq, wide, keys.first_of_rows};
    if (keys.last_of_rows) dq.ends = dq_rows();
    bf16_add<1, R>(at_.transposed, static_cast<int>(rows_.rows), at_.k_rows, p_.dim, keys_of, dq, ahead_);
    written_ = keys.last_of_rows;
  }

  void add_to_dk_and_dv(const KvBlock& keys) {
    const auto range_of = [&](int key, int count) { return Sums::rows_that_see(keys, key, count); };
    const auto add = [&](const std::uint32_t* words, const std::uint32_t* rows, PairTotals total,
                         const RoundedRows& results, bool wild) {
      total.begins = keys.first_of_keys;
      const bool apart = tiles_ != nullptr || wild;  // rounded after the sums are complete
      if (keys.last_of_keys && !apart) total.ends = results;
      if (tiles_ != nullptr) tile_keys(keys, words, rows, total);
      else bf16_add<R / 2, 1>(words, keys.count, rows, results.columns, range_of, total, ahead_);
      if (wild) add_wild_dout(keys, total);
      if (keys.last_of_keys && apart) bf16_round_rows(total, results, keys.count);
    };
    const std::int64_t first = keys.first - g_.totals_begin;
    if (g_.dv != nullptr)
      add(at_.weights, at_.dout_rows, totals_.v(g_.totals, v_head(), first),
          bf16_dv(g_, rows_.batch, v_head(), keys.first), wild_dout_);
    if (g_.dk != nullptr)
      add(at_.derivative, at_.q_rows, totals_.k(g_.totals, k_head(), first),
          bf16_dk(g_, rows_.batch, k_head(), keys.first), false);
  }
  void round_keys(std::int64_t begin, std::int64_t end) const {
    if (begin < end) bf16_finish_keys(g_, rows_.batch, rows_.head, begin, end);
  }

  static void clear_keys(const AttentionGradient& g, std::int64_t, std::int64_t head, std::int64_t begin,
                         std::int64_t end) {
    const AttentionProblem& p = g.problem;
    const Bf16Totals totals(p, g.totals_end - g.totals_begin);
    // skips gradients that are not wanted
    const auto clear = [&](const PairTotals& rows) { std::fill_n(rows.base, (end - begin) * rows.stride, 0.0F); };
    clear(totals.k(g.totals, head / (p.q_heads / p.k_heads), begin - g.totals_begin));
    clear(totals.v(g.totals, head / (p.q_heads / p.v_heads), begin - g.totals_begin));
  }
  void clear_keys(std::int64_t begin, std::int64_t end) const {
    if (begin < end) clear_keys(g_, rows_.batch, rows_.head, begin, end);
  }

  bool write_queries() {
    ahead_.later.fetch(ahead_.later.lines());
    if (!written_) bf16_round_rows({at_.dq, Bf16GradientOperands::wide(p_.dim)}, dq_rows(), rows_.rows);
    return true;
  }

 private:
  std::int64_t k_head() const { return p_.key_head(rows_.head); }
  std::int64_t v_head() const { return p_.value_head(rows_.head); }
  RoundedRows dq_rows() const {
    return bf16_results(g_.dq, g_.dq_stride, {rows_.batch, rows_.head, rows_.row}, p_.dim,
                        static_cast<float>(p_.scale));
  }

  /// Keys [key, end) of a block for the rows [x, last): its scores and dP stand `at` places before their own.
  struct Piece {
    int key, end, x, last, at;
  };

  // --- by tile registers -------------------------------------------------------------------------------------------
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
  /// Transposes derivatives back to words of key pairs (rows of A), in place of the scores.
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

  // --- rows --------------------------------------------------------------------------------------------------------
  /// Rows in whole vectors, 0 where a row sees nothing or is not there: as they lie, or copied to at_.rows.
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
  /// Transposes settled rows as pairs of columns, in whole units.
  void transpose_pairs(const Bf16Rows& rows, std::int64_t columns, std::uint32_t* to) const {
    transpose(reinterpret_cast<const float*>(rows.base), rows.stride / 2, std::int64_t{vectors_} * N,
              Bf16GradientOperands::wide(columns) / 2, reinterpret_cast<float*>(to), std::int64_t{R});
  }
  /// Stores settled rows as pairs of rows; returns true if some number is not finite.
  bool pair_all_rows(const Bf16Rows& rows, std::int64_t columns, std::uint32_t* to) const {
    const auto columns_of = [&](int r, std::int64_t c) ATTN_BF16_ATTR { return _mm512_loadu_si512(rows.row(r) + c); };
    return bf16_pair_rows(vectors_ * N, Bf16GradientOperands::wide(columns), columns_of, to);
  }
  /// Stores the block's rows of K as pairs; a missing partner is 0, and with tiles also the rest of an incomplete unit.
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

  // --- pairs -------------------------------------------------------------------------------------------------------
  Weighed weighed(int x) const { return {scratch_.m + x, scratch_.inverse + x, scratch_.delta + x}; }
  /// Stores weights p[key][vector] and derivatives d of two keys and two vectors as all three kinds of words.
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

  /// Two vectors of rows, from products that are not scaled. With tiles these are made here, for as few keys as tiles
  /// like: they stay near.
  HWY_NOINLINE void weigh_words(const KvBlock& keys, const Bf16Rows& k, const Bf16Rows& v) {
    const ActiveRanges& ranges = keys.ranges;
    for (int g = 0; g < ranges.count; ++g)
      for (int n = 0; n < vectors_; n += 2) {
        const int x = n * N;
        if (ranges.first[g] >= n + 2 || ranges.last[g] <= n) {
          static_assert(trim_keys % gradient_tile(2) == 0);
          // otherwise no product reads them
          if (ranges.gaps || tiles_ != nullptr) clear_words(ranges.key[g], ranges.key[g + 1], x);
          continue;
        }
        Piece piece{ranges.key[g], ranges.key[g + 1], x, x + 2 * N, 0};
        for (; piece.key < ranges.key[g + 1]; piece.key = piece.end) {
          if (tiles_ != nullptr) {
            piece.end = ranges.key[g + 1] - piece.key < 2 * tile_rows ? ranges.key[g + 1] : piece.key + 2 * tile_rows;
            piece.at = piece.key * R + x;
            tile_products(k, v, piece);
          }
          const bool all = keys.visible == nullptr || (n >= ranges.whole[g] && n + 2 <= ranges.last[g]);
          all ? weigh_piece<false>(keys, piece) : weigh_piece<true>(keys, piece);
        }
      }
  }
  template <bool MASKED>
  HWY_NOINLINE void weigh_piece(const KvBlock& keys, const Piece& piece) const {
    const __m512 scale = _mm512_set1_ps(static_cast<float>(p_.scale));
    const Weighed rows[2] = {weighed(piece.x), weighed(piece.x + N)};
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

  /// Weights (after dropout) in scores.s, derivatives by the score as the softmax has it in d; 0 where masked. Who is
  /// seen: seen_.
  HWY_NOINLINE void weigh_apart(const KvBlock& keys) {
    const ActiveRanges& ranges = keys.ranges;
    alignas(64) Word kept[64];
    const bool dropped = Sums::dropped();
    if (dropped) kept_rows(p_, tile_, keys.first, keys.count, kept);
    const __m512 keep_scale = _mm512_set1_ps(static_cast<float>(p_.keep_scale));
    Word real = 0;  // rows that see some key
    for (int i = 0; i < vectors_ * N; ++i) real |= Word{scratch_.inverse[i] != 0} << i;
    for (int r = 0; r < keys.count; ++r) seen_[r] = 0;
    for (int g = 0; g < ranges.count; ++g)
      for (int v = ranges.first[g]; v < ranges.last[g]; ++v) {
        const Weighed rows = weighed(v * N);
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

  /// What rows of dO that are not finite add to dV, where they are seen: the products took 0 for them.
  HWY_NOINLINE void add_wild_dout(const KvBlock& keys, const PairTotals& dv) const {
    const auto wide = [](std::uint16_t bits) { return __builtin_bit_cast(float, std::uint32_t{bits} << 16); };
    for (std::int64_t i = 0; i < rows_.rows; ++i)
      for (std::int64_t c = 0; c < p_.value_dim; ++c) {
        const float x = wide(dout_.row(i)[c]);
        if (std::isfinite(x)) continue;
        for (int r = 0; r < keys.count; ++r)
          if ((seen_[r] >> i & 1) != 0)
            dv.base[r * dv.stride + c] +=
                wide(static_cast<std::uint16_t>(at_.weights[r * (R / 2) + i / 2] >> (i % 2 * 16))) * x;
      }
  }

  AmxTiles* tiles_;
  Bf16GradientOperands at_;
  Bf16Totals totals_;
  TilePrefetch ahead_;
  Bf16Rows k_{}, v_{}, dout_{};
  bool plain_, in_words_ = false, wild_dout_ = false;
  bool written_ = false;  // dQ was written, with the last block
  bool whole_ = false;    // 64 or 32 rows, all of which see some key
  Word seen_[kv_block];
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
