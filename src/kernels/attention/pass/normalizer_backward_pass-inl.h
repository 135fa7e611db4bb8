// src/kernels/attention/pass/normalizer_backward_pass-inl.h: computes the backward pass of 64 query rows with another
// normalizer than softmax, or with a function of the weight.
//
// Two loops over the keys, unless the weights of a row do not depend on each other: the first sums what a row's weights
// share (delta), the second is that of every backward pass. Both compute the scores and dP again; nothing is stored.
#if defined(ATTN_NORMALIZER_BACKWARD_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_NORMALIZER_BACKWARD_PASS_INL_H
#undef ATTN_NORMALIZER_BACKWARD_PASS_INL_H
#else
#define ATTN_NORMALIZER_BACKWARD_PASS_INL_H
#endif

#include "kernels/attention/pass/additive_backward_pass-inl.h"
#include "kernels/attention/softmax/normalizer-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// The call with weight_mod as its score_mod.
inline AttentionGradient of_weights(const AttentionGradient& g) {
  AttentionGradient weights = g;
  weights.problem.score_mod = g.problem.normalization->weight_mod;
  weights.problem.score_mod_one_head = {};
  weights.problem.score_gradient = g.problem.normalization->weight_gradient;
  return weights;
}

/// The slopes of a block, and the memory of the expression of the weight.
template <typename T>
struct NormalizerScratch {
  static constexpr int R = query_block;
  T* slope;                    // [64][R]  below 0 where masked
  T *numerator, *denominator;  // [R]
  BackwardScratch<T> weights;

  NormalizerScratch(Arena& arena, const BackwardScratch<T>& scores, const AttentionProblem& of_weights)
      : slope(arena.take<T>(kv_block * R)), numerator(arena.take<T>(R)), denominator(arena.take<T>(R)),
        weights(scores) {
    if (of_weights.score_gradient != nullptr) weights.take_expression(arena, of_weights);
  }
};

template <typename T, class Base>
class NormalizerBackward : public Base {
  using Base::p_, Base::rows_, Base::scratch_, Base::vectors_, Base::g_;

 public:
  using Base::R, Base::N;
  using typename Base::Blocks;

  NormalizerBackward(const AttentionGradient& g, const Task& rows, const StepOrder& step_order, Arena& arena)
      : Base(g, rows, arena), stage_(*p_.normalization), step_order_(step_order), of_weights_(of_weights(g)),
        more_(arena, scratch_, of_weights_.problem), weight_mod_(of_weights_, rows_, more_.weights) {}

  static std::size_t bytes(const AttentionGradient& g) {
    Arena arena;
    const AttentionGradient weights = of_weights(g);
    static_cast<void>(NormalizerScratch<T>(arena, BackwardScratch<T>(arena, g.problem), weights.problem));
    return Base::bytes(g.problem) + arena.bytes();
  }

  bool step() {
    const bool numbers = step_back(*this, step_order_);
    if (weight_mod_.used()) weight_mod_.finish(step_order_);
    return numbers;
  }

  // --- what the loop over keys calls -------------------------------------------------------------------------------
  HWY_NOINLINE void load_rows() {
    const T* const t = static_cast<const T*>(p_.sum) + Base::saved();
    const T* const m = static_cast<const T*>(p_.max) + Base::saved();
    for (int r = 0; r < vectors_ * N; ++r) {
      const bool sees = r < rows_.rows && t[r] != 0;
      scratch_.m[r] = !sees ? 0 : stage_.is_coupled() ? m[r] : static_cast<T>(stage_.of_item[p_.item(rows_)]);
      scratch_.inverse[r] = !sees ? 0 : stage_.op == NormalizerOp::softmax ? T(1) / t[r] : t[r];
    }
    Base::load_queries();
    Base::load_dout();
    if (weight_mod_.used()) weight_mod_.begin();
    Base::clear(scratch_.delta, 1);
    if (stage_.is_coupled()) find_delta();
  }

  HWY_NOINLINE void derive(const KvBlock& keys, bool) {
    Base::prefetch_block(keys);
    weigh(keys);
    if (weight_mod_.used()) weight_mod_.back(keys.first, keys.count, keys.ranges, step_order_);
    const Tag<T> d;
    const bool coupled = stage_.is_coupled();
    for_each_score<R>(keys.ranges, scratch_.d, [&](Vector<T> g, int at) HWY_ATTR {
      const auto slope = hn::Load(d, more_.slope + at);
      if (coupled) g = hn::Sub(g, hn::Load(d, scratch_.delta + at % R));
      return hn::IfThenZeroElse(hn::Lt(slope, hn::Zero(d)), hn::Mul(slope, g));
    });
    if (p_.temperature != 1) divide_by_temperature<R>(p_, keys.ranges, scratch_.d);
  }

 private:
  /// Computes the weights of a block (after dropout) in scores.s, the derivatives by the weights before dropout in d,
  /// and the slopes; all 0 where masked, the slopes -1.
  HWY_NOINLINE void weigh(const KvBlock& keys) {
    Base::make_products(keys);
    Base::apply_modifiers(keys);
    if (keys.visible) Base::clear_trimmed(keys.ranges);
    by_normalizer(stage_.op, [&]<NormalizerOp OP>() HWY_ATTR { weigh_pairs<OP>(keys); });
    if (weight_mod_.used()) weight_mod_.apply(keys.first, keys.count, keys.ranges);
    finish_pairs(keys);
  }
  template <NormalizerOp OP>
  HWY_NOINLINE void weigh_pairs(const KvBlock& keys) {
    const Tag<T> d;
    const ActiveRanges& ranges = keys.ranges;
    for (int g = 0; g < ranges.count; ++g)
      for (int v = ranges.first[g]; v < ranges.last[g]; ++v) {
        const auto m = hn::Load(d, scratch_.m + v * N), t = hn::Load(d, scratch_.inverse + v * N);
        for (int r = ranges.key[g]; r < ranges.key[g + 1]; ++r) {
          T* const place = scratch_.scores.s + r * R + v * N;
          const auto s = hn::Load(d, place);
          auto seen = hn::Not(hn::Eq(s, minus_infinity<T>()));  // NaN counts as seen, but x86's Ne is false for it
          if (keys.visible) seen = hn::And(seen, lanes_of<T>(keys.visible[r], v));
          const auto pair = weighed<OP, T>(s, m, t);
          hn::Store(hn::IfThenElseZero(seen, pair.weight), d, place);
          hn::Store(hn::IfThenElse(seen, pair.slope, hn::Set(d, T(-1))), d, more_.slope + r * R + v * N);
        }
      }
  }
  HWY_NOINLINE void finish_pairs(const KvBlock& keys) {
    const Tag<T> d;
    const ActiveRanges& ranges = keys.ranges;
    const auto keep_scale = hn::Set(d, static_cast<T>(p_.keep_scale));
    alignas(64) Word kept[64];
    const bool drops = p_.drops(rows_);
    if (drops) kept_rows(p_, rows_, keys.first, keys.count, kept);
    for (int g = 0; g < ranges.count; ++g)
      for (int r = ranges.key[g]; r < ranges.key[g + 1]; ++r)
        for (int v = ranges.first[g]; v < ranges.last[g]; ++v) {
          T* const place = scratch_.scores.s + r * R + v * N;
          T* const derivative = scratch_.d + r * R + v * N;
          const auto masked = hn::Lt(hn::Load(d, more_.slope + r * R + v * N), hn::Zero(d));
          auto weight = hn::Load(d, place), dp = hn::Load(d, derivative);
          if (drops) {
            const auto stays = lanes_of<T>(kept[r], v);
            weight = hn::IfThenElseZero(stays, hn::Mul(weight, keep_scale));
            dp = hn::IfThenElseZero(stays, hn::Mul(dp, keep_scale));
          }
          hn::Store(hn::IfThenZeroElse(masked, weight), d, place);
          hn::Store(hn::IfThenZeroElse(masked, dp), d, derivative);
        }
  }

  /// Computes what is subtracted from the derivatives of a row: their mean, weighted by the slopes. Of softmax the
  /// slopes' sum is 1, and the gradient of the logsumexp is subtracted.
  HWY_NOINLINE void find_delta() {
    const Tag<T> d;
    T *const numerator = more_.numerator, *const denominator = more_.denominator;
    Base::clear(numerator, 1);
    Base::clear(denominator, 1);
    Blocks blocks(p_.keys_begin(rows_), p_.keys_end(rows_));
    while (Base::next(blocks)) {
      const KvBlock& keys = blocks.keys;
      weigh(keys);
      if (weight_mod_.used()) weight_mod_.back_to_scores(keys.first, keys.count, keys.ranges);
      alignas(64) T sums[2][R] = {};
      const ActiveRanges& ranges = keys.ranges;
      for (int g = 0; g < ranges.count; ++g)
        for (int v = ranges.first[g]; v < ranges.last[g]; ++v) {
          auto a = hn::Load(d, sums[0] + v * N), b = hn::Load(d, sums[1] + v * N);
          for (int r = ranges.key[g]; r < ranges.key[g + 1]; ++r) {
            const auto slope = hn::Load(d, more_.slope + r * R + v * N);
            const auto masked = hn::Lt(slope, hn::Zero(d));
            const auto g_of = hn::Load(d, scratch_.d + r * R + v * N);
            a = hn::IfThenElse(masked, a, hn::MulAdd(slope, g_of, a));
            b = hn::IfThenElse(masked, b, hn::Add(b, slope));
          }
          hn::Store(a, d, sums[0] + v * N);
          hn::Store(b, d, sums[1] + v * N);
        }
      for (int x = 0; x < vectors_ * N; x += N) {
        hn::Store(hn::Add(hn::Load(d, numerator + x), hn::Load(d, sums[0] + x)), d, numerator + x);
        hn::Store(hn::Add(hn::Load(d, denominator + x), hn::Load(d, sums[1] + x)), d, denominator + x);
      }
    }
    const T* const dlse = static_cast<const T*>(g_.dlogsumexp);
    for (int r = 0; r < rows_.rows; ++r) {
      if (scratch_.inverse[r] == 0) continue;
      if (stage_.op != NormalizerOp::softmax) scratch_.delta[r] = numerator[r] / denominator[r];
      else scratch_.delta[r] = dlse != nullptr ? numerator[r] - dlse[Base::saved() + r] : numerator[r];
    }
  }

  const Normalization& stage_;
  const StepOrder& step_order_;
  const AttentionGradient of_weights_;
  NormalizerScratch<T> more_;
  ScoreBack<T> weight_mod_;
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
