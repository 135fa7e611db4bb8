// src/kernels/attention/softmax/returned_weights-inl.h: computes the attention weights that the call returns: scores
// are stored per tile and become weights after the last key.
#if defined(ATTN_RETURNED_WEIGHTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_RETURNED_WEIGHTS_INL_H
#undef ATTN_RETURNED_WEIGHTS_INL_H
#else
#define ATTN_RETURNED_WEIGHTS_INL_H
#endif

#include "kernels/attention/mask/masked_values-inl.h"
#include "kernels/attention/score/dropout-inl.h"
#include "kernels/attention/softmax/online_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Stores the final scores of a query tile in Task::lane_weights, [keys][R], -inf where masked. Reading them back costs
/// less than computing the products again: a query tile of 64 rows and 8,192 keys takes 2 MiB.
template <typename T>
class ReturnedWeights {
 public:
  static constexpr int R = query_tile_rows<T>, N = lanes<T>;

  ReturnedWeights(const AttentionProblem& problem, const Task& tile)
      : at_(static_cast<T*>(tile.lane_weights)), begin_(problem.keys_begin(tile)), end_(problem.keys_end(tile)) {}

  bool wanted() const { return at_ != nullptr; }
  /// Must be called if the pass recomputes one row alone, which is lane `lane` of the stored tile.
  void only(int lane) { only_ = lane; }

  /// Stores the scores of keys first ... from `s`.
  HWY_NOINLINE void keep(std::int64_t first, const ActiveRanges& ranges, int vectors, const T* s) {
    const Tag<T> d;
    for (int g = 0; g < ranges.count; ++g)
      for (int r = ranges.key[g]; r < ranges.key[g + 1]; ++r) {
        T* to = place(first + r);
        const bool seen = ranges.first[g] == 0 && ranges.last[g] > 0;
        if (only_ >= 0) {
          to[only_] = seen ? s[r * R] : -std::numeric_limits<T>::infinity();
          continue;
        }
        for (int v = 0; v < vectors; ++v)
          hn::Store(v >= ranges.first[g] && v < ranges.last[g] ? hn::Load(d, s + r * R + v * N) : minus_infinity<T>(),
                    d, to + v * N);
      }
  }

  /// Stores -inf for keys that no row sees.
  void skip(std::int64_t first, int keys, int vectors) {
    const Tag<T> d;
    for (std::int64_t j = first; j < first + keys; ++j) {
      if (only_ >= 0) place(j)[only_] = -std::numeric_limits<T>::infinity();
      else
        for (int v = 0; v < vectors; ++v) hn::Store(minus_infinity<T>(), d, place(j) + v * N);
    }
  }

  /// Changes the scores to exp2((s - m) log2 e) (1 / l), exactly 0 where masked, after dropout, and adds them to
  /// lane_average. `spare`: [64][R].
  HWY_NOINLINE void make_weights(const AttentionProblem& problem, const Task& tile, int vectors, const T* m, const T* l,
                                 T* spare) {
    for (std::int64_t first = begin_; first < end_; first += kv_block) {
      const int keys = static_cast<int>(end_ - first < kv_block ? end_ - first : kv_block);
      T* s = place(first);
      if (only_ >= 0) {
        for (int r = 0; r < keys; ++r) spare[r * R] = s[r * R + only_];
        s = spare;
      }
      for (int v = 0; v < vectors; ++v) weigh(keys, m + v * N, l + v * N, s + v * N);
      if (problem.drops(tile)) drop_block(problem, tile, first, ActiveRanges::all(keys, vectors), s);
      if (only_ >= 0)
        for (int r = 0; r < keys; ++r) place(first + r)[only_] = spare[r * R];
      if (tile.lane_average) add(static_cast<T*>(tile.lane_average) + (first - begin_) * R, s, keys, vectors);
    }
  }

 private:
  T* place(std::int64_t j) const { return at_ + (j - begin_) * R; }

  static void weigh(int keys, const T* m, const T* l, T* s) {
    const Tag<T> d;
    const auto reference = safe_reference<T>(hn::Load(d, m)), sum = hn::Load(d, l);
    const auto inverse = hn::IfThenZeroElse(hn::Eq(sum, hn::Zero(d)), hn::Div(hn::Set(d, T{1}), sum));
    for (int r = 0; r < keys; ++r) {
      const auto score = hn::Load(d, s + r * R);
      const auto weight = canonical_lanes<T>(hn::Mul(weight_of<T>(score, reference), inverse));
      hn::Store(hn::IfThenZeroElse(hn::Eq(score, minus_infinity<T>()), weight), d, s + r * R);
    }
  }

  void add(T* average, const T* s, int keys, int vectors) const {
    const Tag<T> d;
    if (only_ >= 0) {
      for (int r = 0; r < keys; ++r) average[r * R + only_] += s[r * R];
      return;
    }
    for (int r = 0; r < keys; ++r)
      for (int v = 0; v < vectors; ++v) {
        T* to = average + r * R + v * N;
        hn::Store(hn::Add(hn::Load(d, to), hn::Load(d, s + r * R + v * N)), d, to);
      }
  }

  T* at_;
  std::int64_t begin_, end_;
  int only_ = -1;
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
