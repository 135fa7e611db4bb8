// src/kernels/attention/score/score_mod_backward-inl.h: computes the backward pass of score_mod: gradients by the score
// and by the tensors that it looks up, from gradients by its result.
#if defined(ATTN_SCORE_MOD_BACKWARD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_SCORE_MOD_BACKWARD_INL_H
#undef ATTN_SCORE_MOD_BACKWARD_INL_H
#else
#define ATTN_SCORE_MOD_BACKWARD_INL_H
#endif

#include "kernels/attention/backward_scratch.h"
#include "kernels/attention/score/modifiers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Functions that run once per step or once per block are [[gnu::cold]]: compiled for size.
template <typename T>
class ScoreBack {
 public:
  static constexpr int R = query_block, N = lanes<T>;
  using Window = ScoreWindow<T>;

  [[gnu::cold]] HWY_NOINLINE ScoreBack(const AttentionGradient& g, const Task& rows, const BackwardScratch<T>& scratch)
      : g_(g), p_(g.problem), rows_(rows), scratch_(scratch),
        forward_(p_, rows, BackwardScratch<T>::expression(p_), R, scratch.places[0]),
        slopes_(p_, rows, p_.score_gradient != nullptr ? p_.score_gradient->program : p_.score_mod, R,
                scratch.places[1]) {}

  bool used() const { return p_.score_gradient != nullptr; }
  [[gnu::cold]] HWY_NOINLINE void begin() { lines_ = begin_lines<T>(p_, scratch_.lines); }

  /// Applies score_mod as in the forward pass, and saves the scores before it.
  [[gnu::cold]] HWY_NOINLINE void apply(std::int64_t first, int keys, const ActiveRanges& ranges) {
    for_each_score<R>(ranges, scratch_.before,
                      [&](Vector<T>, int at) HWY_ATTR { return hn::Load(Tag<T>(), scratch_.scores.s + at); });
    forward_.apply(first, keys, ranges, scratch_.scores.s);
  }

  /// Changes scratch_.d from gradients by the result of score_mod to gradients by the score, and sums those of lookups.
  [[gnu::cold]] HWY_NOINLINE void back(std::int64_t first, int keys, const ActiveRanges& ranges,
                                       const StepOrder& step_order) {
    const ScoreGradient& gradient = *p_.score_gradient;
    if (gradient.elements != ElementOrder::none && step_order.wait_dense != nullptr)
      step_order.wait_dense(step_order.context, order_of_elements(p_, rows_, first + keys));
    first_ = first - p_.keys_begin(rows_);
    slopes_.in_windows(first, keys, ranges, scratch_.before, [&](const Window& w) {
      T* const d = scratch_.d + w.key * R;
      for (int n = 0; n < gradient.lookup_count; ++n) {
        const ScoreSlope& lookup = gradient.lookups[n];
        times(lookup.slope, lookup.one, w, d, scratch_.given);
        add(n, w);
      }
      if (!gradient.one) times(gradient.slope, false, w, d, d);
    });
    for (int n = 0; n < gradient.lookup_count; ++n)
      if (gradient.lookups[n].line == ScoreLine::distance) place_distances(n, keys);
  }

  /// Changes scratch_.d as `back` does, without the gradients of lookups.
  [[gnu::cold]] HWY_NOINLINE void back_to_scores(std::int64_t first, int keys, const ActiveRanges& ranges) {
    if (p_.score_gradient->one) return;
    slopes_.in_windows(first, keys, ranges, scratch_.before, [&](const Window& w) {
      T* const d = scratch_.d + w.key * R;
      times(p_.score_gradient->slope, false, w, d, d);
    });
  }

  /// Adds the sums that are complete only at the end of a step.
  [[gnu::cold]] HWY_NOINLINE void finish(const StepOrder& step_order) {
    place_rows();
    if (!g_.adds_lookups || !p_.score_gradient->has_lines()) return;
    if (step_order.wait_dense != nullptr) step_order.wait_dense(step_order.context, every_key);
    add_lines<T>(p_, lines_);
  }

 private:
  /// Multiplies derivatives by slopes; a derivative of 0 stays 0, because a masked score may be NaN.
  HWY_NOINLINE void times(ScorePlace slope, bool one, const Window& w, const T* derivative, T* to) const {
    const Tag<T> d;
    const Spread<T> by = one ? Spread<T>{scratch_.before, 0, 0} : slopes_.spread(slope, ScoreRate::pair, w);
    w.for_each([&](int r, int v) HWY_ATTR {
      const auto x = hn::Load(d, derivative + r * R + v * N);
      hn::Store(one ? x : hn::IfThenZeroElse(hn::Eq(x, hn::Zero(d)), hn::Mul(x, hn::LoadU(d, by(r, v)))), d,
                to + r * R + v * N);
    });
  }
  /// Calls f(key, lane) for the lanes that hold rows.
  template <typename F>
  HWY_INLINE void for_each_pair(const Window& w, F&& f) const {
    const int end = w.last * N < rows_.rows ? w.last * N : static_cast<int>(rows_.rows);
    for (int r = 0; r < w.keys; ++r)
      for (int lane = w.first * N; lane < end; ++lane) f(r, lane);
  }

  /// The elements that the pairs of a window looked up.
  class Elements {
   public:
    Elements(const ScoreVectors<T>& values, const ScoreSlope& lookup, ScoreRate rate, const Window& w)
        : rank_(lookup.rank) {
      for (int n = 0; n < rank_; ++n) {
        index_[n] = values.spread(lookup.index[n], rate, w);
        stride_[n] = lookup.stride[n];
      }
    }
    HWY_INLINE std::int64_t operator()(int r, int lane) const {
      std::int64_t offset = 0;
      for (int n = 0; n < rank_; ++n)
        offset += static_cast<std::int64_t>(index_[n](r, lane / N)[lane % N]) * stride_[n];
      return offset;
    }

    /// Adds the gradients of a vector of rows, each to the sum of the element that its row looked up.
    HWY_INLINE void scatter(const T* given, int r, int v, std::int64_t rows, LineSums<T>& lines) const {
      const T* index[4];
      for (int n = 0; n < rank_; ++n) index[n] = index_[n](r, v);
      const int count = rows - v * N < N ? static_cast<int>(rows - v * N) : N;
      std::int64_t low = lines.low, high = lines.high;
      for (int lane = 0; lane < count; ++lane) {
        const T x = given[v * N + lane];
        if (x == 0) continue;  // adding it would change nothing
        std::int64_t place = 0;
        for (int n = 0; n < rank_; ++n) place += static_cast<std::int64_t>(index[n][lane]) * stride_[n];
        lines.sums[place] += x;
        low = place < low ? place : low;
        high = place < high ? high : place + 1;
      }
      lines.low = low;
      lines.high = high;
    }

   private:
    int rank_;
    Spread<T> index_[4];
    std::int64_t stride_[4];
  };
  Elements elements(const ScoreSlope& lookup, ScoreRate rate, const Window& w = {1, 0, 1, 0, nullptr}) const {
    return {slopes_, lookup, rate, w};
  }

  /// Adds the gradients of a window's pairs, in scratch_.given, to their sums.
  [[gnu::cold]] HWY_NOINLINE void add(int n, const Window& w) {
    const Tag<T> d;
    const ScoreSlope& lookup = p_.score_gradient->lookups[n];
    const T* const given = scratch_.given;
    LineSums<T>& lines = lines_[n];
    const Elements element = elements(lookup, ScoreRate::pair, w);
    switch (lookup.line) {
      case ScoreLine::step:
      case ScoreLine::row: {
        T* const sums = lookup.line == ScoreLine::row
                            ? lines.sums
                            : scratch_.sums + (parameters_before_lookups(p_) + step_number(n)) * R;
        return w.for_each([&](int r, int v) HWY_ATTR {
          hn::StoreU(hn::Add(hn::LoadU(d, sums + v * N), hn::Load(d, given + r * R + v * N)), d, sums + v * N);
        });
      }
      case ScoreLine::key:
        if (w.first == w.last) return;
        for_each_pair(w, [&](int r, int lane) { lines.sums[first_ + w.key + r] += given[r * R + lane]; });
        for (int r = 0; r < w.keys; ++r) lines.places[first_ + w.key + r] = element(r, w.first * N);
        return;
      case ScoreLine::distance: {
        T* const sums = lines.sums + distance_line(p_, 0, first_ + w.key);
        return w.for_each([&](int r, int v) HWY_ATTR {
          hn::StoreU(hn::Add(hn::LoadU(d, sums - r + v * N), hn::Load(d, given + r * R + v * N)), d, sums - r + v * N);
        });
      }
      case ScoreLine::element: {
        if (!g_.adds_lookups || w.first == w.last) return;
        const int begin = w.first * N, end = w.last * N < rows_.rows ? w.last * N : static_cast<int>(rows_.rows);
        if (begin >= end) return;
        const std::int64_t key_stride = w.keys > 1 ? element(1, begin) - element(0, begin) : 0;
        T* to = static_cast<T*>(lookup.gradient) + element(0, begin);
        for (int lane = begin; lane < end; ++lane, to += lookup.row_stride)
          for (int r = 0; r < w.keys; ++r) to[r * key_stride] += given[r * R + lane];
        return;
      }
      case ScoreLine::pair:
        for (int r = 0; r < w.keys; ++r)
          for (int v = w.first; v < w.last; ++v) element.scatter(given + r * R, r, v, rows_.rows, lines);
        return;
    }
  }
  int step_number(int lookup) const {
    int number = 0;
    for (int n = 0; n < lookup; ++n) number += p_.score_gradient->lookups[n].line == ScoreLine::step ? 1 : 0;
    return number;
  }

  /// Stores to which elements the sums of the step and of its rows belong.
  [[gnu::cold]] HWY_NOINLINE void place_rows() {
    const ScoreGradient& gradient = *p_.score_gradient;
    slopes_.prepare();
    std::int64_t* to = g_.places + (rows_.block * p_.q_heads + rows_.head) * gradient.step_count;
    for (int n = 0; n < gradient.lookup_count; ++n) {
      const ScoreSlope& lookup = gradient.lookups[n];
      if (lookup.line != ScoreLine::step && lookup.line != ScoreLine::row) continue;
      const Elements element = elements(lookup, ScoreRate::row);
      if (lookup.line == ScoreLine::step) *to++ = element(0, 0);
      for (int r = 0; lookup.line == ScoreLine::row && r < rows_.rows; ++r) lines_[n].places[r] = element(0, r);
    }
  }
  /// Stores to which elements the sums of the distances of the block's pairs belong.
  [[gnu::cold]] HWY_NOINLINE void place_distances(int n, int keys) {
    const ScoreSlope& lookup = p_.score_gradient->lookups[n];
    std::int64_t* const places = lines_[n].places + distance_line(p_, 0, first_) - (kv_block - 1);
    const Elements element = elements(lookup, ScoreRate::distance);
    for (int at = kv_block - keys; at < kv_block - 1 + rows_.rows; ++at) places[at] = element(0, at);
  }

  const AttentionGradient& g_;
  const AttentionProblem& p_;
  const Task& rows_;
  const BackwardScratch<T>& scratch_;
  ScoreVectors<T> forward_, slopes_;
  LineSums<T>* lines_ = nullptr;
  std::int64_t first_ = 0;  // first key of the block, counted from the batch item's first key
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
