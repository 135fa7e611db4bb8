// src/kernels/attention/tiles/additive_qk-inl.h: computes additive scores for the forward pass; the counterpart of
// DotScore in prefill_qk-inl.h.
#if defined(ATTN_ADDITIVE_QK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_ADDITIVE_QK_INL_H
#undef ATTN_ADDITIVE_QK_INL_H
#else
#define ATTN_ADDITIVE_QK_INL_H
#endif

#include "kernels/attention/tiles/additive_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

template <typename T>
class AdditiveScore;

/// e^(2(q + k)) is e^2q e^2k, so exponentials are computed per row, never per pair: those of queries once per query
/// tile, those of the first 1,024 keys once per task (otherwise they take a fifth of the time). If all exponents of a
/// query tile and of a block of keys are small enough, the tiles read H = high 2^exponent; otherwise they read
/// mantissas and exponents, which give the same bits (docs/numerics.md section 3.9).
template <>
class AdditiveScore<float> {
 public:
  static constexpr bool additive = true;
  AdditiveScore(Arena& arena, const AttentionProblem& problem)
      : w_(static_cast<const float*>(problem.additive_w)), channels_(problem.dim),
        cached_blocks_(cached_blocks(problem)) {
    kept_ = arena.take<std::uint8_t>(most_blocks);
    q_high_ = arena.take<float>(channels_ * R);
    q_exponent_ = arena.take<float>(channels_ * R);
    k_high_ = arena.take<float>(kv_block * padded(channels_));
    k_exponent_ = arena.take<float>(kv_block * padded(channels_));
    k_kept_ = arena.take<float>(cached_blocks_ * kv_block * padded(channels_));
  }
  /// Empties the cache of keys.
  void begin_task() const { std::memset(kept_, none, most_blocks); }

  /// Replaces the transposed queries in scratch.q by H. The queries themselves stay in `q_high_` until a block needs
  /// mantissas and exponents.
  void prepare_queries(const QueryTileScratch<float>& scratch, int vectors) {
    weight_sum_ = additive_weight_sum(w_, channels_);
    vectors_ = vectors;
    q_narrow_ = true;
    q_wide_ = false;
    for (std::int64_t c = 0; c < channels_; ++c) {
      std::memcpy(q_high_ + c * R, scratch.q + c * R, 4 * static_cast<std::size_t>(vectors * N));
      q_narrow_ = split(scratch.q + c * R, vectors * N, {scratch.q + c * R, nullptr, nullptr}) && q_narrow_;
    }
  }

  /// Computes H, or mantissas and exponents, of the keys of block `block`.
  void load_keys(const float* const* k, int keys, std::int64_t block) {
    narrow_ = q_narrow_ && narrow_keys(k, keys, block);
    if (narrow_) return;
    k_narrow_ = k_high_;
    widen_queries();
    for (int r = 0; r < keys; ++r)
      split(k[r], channels_, {k_high_ + r * padded(channels_), nullptr, k_exponent_ + r * padded(channels_)});
  }

  void group(const QueryTileScratch<float>& scratch, const float* const*, const ScoreRange& range) {
    if (narrow_) tiles<false>(scratch, {scratch.q, nullptr, R}, range);
    else tiles<true>(scratch, {q_high_, q_exponent_, R}, range);
  }

 private:
  static constexpr int R = query_tile_rows<float>, N = lanes<float>;
  static std::int64_t padded(std::int64_t dim) { return (dim + 15) / 16 * 16; }

  /// The state of a cached block of keys: empty, H, or not H because an exponent is too large.
  enum Kept : std::uint8_t { none, narrow, too_wide };
  /// The most blocks of keys that are cached for the other query tiles of a task: 1,024 keys, 1 MiB at 256 channels.
  static constexpr std::int64_t most_blocks = 16;
  static std::int64_t cached_blocks(const AttentionProblem& p) {
    const std::int64_t blocks = (p.k_rows + kv_block - 1) / kv_block;
    return p.q_rows <= R ? 0 : blocks < most_blocks ? blocks : most_blocks;
  }

  /// Computes H of a block's keys, at k_narrow_; returns false if an exponent is too large.
  bool narrow_keys(const float* const* k, int keys, std::int64_t block) {
    const bool stays = block < cached_blocks_;
    k_narrow_ = stays ? k_kept_ + block * kv_block * padded(channels_) : k_high_;
    if (stays && kept_[block] != none) return kept_[block] == narrow;
    bool all = true;
    for (int r = 0; all && r < keys; ++r)
      all = split(k[r], channels_, {k_narrow_ + r * padded(channels_), nullptr, nullptr});
    if (stays) kept_[block] = all ? narrow : too_wide;
    return all;
  }

  void widen_queries() {
    if (q_wide_) return;
    for (std::int64_t c = 0; c < channels_; ++c)
      split(q_high_ + c * R, vectors_ * N, {q_high_ + c * R, nullptr, q_exponent_ + c * R});
    q_wide_ = true;
  }

  template <bool WIDE>
  void tiles(const QueryTileScratch<float>& scratch, const SplitRows& q, const ScoreRange& range) {
    const int key = range.key;
    const SplitRows k{k_narrow_ + key * padded(channels_), k_exponent_ + key * padded(channels_), padded(channels_)};
    for_each_part<additive_vectors>(range.first, range.last, [&]<int V>(int v) HWY_ATTR {
      additive_columns<WIDE, V>(q.at(v * N), k, range.end - key, w_, weight_sum_, channels_,
                                scratch.s + key * R + v * N, scratch.alpha + v * N);
    });
  }

  const float* w_;
  std::int64_t channels_, cached_blocks_;
  float weight_sum_ = 0;
  int vectors_ = 0;
  bool narrow_ = true, q_narrow_ = true, q_wide_ = false;
  float *q_high_, *q_exponent_;  // [C][R]: the queries, then their mantissas and exponents
  float *k_high_, *k_exponent_;  // [64][padded C]: H, or mantissas and exponents
  std::uint8_t* kept_;           // [16] Kept
  // k_kept_: [blocks][64][padded C], H of cached blocks; k_narrow_: the address of H of the current block
  float *k_kept_, *k_narrow_ = nullptr;
};

template <>
class AdditiveScore<double> {
 public:
  static constexpr bool additive = true;
  AdditiveScore(Arena&, const AttentionProblem& problem)
      : w_(static_cast<const double*>(problem.additive_w)), channels_(problem.dim) {}
  void begin_task() const {}
  void prepare_queries(const QueryTileScratch<double>&, int) {}
  void load_keys(const double* const*, int, std::int64_t) {}

  void group(const QueryTileScratch<double>& scratch, const double* const* k, const ScoreRange& range) {
    constexpr int R = query_tile_rows<double>, N = lanes<double>;
    const int key = range.key;
    for_each_part<tanh_vectors>(range.first, range.last, [&]<int V>(int v) HWY_ATTR {
      tanh_columns<V>(scratch.q + v * N, k + key, range.end - key, w_, channels_, R, scratch.s + key * R + v * N,
                      scratch.alpha + v * N);
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
