// src/kernels/attention/score/modifiers-inl.h: applies the score modifiers between QK^T and softmax: softcap, bias,
// score_mod, temperature, mask.
#if defined(ATTN_MODIFIERS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_MODIFIERS_INL_H
#undef ATTN_MODIFIERS_INL_H
#else
#define ATTN_MODIFIERS_INL_H
#endif

#include "kernels/attention/mask/active_vectors.h"
#include "kernels/attention/mask/mask_bits.h"
#include "kernels/attention/score/score_mod-inl.h"
#include "kernels/attention/query_lanes-inl.h"
#include "kernels/simd/widen-inl.h"
#include "kernels/math/math-inl.h"
#include "kernels/simd/transpose-inl.h"

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

inline bool has_modifiers(const AttentionProblem& problem) {
  return problem.softcap != 0 || problem.bias_count != 0 || !problem.score_mod.empty() ||
         problem.score_callback.call != nullptr || problem.temperature != 1;
}

/// Computes x[at] = change(x[at], at) for the offset `at` in the query tile of every vector that takes part. R: rows of
/// the query tile.
template <int R, typename T, typename F>
HWY_INLINE void for_each_score(const ActiveRanges& ranges, T* x, F&& change) {
  const Tag<T> d;
  constexpr int N = lanes<T>;
  for (int g = 0; g < ranges.count; ++g)
    for (int r = ranges.key[g]; r < ranges.key[g + 1]; ++r)
      for (int v = ranges.first[g]; v < ranges.last[g]; ++v) {
        const int at = r * R + v * N;
        hn::Store(change(hn::Load(d, x + at), at), d, x + at);
      }
}

/// Computes s = cap tanh(s / cap). `tanhs`, if not null, gets the values of tanh, which the backward pass needs.
template <int R, typename T>
HWY_NOINLINE void cap_scores(T cap, const ActiveRanges& ranges, T* s, T* tanhs = nullptr) {
  const Tag<T> d;
  const auto c = hn::Set(d, cap);
  for_each_score<R>(ranges, s, [&](Vector<T> x, int at) HWY_ATTR {
    const auto t = tanh(d, hn::Div(x, c));
    if (tanhs != nullptr) hn::Store(t, d, tanhs + at);
    return hn::Mul(c, t);
  });
}

/// Divides scores, or derivatives by them, by the temperature.
template <int R, typename T>
HWY_NOINLINE void divide_by_temperature(const AttentionProblem& problem, const ActiveRanges& ranges, T* x) {
  const auto t = hn::Set(Tag<T>(), static_cast<T>(problem.temperature));
  for_each_score<R>(ranges, x, [&](Vector<T> value, int) HWY_ATTR { return hn::Div(value, t); });
}

template <typename T>
HWY_INLINE T bias_element(const BiasTerm& term, std::int64_t index, const void* values) {
  const hn::CappedTag<float, 1> one;
  switch (term.element) {
    case Element::f64: return static_cast<T>(static_cast<const double*>(values)[index]);
    case Element::bf16: return static_cast<T>(hwy::F32FromBF16(static_cast<const hwy::bfloat16_t*>(values)[index]));
    case Element::f16:
      return static_cast<T>(
          hn::GetLane(hn::PromoteTo(one, hn::LoadU(hn::Rebind<hwy::float16_t, decltype(one)>(),
                                                   static_cast<const hwy::float16_t*>(values) + index))));
    default: return static_cast<T>(static_cast<const float*>(values)[index]);
  }
}

/// Converts adjacent keys of bf16 or f16 rows to f32 and transposes them to lanes.
HWY_NOINLINE inline void transpose_half_bias(Element element, const void* from, std::int64_t stride, std::int64_t rows,
                                             int keys, float* to, std::int64_t to_stride) {
  alignas(64) float wide[kv_block * kv_block];
  for (std::int64_t i = 0; i < rows; ++i)
    widen_half_row(element, static_cast<const std::uint16_t*>(from) + i * stride, keys, wide + i * kv_block);
  transpose(static_cast<const float*>(wide), std::int64_t{kv_block}, rows, std::int64_t{keys}, to, to_stride);
}

/// Transposes rows of a dense bias to lanes, in `extra`.
template <typename T, int R>
HWY_NOINLINE void gather_dense(const BiasTerm& term, const Task& tile, std::int64_t first, int keys,
                               const QueryTileScratch<T, R>& scratch) {
  const std::int64_t* stride = term.dense.stride;
  const bool same_type = term.element == (sizeof(T) == 8 ? Element::f64 : Element::f32);
  for (std::int64_t n = 0; n < tile.heads; ++n) {
    const std::int64_t start =
        tile.batch * stride[0] + (tile.head + n) * stride[1] + tile.row * stride[2] + first * stride[3];
    T* extra = scratch.extra + n * tile.rows;
    if (stride[3] == 1 && same_type) {
      transpose(static_cast<const T*>(term.dense.data) + start, stride[2], tile.rows, std::int64_t{keys}, extra,
                std::int64_t{R});
    } else if (stride[3] == 1 && sizeof(T) == 4 && term.element != Element::f64) {
      transpose_half_bias(term.element, static_cast<const std::uint16_t*>(term.dense.data) + start, stride[2],
                          tile.rows, keys, reinterpret_cast<float*>(extra), R);
    } else {
      for (std::int64_t i = 0; i < tile.rows; ++i)
        for (int r = 0; r < keys; ++r)
          extra[r * R + i] = bias_element<T>(term, start + i * stride[2] + r * stride[3], term.dense.data);
    }
  }
}

/// Calls visit(lane, query head, key position minus row position) for each lane and the first key of the block.
template <typename F>
HWY_INLINE void for_each_lane(const AttentionProblem& problem, const BiasTerm& term, const Task& tile,
                              std::int64_t first, F&& visit) {
  const std::int64_t key = problem.key_position(tile, first), offset = problem.row_offset(tile, term.bottom_right);
  int lane = 0;
  for (std::int64_t n = 0; n < tile.heads; ++n)
    for (std::int64_t i = 0; i < tile.rows; ++i, ++lane) visit(lane, tile.head + n, key - (tile.row + i + offset));
}

/// Writes the distance of the block's first key to each lane. Returns whether distances of later keys follow exactly by
/// adding 1 in T, and slopes are multiplied by them (symmetric: by -|distance|); else BiasTerm::times is used.
template <typename T, int R>
HWY_NOINLINE bool count_distances(const AttentionProblem& problem, const BiasTerm& term, const Task& tile,
                                  std::int64_t first, T (&distance)[R]) {
  constexpr std::int64_t most = (std::int64_t{1} << std::numeric_limits<T>::digits) - bf16_kv_block;
  bool exact = true;
  for_each_lane(problem, term, tile, first, [&](int lane, std::int64_t, std::int64_t at) {
    exact = exact && at > -most && at < most;
    distance[lane] = static_cast<T>(at);
  });
  return exact;
}

/// Returns the number m with which Min(at, m - at) is BiasTerm::times of a distance `at` that is counted; not a branch,
/// for which GCC would compile the loop twice.
template <typename T>
HWY_INLINE Vector<T> mirror_of(const BiasTerm& term) {
  return hn::Set(Tag<T>(), term.symmetric ? T(0) : T(0x1p60));
}

/// Computes slope * BiasTerm::times(distance).
template <typename T, int R>
HWY_NOINLINE void gather_slope(const AttentionProblem& problem, const BiasTerm& term, const Task& tile,
                               std::int64_t first, int keys, const QueryTileScratch<T, R>& scratch) {
  const Tag<T> d;
  constexpr int N = lanes<T>;
  alignas(64) T slope[R] = {}, distance[R] = {};
  for_each_lane(problem, term, tile, first, [&](int lane, std::int64_t head, std::int64_t) {
    slope[lane] = bias_element<T>(term, head * term.value_stride, term.values);
  });
  if (!count_distances(problem, term, tile, first, distance)) {
    for_each_lane(problem, term, tile, first, [&](int lane, std::int64_t, std::int64_t at) {
      for (int r = 0; r < keys; ++r) scratch.extra[r * R + lane] = slope[lane] * static_cast<T>(term.times(at + r));
    });
    return;
  }
  const auto mirror = mirror_of<T>(term);
  for (int r = 0; r < keys; ++r)
    for (int v = 0; v < R; v += N) {
      const auto at = hn::Load(d, distance + v), times = hn::Min(at, hn::Sub(mirror, at));
      hn::Store(hn::Mul(hn::Load(d, slope + v), times), d, scratch.extra + r * R + v);
      hn::Store(hn::Add(at, hn::Set(d, T{1})), d, distance + v);
    }
}

/// Computes table[bucket of the distance]: once for each distance of a head, because pairs of equal distance lie on a
/// diagonal.
template <typename T, int R>
HWY_NOINLINE void gather_table(const AttentionProblem& problem, const BiasTerm& term, const Task& tile,
                               std::int64_t first, int keys, const QueryTileScratch<T, R>& scratch) {
  T values[R + kv_block];  // the largest distance first
  const std::int64_t largest =
      problem.key_position(tile, first) + keys - 1 - tile.row - problem.row_offset(tile, term.bottom_right);
  for (std::int64_t n = 0; n < tile.heads; ++n) {
    const std::int64_t of_head = (tile.head + n) * term.value_stride;
    for (std::int64_t at = 0; at < tile.rows + keys - 1; ++at)
      values[at] = bias_element<T>(term, term.bucket(largest - at) * term.bucket_stride + of_head, term.values);
    for (int r = 0; r < keys; ++r)
      std::memcpy(scratch.extra + r * R + n * tile.rows, values + (keys - 1 - r),
                  static_cast<std::size_t>(tile.rows) * sizeof(T));
  }
}

/// Writes one bias term of the block to `extra`, rows in lanes.
template <typename T, int R>
HWY_INLINE void gather_bias(const AttentionProblem& problem, const BiasTerm& term, const Task& tile, std::int64_t first,
                            int keys, const QueryTileScratch<T, R>& scratch) {
  switch (term.op) {
    case BiasOp::dense: return gather_dense(term, tile, first, keys, scratch);
    case BiasOp::slope: return gather_slope(problem, term, tile, first, keys, scratch);
    case BiasOp::table: return gather_table(problem, term, tile, first, keys, scratch);
  }
}

/// Sets scores to -inf where a bit is not set (visible: null for no mask) and writes the new maximum of every row to
/// `alpha`.
template <typename T>
HWY_NOINLINE void mask_block(const Word* visible, const ActiveRanges& ranges, const QueryTileScratch<T>& scratch) {
  const Tag<T> d;
  constexpr int R = query_tile_rows<T>, N = lanes<T>;
  for (int g = 0; g < ranges.count; ++g)
    for (int v = ranges.first[g]; v < ranges.last[g]; ++v) {
      auto largest = hn::Load(d, scratch.alpha + v * N);
      for (int r = ranges.key[g]; r < ranges.key[g + 1]; ++r) {
        T* place = scratch.s + r * R + v * N;
        auto s = hn::Load(d, place);
        if (visible) {
          s = hn::IfThenElse(lanes_of<T>(visible[r], v), s, minus_infinity<T>());
          hn::Store(s, d, place);
        }
        largest = hn::Max(largest, s);
      }
      hn::Store(largest, d, scratch.alpha + v * N);
    }
}

/// The register tiles leave the maximum of the raw scores in alpha. If modifiers change scores, it is computed again,
/// starting from m.
template <typename T>
HWY_INLINE void restart_maximum(const QueryTileScratch<T>& scratch) {
  const Tag<T> d;
  constexpr int N = lanes<T>;
  for (int v = 0; v < query_tile_vectors<T>; ++v) hn::Store(hn::Load(d, scratch.m + v * N), d, scratch.alpha + v * N);
}

/// add: adds the bias terms one after another. A bias of -inf masks the pair instead of being added, because the score
/// may be NaN. mask: masks these pairs again, after score_mod or a callback, which may have changed their score.
enum class BiasUse { add, mask };
template <BiasUse USE, typename T, int R>
HWY_NOINLINE void use_bias(const AttentionProblem& problem, const Task& tile, std::int64_t first, int keys,
                           const ActiveRanges& ranges, const QueryTileScratch<T, R>& scratch) {
  const Tag<T> d;
  for (int n = 0; n < problem.bias_count; ++n) {
    gather_bias(problem, problem.bias[n], tile, first, keys, scratch);
    for_each_score<R>(ranges, scratch.s, [&](Vector<T> s, int at) HWY_ATTR {
      const auto bias = hn::Load(d, scratch.extra + at);
      return hn::IfThenElse(hn::Eq(bias, minus_infinity<T>()), bias, USE == BiasUse::add ? hn::Add(s, bias) : s);
    });
  }
}

/// Applies all score modifiers and the mask in the order of docs/numerics.md sections 3.2 and 3.3. The running maximum
/// stays in alpha.
template <typename T>
HWY_NOINLINE void apply_score_modifiers(const AttentionProblem& problem, const Task& tile, std::int64_t first, int keys,
                                        const Word* visible, const ActiveRanges& ranges,
                                        const QueryTileScratch<T>& scratch, ScoreVectors<T>& score_mod) {
  constexpr int R = query_tile_rows<T>;
  if (problem.softcap != 0) cap_scores<R>(static_cast<T>(problem.softcap), ranges, scratch.s);
  if (problem.bias_count != 0) use_bias<BiasUse::add>(problem, tile, first, keys, ranges, scratch);
  if (!problem.score_mod.empty()) score_mod.apply(first, keys, ranges, scratch.s);
  if (problem.score_callback.call != nullptr) call_back(problem, tile, first, keys, scratch.s);
  if (problem.bias_count != 0 && (!problem.score_mod.empty() || problem.score_callback.call != nullptr))
    use_bias<BiasUse::mask>(problem, tile, first, keys, ranges, scratch);
  if (problem.temperature != 1) divide_by_temperature<R>(problem, ranges, scratch.s);
  mask_block(visible, ranges, scratch);
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
