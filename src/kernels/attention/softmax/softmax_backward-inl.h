// src/kernels/attention/softmax/softmax_backward-inl.h: computes the softmax backward: raw scores and dP of a block
// become weights P and score gradients dS.
#if defined(ATTN_SOFTMAX_BACKWARD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_SOFTMAX_BACKWARD_INL_H
#undef ATTN_SOFTMAX_BACKWARD_INL_H
#else
#define ATTN_SOFTMAX_BACKWARD_INL_H
#endif

#include "kernels/attention/score/dropout-inl.h"
#include "kernels/attention/score/score_mod_backward-inl.h"
#include "kernels/attention/backward_scratch.h"
#include "kernels/attention/mask/block_mask-inl.h"
#include "kernels/attention/score/modifiers-inl.h"
#include "kernels/attention/softmax/online_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// A block of keys: first ... first + count - 1. `visible` says which rows see which keys; null: all rows see all keys.
struct KvBlock {
  std::int64_t first = 0;
  int count = 0;
  const Word* visible = nullptr;
  ActiveRanges ranges = {};
  bool first_of_rows = false;  // the rows have no sums yet in dQ
  bool first_of_keys = false;  // the keys have no sums yet in dK and dV
  bool last_of_rows = false;   // no other block adds to dQ of the rows
  bool last_of_keys = false;   // no other step adds to dK and dV of the keys, and the sums are to be rounded
};

/// Computes the softmax backward of a step's rows, block after block of keys.
template <typename T>
class SoftmaxBackward {
 public:
  static constexpr int R = query_block, N = lanes<T>;

  SoftmaxBackward(const AttentionGradient& g, const Task& rows, Arena& arena)
      : g_(g), p_(g.problem), rows_(rows), scratch_(arena, p_), score_(g, rows, scratch_),
        vectors_(static_cast<int>((rows.rows + N - 1) / N)) {}

  std::int64_t saved() const { return (rows_.batch * p_.q_heads + rows_.head) * p_.q_rows + rows_.row; }
  HWY_NOINLINE void clear(T* to, std::int64_t count) const {
    const Tag<T> d;
    for (std::int64_t n = 0; n < count * R; n += N) hn::Store(hn::Zero(d), d, to + n);
  }

  /// Loads m and 1 / l of the forward pass; both are 0 for a row that sees no key.
  HWY_NOINLINE void load_saved() {
    const T* const l = static_cast<const T*>(p_.sum) + saved();
    const T* const m = static_cast<const T*>(p_.max) + saved();
    for (int r = 0; r < vectors_ * N; ++r) {
      const bool sees = r < rows_.rows && l[r] != 0;
      scratch_.m[r] = sees ? m[r] : 0;
      scratch_.inverse[r] = sees ? T(1) / l[r] : 0;
    }
  }

  /// Computes delta: the sum over Dv of o dO, already stored, minus the gradient of the logsumexp.
  HWY_NOINLINE void finish_delta() {
    const T* const dlse = static_cast<const T*>(g_.dlogsumexp);
    for (int r = 0; r < vectors_ * N; ++r) {
      if (scratch_.inverse[r] == 0) scratch_.delta[r] = 0;
      else if (dlse != nullptr) scratch_.delta[r] -= dlse[saved() + r];
    }
    if (g_.rows.delta == nullptr) return;
    for (std::int64_t r = 0; r < rows_.rows; ++r) static_cast<T*>(g_.rows.delta)[saved() + r] = scratch_.delta[r];
  }

  /// Reads delta if another call has computed it; returns whether it did.
  HWY_NOINLINE bool load_delta() {
    if (g_.rows.delta == nullptr || g_.rows.begins) return false;
    const T* const given = static_cast<const T*>(g_.rows.delta) + saved();
    for (int r = 0; r < vectors_ * N; ++r) scratch_.delta[r] = r < rows_.rows ? given[r] : 0;
    return true;
  }

  /// The blocks of keys [next, end) in which some row sees a key.
  struct Blocks {
    std::int64_t next, end;
    Visibility visibility = Visibility::empty;  // of the block that begins at `next`, if any
    KvBlock keys{};
    alignas(64) Word visible[64];
    Blocks(std::int64_t first, std::int64_t last) : next(first), end(last) {}
    int count() const { return static_cast<int>(end - next < kv_block ? end - next : kv_block); }
  };
  HWY_NOINLINE bool next(Blocks& blocks) {
    if (blocks.visibility == Visibility::empty) find(blocks);
    while (blocks.next < blocks.end) {
      const std::int64_t first = blocks.next;
      const int count = blocks.count();
      const bool full = blocks.visibility == Visibility::full,
                 seen = full || block_mask(p_, rows_, first, count, blocks.visible);
      blocks.next += count;
      find(blocks);
      if (!seen) continue;
      blocks.keys = {
          first, count, full ? nullptr : blocks.visible,
          full ? ActiveRanges::all(count, vectors_) : ActiveRanges::trimmed(blocks.visible, count, vectors_, N)};
      blocks.keys.last_of_rows = blocks.next >= blocks.end;
      return true;
    }
    return false;
  }

  /// Skips the blocks that classify() calls fully masked. The block where it stops may still be fully masked: next()
  /// checks its mask.
  void find(Blocks& blocks) const {
    for (; blocks.next < blocks.end; blocks.next += blocks.count()) {
      blocks.visibility = classify(
          p_, rows_, {rows_.row, rows_.row + rows_.rows, blocks.next, blocks.next + blocks.count(), rows_.head});
      if (blocks.visibility != Visibility::empty) return;
    }
  }

  /// Returns a range that has all rows which see one of `count` keys of a block, from `key` on.
  RowRange rows_that_see(const KvBlock& keys, int key, int count) const {
    const int rows = static_cast<int>(rows_.rows);
    if (!keys.visible) return {0, rows};
    Word any = 0;
    for (int r = key; r < key + count; ++r) any |= keys.visible[r];
    if (any == 0) return {0, 0};
    const int end = 64 - __builtin_clzll(any);
    return {__builtin_ctzll(any), end < rows ? end : rows};
  }

  /// Applies the score modifiers of the forward pass again: softcap, bias terms, score_mod, temperature.
  HWY_INLINE void apply_modifiers(const KvBlock& keys) {
    if (p_.softcap != 0) cap_scores<R>(static_cast<T>(p_.softcap), keys.ranges, scratch_.scores.s, scratch_.capped);
    if (p_.bias_count != 0) use_bias<BiasUse::add>(p_, rows_, keys.first, keys.count, keys.ranges, scratch_.scores);
    if (score_.used()) {
      score_.apply(keys.first, keys.count, keys.ranges);
      if (p_.bias_count != 0) use_bias<BiasUse::mask>(p_, rows_, keys.first, keys.count, keys.ranges, scratch_.scores);
    }
    if (p_.temperature != 1) divide_by_temperature<R>(p_, keys.ranges, scratch_.scores.s);
  }

  /// Returns the backward pass of the score expression.
  ScoreBack<T>& score_mod() { return score_; }

  /// Computes weights (after dropout) in scores.s from scores, and the derivatives by the scores before the temperature
  /// in d from dP; 0 where masked.
  HWY_NOINLINE void derive_from_products(const KvBlock& keys) {
    const ActiveRanges& ranges = keys.ranges;
    apply_modifiers(keys);
    if (keys.visible) clear_trimmed(ranges);
    if (p_.drops(rows_)) {
      alignas(64) Word kept[64];
      kept_rows(p_, rows_, keys.first, keys.count, kept);
      weigh<true>(ranges, keys.visible, kept);
    } else {
      weigh<false>(ranges, keys.visible, nullptr);
    }
    if (p_.temperature != 1) divide_by_temperature<R>(p_, ranges, scratch_.d);
  }

  /// Computes weights and derivatives in place. Pairs are masked by `visible` (unless null) as well as by a score of
  /// -inf. DROPPED: dropout keeps the pairs of `kept`.
  template <bool DROPPED>
  HWY_NOINLINE void weigh(const ActiveRanges& ranges, const Word* visible, const Word* kept) {
    const Tag<T> d;
    const auto keep_scale = hn::Set(d, static_cast<T>(p_.keep_scale));
    for (int g = 0; g < ranges.count; ++g)
      for (int v = ranges.first[g]; v < ranges.last[g]; ++v) {
        const auto m = hn::Load(d, scratch_.m + v * N), inverse = hn::Load(d, scratch_.inverse + v * N),
                   delta = hn::Load(d, scratch_.delta + v * N);
        for (int r = ranges.key[g]; r < ranges.key[g + 1]; ++r) {
          T* const place = scratch_.scores.s + r * R + v * N;
          T* const derivative = scratch_.d + r * R + v * N;
          const auto s = hn::Load(d, place);
          auto seen = hn::Not(hn::Eq(s, minus_infinity<T>()));  // NaN counts as seen, but x86's Ne is false for it
          if (visible) seen = hn::And(seen, lanes_of<T>(visible[r], v));
          const auto p = hn::Mul(weight_of<T>(s, m), inverse);
          auto weight = p, dp = hn::Load(d, derivative);
          if constexpr (DROPPED) {
            const auto stays = lanes_of<T>(kept[r], v);
            weight = hn::IfThenElseZero(stays, hn::Mul(p, keep_scale));
            dp = hn::IfThenElseZero(stays, hn::Mul(dp, keep_scale));
          }
          hn::Store(hn::IfThenElseZero(seen, weight), d, place);
          hn::Store(hn::IfThenElseZero(seen, hn::Mul(p, hn::Sub(dp, delta))), d, derivative);
        }
      }
  }

  /// Sets to 0 the vectors that a range of keys leaves out, because the products read whole ranges of rows.
  HWY_NOINLINE void clear_trimmed(const ActiveRanges& ranges) {
    const Tag<T> d;
    for (int g = 0; g < ranges.count; ++g)
      for (int r = ranges.key[g]; r < ranges.key[g + 1]; ++r)
        for (int v = 0; v < vectors_; ++v) {
          if (v >= ranges.first[g] && v < ranges.last[g]) continue;
          hn::Store(hn::Zero(d), d, scratch_.scores.s + r * R + v * N);
          hn::Store(hn::Zero(d), d, scratch_.d + r * R + v * N);
        }
  }

  /// Multiplies by the softcap's slope; a derivative of 0 stays 0, because a masked score may be NaN.
  HWY_NOINLINE void back_through_softcap(const ActiveRanges& ranges) {
    const Tag<T> d;
    for_each_score<R>(ranges, scratch_.d, [&](Vector<T> x, int at) HWY_ATTR {
      const auto t = hn::Load(d, scratch_.capped + at);
      return hn::IfThenZeroElse(hn::Eq(x, hn::Zero(d)), hn::Mul(x, hn::NegMulAdd(t, t, hn::Set(d, T(1)))));
    });
  }

 protected:
  const AttentionGradient& g_;
  const AttentionProblem& p_;
  const Task& rows_;
  BackwardScratch<T> scratch_;
  ScoreBack<T> score_;
  int vectors_;
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
