// src/kernels/attention/tiles/prefill_qk-inl.h: computes QK^T of a query tile (prefill): elements of K as broadcasts,
// query rows in the lanes.
#if defined(ATTN_PREFILL_QK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_PREFILL_QK_INL_H
#undef ATTN_PREFILL_QK_INL_H
#else
#define ATTN_PREFILL_QK_INL_H
#endif

#include "kernels/attention/query_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// The operands of the scores of a block, and where the scores go. Mac: MultiplyAdd, or DotPairs, whose words are pairs
/// of columns.
template <class Mac>
struct ScoreOperands {
  using T = typename Mac::Sum;
  const typename Mac::Word* q;         // transposed, [words][query_tile_rows]
  const typename Mac::Word* const* k;  // the block's rows
  std::int64_t words;                  // words of a row
  float scale;                         // bf16: factor of the sums; f32, f64: queries are scaled before
  T *s, *alpha;
  TilePrefetch* ahead;               // what the tiles prefetch, or null
  const float* key_scale = nullptr;  // bf16: scales of int8 keys, or null
};

/// Computes KEYS x VECTORS scores from key `key` and vector `vector` on. Each is a chain over the words of a row, and
/// is -inf where `visible` (the block's words; null: all keys are seen) has no bit for the lane. `alpha` holds the
/// running maximum of each lane.
template <class Mac, int KEYS, int VECTORS>
HWY_INLINE void score_tile(const ScoreOperands<Mac>& scores, int key, int vector, const Word* visible) {
  using T = typename Mac::Sum;
  const Tag<T> d;
  constexpr int R = query_tile_rows<T>, N = lanes<T>;
  const typename Mac::Word* row[KEYS];
  ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r) row[r] = scores.k[key + r];
  const auto left = [&](int r, std::int64_t c) HWY_ATTR { return word_at<typename Mac::Word>(row[r] + c); };
  RegisterTile<Mac, KEYS, VECTORS> tile;
  add_words(tile, left, scores.q + vector * N, scores.words, scores.ahead);
  auto& sum = tile.sum;
  if constexpr (Mac::depth == 2) {
    if (scores.key_scale)
      ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r)
        ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v)
          sum[r][v] = hn::Mul(sum[r][v], hn::Set(d, scores.key_scale[key + r]));
    ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[r][v] = hn::Mul(sum[r][v], hn::Set(d, scores.scale));
  }
  if (visible)
    ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v)
        sum[r][v] = hn::IfThenElse(lanes_of<T>(visible[key + r], vector + v), sum[r][v], minus_infinity<T>());
  ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
    T* const alpha = scores.alpha + (vector + v) * N;
    auto largest = hn::Load(d, alpha);
    ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r) largest = hn::Max(largest, sum[r][v]);
    hn::Store(largest, d, alpha);
  }
  tile.store(scores.s + key * R + vector * N, R);
}

/// Computes the range's keys against VECTORS vectors of queries from `vector` on.
template <class Mac, int VECTORS>
HWY_NOINLINE void score_columns(const ScoreOperands<Mac>& scores, const ScoreRange& range, int vector) {
  constexpr int most = tile_keys(VECTORS, registers);
  const Word* const visible = range.of_vector(vector);
  int key = range.key;
  for (; key + most <= range.end; key += most) score_tile<Mac, most, VECTORS>(scores, key, vector, visible);
  for (; key + 4 <= range.end; key += 4) score_tile<Mac, 4, VECTORS>(scores, key, vector, visible);
  for (; key < range.end; ++key) score_tile<Mac, 1, VECTORS>(scores, key, vector, visible);
}

/// Computes the scores of a range of the block with keys k.
template <typename T>
HWY_INLINE void score_block(const QueryTileScratch<T>& scratch, const T* const* k, std::int64_t dim,
                            const ScoreRange& range) {
  const ScoreOperands<MultiplyAdd<T>> scores{scratch.q, k, dim, 1, scratch.s, scratch.alpha, scratch.ahead};
  for_each_tile(range.first, range.last,
                [&]<int V>(int v) HWY_ATTR { score_columns<MultiplyAdd<T>, V>(scores, range, v); });
}

/// Computes scores as dot products of scaled queries with keys.
template <typename T>
class DotScore {
 public:
  static constexpr bool additive = false;
  DotScore(Arena&, const AttentionProblem& problem) : scale_(static_cast<T>(problem.scale)), dim_(problem.dim) {}
  void begin_task() const {}

  /// Scales the transposed queries once.
  void prepare_queries(const QueryTileScratch<T>& scratch, int vectors) {
    const Tag<T> d;
    constexpr int R = query_tile_rows<T>, N = lanes<T>;
    const auto scale = hn::Set(d, scale_);
    T* place = scratch.q;
    for (std::int64_t c = 0, columns = dim_; c < columns; ++c, place += R)
      for (int x = 0; x < vectors * N; x += N) hn::Store(hn::Mul(hn::Load(d, place + x), scale), d, place + x);
  }

  /// Called with the keys of a block, before its ranges.
  void load_keys(const T* const*, int, std::int64_t) {}

  /// Computes the scores of a range into scratch.s, masked where the range says so, and their maximum into
  /// scratch.alpha.
  void group(const QueryTileScratch<T>& scratch, const T* const* k, const ScoreRange& range) {
    score_block(scratch, k, dim_, range);
  }

 private:
  T scale_;
  std::int64_t dim_;
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
