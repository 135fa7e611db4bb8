// src/kernels/attention/pass/bf16_backward_pass-inl.h: computes the backward pass of 64 query rows over their keys in
// bf16.
//  It differs from backward_pass-inl.h in its chains, which are over pairs: of columns (2d, 2d + 1) for scores and dP,
// of keys (2j, 2j + 1) from the origin for dQ, of rows (2i, 2i + 1) for dK and dV. The sums of dK and dV stay in f32
// until all query heads that share heads of K or V are done. A number of Q or K that is not finite makes the derivative
// of its pair NaN. In the products of dQ and dK it counts as 0 (masked_values.h).
//
// The class Products computes the five products, by pairs or by AMX.
#if defined(ATTN_BF16_BACKWARD_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_BACKWARD_PASS_INL_H
#undef ATTN_BF16_BACKWARD_PASS_INL_H
#else
#define ATTN_BF16_BACKWARD_PASS_INL_H
#endif

#include "kernels/attention/pass/amx_backward_units-inl.h"
#include "kernels/attention/pass/bf16_backward_pairs-inl.h"

#include <algorithm>
#include <cmath>

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// Products: Bf16BackwardPairs or AmxBackwardUnits.
template <class Products>
class Bf16BackwardPass : public Products {
  using Products::R, Products::N, Products::unit, Products::rounds, Products::g_, Products::p_, Products::rows_,
      Products::scratch_, Products::vectors_, Products::at_, Products::ahead_, Products::k_, Products::v_,
      Products::whole_, Products::seen_, Products::k_head, Products::v_head, Products::padded_rows,
      Products::transpose_pairs, Products::pair_all_rows;
  using typename Products::Bf16Rows, typename Products::Piece, typename Products::Sums;

 public:
  Bf16BackwardPass(const AttentionGradient& g, const Task& rows, Arena& arena)
      : Products(g, rows, arena), totals_(g.problem, g.totals_end - g.totals_begin),
        plain_(p_.softcap == 0 && p_.bias_count == 0 && p_.score_gradient == nullptr && p_.temperature == 1 &&
               !p_.drops(rows_)) {}
  static std::size_t bytes(const AttentionProblem& p) {
    return scratch_bytes<BackwardScratch<float>, Bf16GradientOperands>(p);
  }

  const AttentionGradient& gradient() const { return g_; }
  const Task& task() const { return rows_; }
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
    const Bf16Rows q = padded_rows(row(p_.q, p_.q_stride), p_.dim);
    transpose_pairs(q, p_.dim, at_.q);
    pair_all_rows(q, p_.dim, at_.q_rows);
    const Bf16Rows dout = padded_rows(dout_, p_.value_dim);
    transpose_pairs(dout, p_.value_dim, at_.dout);
    dout_not_finite_ = pair_all_rows(dout, p_.value_dim, at_.dout_rows);
    if (Sums::load_delta()) return;
    Products::make_delta(row(p_.out, p_.out_stride));
    Sums::finish_delta();
  }
  /// Reads the sums over earlier keys; returns whether there are any.
  HWY_NOINLINE bool load_dq() {
    if (g_.rows.dq == nullptr || g_.rows.begins) return false;
    clear_dq();
    const auto* from = static_cast<const float*>(g_.rows.dq) + Sums::saved() * p_.dim;
    const std::int64_t wide = Bf16GradientOperands::wide(p_.dim);
    for (std::int64_t r = 0; r < rows_.rows; ++r) std::copy_n(from + r * p_.dim, p_.dim, at_.dq + r * wide);
    return true;
  }

  /// Computes weights and derivatives as words of pairs. They are first computed in f32, as for other types, if
  /// `in_f32` is set, if there are modifiers or dropout, or if dO has a number that is not finite.
  void derive(const KvBlock& keys, bool in_f32) {
    const std::int64_t first = keys.first - g_.totals_begin;
    const MemoryPieces none;
    ahead_.soon.clear();
    add_block({ahead_.soon, sizeof(std::uint16_t)}, p_, rows_, keys.first, keys.count,
              {g_.dv == nullptr ? none : totals_.v(g_.totals, v_head(), first).pieces(keys.count),
               g_.dk == nullptr ? none : totals_.k(g_.totals, k_head(), first).pieces(keys.count)});
    ahead_.begin_block();
    const Bf16Rows k = Products::template whole_units<unit>(k_, keys, p_.dim, at_.rows),
                   v = Products::template whole_units<unit>(v_, keys, p_.value_dim, at_.values);
    in_words_ = plain_ && !in_f32 && !dout_not_finite_;
    if (in_words_) return weigh_words(keys, k, v);
    Products::scaled_products(keys, k, v);
    Sums::apply_modifiers(keys);
    if (keys.visible) Sums::clear_trimmed(keys.ranges);
    Products::weigh_apart(keys);
    if (p_.temperature != 1) divide_by_temperature<R>(p_, keys.ranges, scratch_.d);
  }

  void back_to_scores(const KvBlock& keys) {
    if (p_.softcap != 0) Sums::back_through_softcap(keys.ranges);
    if (!in_words_) Products::pack(keys.count);
  }

  HWY_NOINLINE void add_to_queries(const KvBlock& keys) {
    const std::int64_t wide = Bf16GradientOperands::wide(p_.dim);
    Products::template pair_keys<unit>(keys, wide);
    PairTotals dq{at_.dq, wide, keys.first_of_rows};
    written_ = rounds && keys.last_of_rows;
    if (written_) dq.ends = dq_rows();
    Products::add_to_dq(keys, dq);
  }

  void add_to_dk_and_dv(const KvBlock& keys) {
    const auto add = [&](const std::uint32_t* words, const std::uint32_t* rows, PairTotals total,
                         const RoundedRows& results, bool not_finite) {
      total.begins = keys.first_of_keys;
      const bool apart = !rounds || not_finite;  // rounded after the sums are complete
      if (keys.last_of_keys && !apart) total.ends = results;
      Products::add_to_keys(keys, words, rows, results.columns, total);
      if (not_finite) add_dout_not_finite(keys, total);
      if (keys.last_of_keys && apart) bf16_round_rows(total, results, keys.count);
    };
    const std::int64_t first = keys.first - g_.totals_begin;
    if (g_.dv != nullptr)
      add(at_.weights, at_.dout_rows, totals_.v(g_.totals, v_head(), first),
          bf16_dv(g_, rows_.batch, v_head(), keys.first), dout_not_finite_);
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
    const auto clear = [&](const PairTotals& rows) { std::fill_n(rows.base, (end - begin) * rows.stride, 0.0F); };
    clear(totals.k(g.totals, head / (p.q_heads / p.k_heads), begin - g.totals_begin));
    clear(totals.v(g.totals, head / (p.q_heads / p.v_heads), begin - g.totals_begin));
  }
  void clear_keys(std::int64_t begin, std::int64_t end) const {
    if (begin < end) clear_keys(g_, rows_.batch, rows_.head, begin, end);
  }

  bool write_queries() {
    ahead_.later.fetch(ahead_.later.lines());
    if (g_.dq == nullptr && g_.rows.dq == nullptr) return true;
    if (!g_.rows.ends) {
      auto* to = static_cast<float*>(g_.rows.dq) + Sums::saved() * p_.dim;
      const std::int64_t wide = Bf16GradientOperands::wide(p_.dim);
      for (std::int64_t r = 0; r < rows_.rows; ++r) std::copy_n(at_.dq + r * wide, p_.dim, to + r * p_.dim);
      return true;
    }
    if (!written_) bf16_round_rows({at_.dq, Bf16GradientOperands::wide(p_.dim)}, dq_rows(), rows_.rows);
    return true;
  }

 private:
  /// Computes the words from products that are not scaled, for two vectors of rows at a time.
  HWY_NOINLINE void weigh_words(const KvBlock& keys, const Bf16Rows& k, const Bf16Rows& v) {
    const ActiveRanges& ranges = keys.ranges;
    Products::begin_pieces(keys, k, v);
    for (int g = 0; g < ranges.count; ++g)
      for (int n = 0; n < vectors_; n += 2) {
        const int x = n * N;
        if (ranges.first[g] >= n + 2 || ranges.last[g] <= n) {
          static_assert(trim_keys % gradient_tile(2) == 0);
          if (ranges.gaps || Products::reads_all_words) Products::clear_words(ranges.key[g], ranges.key[g + 1], x);
          continue;
        }
        const bool all = keys.visible == nullptr || (n >= ranges.whole[g] && n + 2 <= ranges.last[g]);
        Piece piece{ranges.key[g], 0, x, x + 2 * N, 0};
        for (; piece.key < ranges.key[g + 1]; piece.key = piece.end) {
          piece.end = ranges.key[g + 1];
          Products::next_piece(piece, k, v);
          all ? Products::template weigh_piece<false>(keys, piece) : Products::template weigh_piece<true>(keys, piece);
        }
      }
  }

  RoundedRows dq_rows() const {
    return bf16_results(g_.dq, g_.dq_stride, {rows_.batch, rows_.head, rows_.row}, p_.dim,
                        static_cast<float>(p_.scale));
  }

  /// Adds to dV what numbers of dO that are not finite contribute to the keys that their rows see: the products took 0
  /// for them.
  HWY_NOINLINE void add_dout_not_finite(const KvBlock& keys, const PairTotals& dv) const {
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

  Bf16Totals totals_;
  Bf16Rows dout_{};
  bool plain_, in_words_ = false, dout_not_finite_ = false;
  bool written_ = false;  // whether dQ was written with the last block
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
