// src/kernels/attention/additive_score-inl.h: how a walk makes additive scores; the counterpart of DotScore in score_tile-inl.h.
#if defined(ATTN_ADDITIVE_SCORE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_ADDITIVE_SCORE_INL_H
#undef ATTN_ADDITIVE_SCORE_INL_H
#else
#define ATTN_ADDITIVE_SCORE_INL_H
#endif

#include "kernels/attention/additive_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

template <typename T>
class AdditiveScore;

/// The exponentials of the strip's queries are taken once, those of a block's keys once per block, never per pair. Where all
/// exponents of both sides allow it, the tiles take H; else mantissas and exponents, which have the same bits.
template <>
class AdditiveScore<float> {
 public:
  static constexpr bool hides = false;
  static std::size_t bytes(std::int64_t dim) { return 4 * static_cast<std::size_t>(2 * dim * R + 2 * key_block * padded(dim)); }

  AdditiveScore(const AttentionProblem& problem, void* scratch) : w_(static_cast<const float*>(problem.additive_w)), channels_(problem.dim) {
    q_high_ = static_cast<float*>(scratch);
    q_exponent_ = q_high_ + channels_ * R;
    k_high_ = q_exponent_ + channels_ * R;
    k_exponent_ = k_high_ + key_block * padded(channels_);
    weight_sum_ = additive_weight_sum(w_, channels_);
  }

  /// The turned queries in strip.q become H; they are kept in `q_high_` until a block asks for the wide form.
  void prepare_queries(const Strip<float>& strip, int vectors, int) {
    vectors_ = vectors;
    q_narrow_ = true;
    q_wide_ = false;
    for (std::int64_t c = 0; c < channels_; ++c) {
      std::memcpy(q_high_ + c * R, strip.q + c * R, 4 * static_cast<std::size_t>(vectors * N));
      q_narrow_ = split(strip.q + c * R, vectors * N, {strip.q + c * R, nullptr, nullptr}) && q_narrow_;
    }
  }

  void load_keys(const float* const* k, int keys) {
    narrow_ = q_narrow_;
    for (int r = 0; narrow_ && r < keys; ++r) narrow_ = split(k[r], channels_, {k_high_ + r * padded(channels_), nullptr, nullptr});
    if (narrow_) return;
    widen_queries();
    for (int r = 0; r < keys; ++r) split(k[r], channels_, {k_high_ + r * padded(channels_), nullptr, k_exponent_ + r * padded(channels_)});
  }

  void group(const Strip<float>& strip, const float* const*, const ScoreRange& range) {
    if (narrow_) tiles<false>(strip, {strip.q, nullptr, R}, range);
    else tiles<true>(strip, {q_high_, q_exponent_, R}, range);
  }

 private:
  static constexpr int R = strip_rows<float>, N = lanes<float>;
  static std::int64_t padded(std::int64_t dim) { return (dim + 15) / 16 * 16; }

  void widen_queries() {
    if (q_wide_) return;
    for (std::int64_t c = 0; c < channels_; ++c) split(q_high_ + c * R, vectors_ * N, {q_high_ + c * R, nullptr, q_exponent_ + c * R});
    q_wide_ = true;
  }

  template <bool WIDE>
  void tiles(const Strip<float>& strip, const SplitRows& q, const ScoreRange& range) {
    const int key = range.key;
    const SplitRows k{k_high_ + key * padded(channels_), k_exponent_ + key * padded(channels_), padded(channels_)};
    for_each_part<additive_vectors>(range.first, range.last, [&]<int V>(int v) HWY_ATTR {
      additive_columns<WIDE, V>(q.at(v * N), k, range.end - key, w_, weight_sum_, channels_, strip.s + key * R + v * N, strip.alpha + v * N);
    });
  }

  const float* w_;
  std::int64_t channels_;
  float weight_sum_ = 0;
  int vectors_ = 0;
  bool narrow_ = true, q_narrow_ = true, q_wide_ = false;
  float *q_high_, *q_exponent_;  // [C][R]: the queries, then their mantissas and exponents
  float *k_high_, *k_exponent_;  // [64][padded C]: H, or mantissas and exponents
};

template <>
class AdditiveScore<double> {
 public:
  static constexpr bool hides = false;
  static std::size_t bytes(std::int64_t) { return 0; }
  AdditiveScore(const AttentionProblem& problem, void*) : w_(static_cast<const double*>(problem.additive_w)), channels_(problem.dim) {}
  void prepare_queries(const Strip<double>&, int, int) {}
  void load_keys(const double* const*, int) {}

  void group(const Strip<double>& strip, const double* const* k, const ScoreRange& range) {
    constexpr int R = strip_rows<double>, N = lanes<double>;
    const int key = range.key;
    for_each_part<tanh_vectors>(range.first, range.last, [&]<int V>(int v) HWY_ATTR {
      tanh_columns<V>(strip.q + v * N, k + key, range.end - key, w_, channels_, R, strip.s + key * R + v * N, strip.alpha + v * N);
    });
  }

 private:
  const double* w_;
  std::int64_t channels_;
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
