// src/kernels/attention/score_tile-inl.h: S^T = K Q^T for a block of keys: rows of K as broadcasts, queries in the
// lanes.
#if defined(ATTN_SCORE_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_SCORE_TILE_INL_H
#undef ATTN_SCORE_TILE_INL_H
#else
#define ATTN_SCORE_TILE_INL_H
#endif

#include "kernels/attention/few_bytes-inl.h"
#include "kernels/attention/few_weights-inl.h"
#include "kernels/attention/next_head.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// KEYS x VECTORS scores: each a chain of FMAs over d, -inf where `visible` (null: all) has no bit for a lane from
/// vector `vector` on. The running maximum of the lanes goes through `alpha`. What is `ahead` of the tile is asked for
/// on the way.
template <typename T, int KEYS, int VECTORS>
HWY_INLINE void score_tile(const T* HWY_RESTRICT q, const T* const* k, std::int64_t dim, T* HWY_RESTRICT s,
                           T* HWY_RESTRICT alpha, const Word* visible, int vector, const TileAhead* ahead = nullptr) {
  const Tag<T> d;
  constexpr int R = strip_rows<T>, N = lanes<T>;
  Vector<T> sum[KEYS][VECTORS];
  ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r)
    ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[r][v] = hn::Zero(d);
  const T* row[KEYS];
  ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r) row[r] = k[r];
  const auto add = [&](std::int64_t c) __attribute__((always_inline)) HWY_ATTR {
    Vector<T> x[VECTORS];
    ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) x[v] = hn::Load(d, q + c * R + v * N);
    ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r) {
      const auto key = hn::Set(d, row[r][c]);
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[r][v] = hn::MulAdd(key, x[v], sum[r][v]);
    }
  };
  std::int64_t c = 0;
  if (VECTORS == 4 && ahead && ahead->step != 0) {
    const auto step = static_cast<Place>(ahead->step);
    for (Place at = ahead->at; c < dim; ++c, at += step) {
      ask_for(at);
      add(c);
    }
  }
  _Pragma("GCC unroll 2") for (; c < dim; ++c) add(c);
  if (visible)
    ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v)
        sum[r][v] = hn::IfThenElse(lanes_of<T>(visible[r], vector + v), sum[r][v], minus_infinity<T>());
  ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
    auto largest = hn::Load(d, alpha + v * N);
    ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r) {
      largest = hn::Max(largest, sum[r][v]);
      hn::Store(sum[r][v], d, s + r * R + v * N);
    }
    hn::Store(largest, d, alpha + v * N);
  }
}

/// The range's rows of K against VECTORS vectors of queries from `vector` on.
template <typename T, int VECTORS>
HWY_NOINLINE void score_columns(const Strip<T>& strip, const T* const* k, std::int64_t dim, const ScoreRange& range,
                                int vector) {
  constexpr int R = strip_rows<T>, N = lanes<T>;
  constexpr int most = tile_keys(VECTORS, registers);
  const T* const q = strip.q + vector * N;
  T *const s = strip.s + vector * N, *const alpha = strip.alpha + vector * N;
  const Word* const visible = range.of_vector(vector);
  const auto words = [visible](int r) { return visible ? visible + r : nullptr; };
  int r = range.key;
  for (; r + most <= range.end; r += most) {
    if (strip.ahead) strip.ahead->template spread<VECTORS>(dim);
    score_tile<T, most, VECTORS>(q, k + r, dim, s + r * R, alpha, words(r), vector, strip.ahead);
  }
  for (; r + 4 <= range.end; r += 4) score_tile<T, 4, VECTORS>(q, k + r, dim, s + r * R, alpha, words(r), vector);
  for (; r < range.end; ++r) score_tile<T, 1, VECTORS>(q, k + r, dim, s + r * R, alpha, words(r), vector);
}

/// The scores of a range of the block whose keys are k.
template <typename T>
HWY_INLINE void score_block(const Strip<T>& strip, const T* const* k, std::int64_t dim, const ScoreRange& range) {
  for_each_tile(range.first, range.last, [&]<int V>(int v) HWY_ATTR { score_columns<T, V>(strip, k, dim, range, v); });
}

/// How a walk makes its scores: here by dot products of scaled queries. Stands after the strip in its scratch.
template <typename T>
class DotScore {
 public:
  static constexpr bool hides = true, keys_in_lanes = true, takes_bytes = sizeof(T) == 4;
  static std::size_t bytes(const AttentionProblem&, std::int64_t dim) {
    return sizeof(T) * static_cast<std::size_t>((dim * few_rows + 15) / 16 * 16);
  }
  static void begin_task(void*) {}
  DotScore(const AttentionProblem& problem, void* scratch)
      : scale_(static_cast<T>(problem.scale)), dim_(problem.dim), few_queries_(static_cast<T*>(scratch)) {}

  /// The turned queries, scaled once. `few`: their number where they are few, else 0.
  void prepare_queries(const Strip<T>& strip, int vectors, int few, LinesAhead* ahead) {
    ahead_ = ahead;
    const Tag<T> d;
    constexpr int R = strip_rows<T>, N = lanes<T>;
    const auto scale = hn::Set(d, scale_);
    T* place = strip.q;
    for (std::int64_t c = 0, columns = dim_; c < columns; ++c, place += R)
      for (int x = 0; x < vectors * N; x += N) hn::Store(hn::Mul(hn::Load(d, place + x), scale), d, place + x);
    few_ = few;
    for (std::int64_t c = 0; c < (few > 0 ? dim_ : 0); ++c)
      std::memcpy(few_queries_ + c * few_rows, strip.q + c * R, few_rows * sizeof(T));
  }

  /// The keys of a block, before its groups.
  void load_keys(const T* const*, int, std::int64_t) {}

  /// The range's scores into strip.s (those of few rows into their block), hidden where it says so, their maximum into
  /// strip.alpha.
  void group(const Strip<T>& strip, const T* const* k, const ScoreRange& range) {
    if (few_ == 0) return score_block(strip, k, dim_, range);
    FewBlock<T, key_block> block(strip);
    const FewScores<T> to{block.s, key_block, strip.alpha};
    for_each_few_keys(
        k, range.key, range.end,
        [&](int key, int vectors)
            HWY_ATTR { few_scores(to, k + key, key, vectors, few_, FewScoresTile<T>{dim_, few_queries_, ahead_}); },
        [&](int key, int end) HWY_ATTR {
          score_block(strip, k, dim_, {key, end, 0, 1, range.visible, range.whole});
          block.from_lanes(strip.s, few_, key, end);
        });
    few_maxima(to, few_, range.key, range.end, range.of_vector(0));
  }

  /// group() of few rows over keys of 8 bits.
  void group_bytes(const Strip<T>& strip, const KeyRows& k, ByteGroups& groups, const ScoreRange& range) {
    const FewScores<T> to{FewBlock<T, key_block>(strip).s, key_block, strip.alpha};
    for_each_byte_keys(groups, range.key, range.end, key_block,
                       [&](int key, int vectors, const ByteKeys& found) HWY_ATTR {
                         groups.use<asks_ahead<float>>(key, std::min(key + vectors * lanes<float>, range.end));
                         by_form(k, [&]<Element FORM>() HWY_ATTR {
                           few_scores<byte_vectors>(to, found, 0, key, vectors, few_,
                                                    FewScoresByteTile<FORM>{few_queries_, k, dim_, found, key, groups});
                         });
                       });
    few_maxima(to, few_, range.key, range.end, range.of_vector(0));
  }

 private:
  T scale_;
  std::int64_t dim_;
  T* few_queries_;  // [D][few_rows]: columns side by side, so that they fill few cache lines
  int few_ = 0;
  LinesAhead* ahead_ = nullptr;  // of the keys
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
