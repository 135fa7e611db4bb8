// src/kernels/attention/pass/normalizer_forward_pass-inl.h: computes the forward pass of 64 query rows with another
// normalizer than softmax, or with a function of the weight.
//
//   S^T = K Q^T of all blocks, kept   ->   two numbers of each row   ->   weights   ->   O^T += V^T P^T
//
// The scores of 64 rows and all their keys are stored, no other rows.
#if defined(ATTN_NORMALIZER_FORWARD_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_NORMALIZER_FORWARD_PASS_INL_H
#undef ATTN_NORMALIZER_FORWARD_PASS_INL_H
#else
#define ATTN_NORMALIZER_FORWARD_PASS_INL_H
#endif

#include "kernels/attention/pass/additive_backward_pass-inl.h"
#include "kernels/attention/softmax/normalizer-inl.h"

#include <cstring>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// The values of the expression of the weight.
template <typename T>
struct WeightModMemory {
  T* places;
  WeightModMemory(Arena& arena, const AttentionProblem& p)
      : places(arena.take<T>(BackwardScratch<T>::places_of(p.normalization->weight_mod))) {}
};

/// Base: the backward pass of the score, whose operands and scores serve here too.
template <typename T, class Base>
class NormalizerForward : public Base {
  using Base::p_, Base::rows_, Base::scratch_, Base::vectors_, Base::at_, Base::ahead_, Base::v_;

 public:
  using Base::R, Base::N;
  using typename Base::Blocks;

  NormalizerForward(const AttentionGradient& g, const Task& rows, Arena& arena)
      : Base(g, rows, arena), tile_scores_(arena, p_), stage_(*p_.normalization), total_(at_.dout), t_(scratch_.delta),
        weight_mod_(p_, rows_, stage_.weight_mod, R, WeightModMemory<T>(arena, p_).places) {}
  static std::size_t bytes(const AttentionProblem& p) {
    return Base::bytes(p) + scratch_bytes<TileScores<T>, WeightModMemory<T>>(p);
  }

  /// Returns false if a result is NaN.
  bool run() {
    const Tag<T> d;
    for (int x = 0; x < R; x += N) {  // nothing is known of the rows yet: all are loaded
      hn::Store(hn::Zero(d), d, scratch_.m + x);
      hn::Store(hn::Set(d, T(1)), d, scratch_.inverse + x);
    }
    Base::load_queries();
    Blocks blocks(p_.keys_begin(rows_), p_.keys_end(rows_));
    for (; Base::next(blocks); ++tile_scores_.count) {
      tile_scores_.blocks[tile_scores_.count] = blocks.keys;
      scratch_.scores.s = tile_scores_.of(tile_scores_.count);
      fill(blocks.keys);
    }
    find_numbers();
    clear_returned_weights();
    for (int n = 0; n < tile_scores_.count; ++n) {
      const KvBlock& keys = tile_scores_.blocks[n];
      scratch_.scores.s = tile_scores_.of(n);
      if (keys.visible) Base::clear_trimmed(keys.ranges);
      by_normalizer(stage_.op, [&]<NormalizerOp OP>() HWY_ATTR { weigh<OP>(keys.ranges); });
      if (!stage_.weight_mod.empty()) weight_mod_.apply(keys.first, keys.count, keys.ranges, scratch_.d);
      finish_weights(keys);
      return_weights(keys);
      add_to_output(keys, n == 0);
    }
    if (tile_scores_.count == 0) Base::clear(total_, p_.value_dim);
    save();
    return write();
  }

 private:
  /// Computes the scores of a block as they go into the normalizer, -inf where masked.
  HWY_NOINLINE void fill(const KvBlock& keys) {
    Base::prefetch_block(keys);
    Base::make_scores(keys);
    Base::apply_modifiers(keys);
    if (!keys.visible) return;
    const Tag<T> d;
    const ActiveRanges& ranges = keys.ranges;
    for (int g = 0; g < ranges.count; ++g)
      for (int v = ranges.first[g]; v < ranges.last[g]; ++v)
        for (int r = ranges.key[g]; r < ranges.key[g + 1]; ++r) {
          T* const place = scratch_.scores.s + r * R + v * N;
          hn::Store(hn::IfThenElse(lanes_of<T>(keys.visible[r], v), hn::Load(d, place), minus_infinity<T>()), d, place);
        }
  }

  /// Finds m, and in t_ softmax's l or the threshold.
  HWY_NOINLINE void find_numbers() {
    const Tag<T> d;
    T* const m = scratch_.m;
    for (int v = 0; v < vectors_; ++v) {
      tile_scores_.maximum(v, m);
      const auto largest = hn::Load(d, m + v * N);
      const auto sees = hn::Gt(largest, minus_infinity<T>());
      if (stage_.op == NormalizerOp::softmax && p_.sinks != nullptr) {
        const auto sink = hn::Set(d, static_cast<const T*>(p_.sinks)[rows_.head]);
        hn::Store(hn::IfThenElse(hn::And(sees, hn::Gt(sink, largest)), sink, largest), d, m + v * N);
      }
      switch (stage_.op) {
        case NormalizerOp::softmax: tile_scores_.sum(v, m, t_); break;
        case NormalizerOp::sparsemax: tile_scores_.template threshold<NormalizerOp::sparsemax>(v, m, t_); break;
        case NormalizerOp::entmax15: tile_scores_.template threshold<NormalizerOp::entmax15>(v, m, t_); break;
        default: hn::Store(hn::Set(d, T(1)), d, t_ + v * N);
      }
      auto t = hn::Load(d, t_ + v * N);
      if (stage_.op == NormalizerOp::softmax && p_.sinks != nullptr)
        t = hn::Add(t, weight_of<T>(hn::Set(d, static_cast<const T*>(p_.sinks)[rows_.head]),
                                    safe_reference<T>(hn::Load(d, m + v * N))));
      hn::Store(hn::IfThenElseZero(sees, t), d, t_ + v * N);
    }
  }

  /// Computes the weights of a block in d from the scores, 0 where masked.
  template <NormalizerOp OP>
  HWY_NOINLINE void weigh(const ActiveRanges& ranges) {
    const Tag<T> d;
    for (int g = 0; g < ranges.count; ++g)
      for (int v = ranges.first[g]; v < ranges.last[g]; ++v) {
        auto m = safe_reference<T>(hn::Load(d, scratch_.m + v * N)), t = hn::Load(d, t_ + v * N);
        if constexpr (OP == NormalizerOp::softmax) t = hn::Div(hn::Set(d, T(1)), t);
        if constexpr (OP == NormalizerOp::sigmoid || OP == NormalizerOp::relu_squared)
          m = hn::Set(d, static_cast<T>(stage_.of_item[p_.item(rows_)]));
        for (int r = ranges.key[g]; r < ranges.key[g + 1]; ++r) {
          const auto s = hn::Load(d, scratch_.scores.s + r * R + v * N);
          const auto masked = hn::Eq(s, minus_infinity<T>());
          hn::Store(hn::IfThenZeroElse(masked, weighed<OP, T>(s, m, t).weight), d, scratch_.d + r * R + v * N);
        }
      }
  }

  /// Overwrites the scores with the weights after dropout; 0 where masked.
  HWY_NOINLINE void finish_weights(const KvBlock& keys) {
    const Tag<T> d;
    const ActiveRanges& ranges = keys.ranges;
    const auto keep_scale = hn::Set(d, static_cast<T>(p_.keep_scale));
    alignas(64) Word kept[64];
    if (p_.drops(rows_)) kept_rows(p_, rows_, keys.first, keys.count, kept);
    for (int g = 0; g < ranges.count; ++g)
      for (int r = ranges.key[g]; r < ranges.key[g + 1]; ++r)
        for (int v = ranges.first[g]; v < ranges.last[g]; ++v) {
          T* const place = scratch_.scores.s + r * R + v * N;
          auto weight = hn::Load(d, scratch_.d + r * R + v * N);
          if (p_.drops(rows_)) weight = hn::IfThenElseZero(lanes_of<T>(kept[r], v), hn::Mul(weight, keep_scale));
          hn::Store(hn::IfThenZeroElse(hn::Eq(hn::Load(d, place), minus_infinity<T>()), weight), d, place);
        }
  }

  std::size_t lanes_bytes() const { return static_cast<std::size_t>(rows_.lane_rows) * sizeof(T); }
  void clear_returned_weights() const {
    if (rows_.lane_weights == nullptr) return;
    const std::int64_t keys = p_.keys_end(rows_) - p_.keys_begin(rows_);
    if (keys > 0) std::memset(rows_.lane_weights, 0, static_cast<std::size_t>(keys) * lanes_bytes());
  }
  /// Copies the weights, NaN as the canonical one, to where the call wants them.
  HWY_NOINLINE void return_weights(const KvBlock& keys) const {
    if (rows_.lane_weights == nullptr) return;
    const std::int64_t first = (keys.first - p_.keys_begin(rows_)) * rows_.lane_rows;
    T* const to = static_cast<T*>(rows_.lane_weights) + first;
    const ActiveRanges& ranges = keys.ranges;
    for (int g = 0; g < ranges.count; ++g)
      for (int r = ranges.key[g]; r < ranges.key[g + 1]; ++r)
        for (int x = ranges.first[g] * N; x < ranges.last[g] * N && x < rows_.rows; ++x) {
          const T weight = scratch_.scores.s[r * R + x];
          to[r * rows_.lane_rows + x] = weight == weight ? weight + T(0) : std::numeric_limits<T>::quiet_NaN();
        }
  }

  /// Adds the products of the block's rows of V with its weights.
  HWY_NOINLINE void add_to_output(const KvBlock& keys, bool begins) {
    const ActiveRanges& ranges = keys.ranges;
    const Matrix<T> rows{v_.row(keys.first), v_.stride};
    for (int v = 0, last; v < vectors_; v = last) {
      last = ranges.same_range(v, vectors_);
      if (ranges.begin[v] >= ranges.end[v] && !begins) continue;
      for_each_tile(v, last, [&]<int V>(int x) HWY_ATTR {
        query_columns<T, V>(rows, ranges.begin[v], ranges.end[v], p_.value_dim, scratch_.scores.s + x * N,
                            total_ + x * N, begins, ahead_);
      });
    }
  }

  /// Writes the two numbers of each row, and softmax's logsumexp.
  HWY_NOINLINE void save() {
    const bool coupled = stage_.is_coupled();
    const auto write_rows = [&](void* to, const T* from) {
      if (to != nullptr)
        std::memcpy(static_cast<T*>(to) + Base::saved(), from, static_cast<std::size_t>(rows_.rows) * sizeof(T));
    };
    if (!coupled) Base::clear(scratch_.m, 1);
    write_rows(p_.max, scratch_.m);
    write_rows(p_.sum, t_);
    if (p_.logsumexp == nullptr || stage_.op != NormalizerOp::softmax) return;
    const Tag<double> wide;
    const hn::Rebind<T, Tag<double>> part;
    alignas(64) T result[R];
    for (int x = 0; x < vectors_ * N; x += lanes<double>) {
      const auto l = hn::Load(part, t_ + x), m = hn::Load(part, scratch_.m + x);
      const auto ln2 = hn::Set(part, Constants<T>::ln2);
      if constexpr (sizeof(T) == sizeof(double)) hn::Store(hn::MulAdd(log2_f64(wide, l), ln2, m), part, result + x);
      else hn::Store(hn::MulAdd(hn::DemoteTo(part, log2_f64(wide, hn::PromoteTo(wide, l))), ln2, m), part, result + x);
    }
    write_rows(p_.logsumexp, result);
  }

  /// Writes the output, +0 for a zero. Returns false if a result is NaN.
  HWY_NOINLINE bool write() {
    const Tag<T> d;
    bool numbers = true;
    for (int r = 0; r < rows_.rows; ++r) numbers = numbers && t_[r] == t_[r] && scratch_.m[r] == scratch_.m[r];
    for (int x = 0; x < vectors_; ++x) {
      auto all = hn::Eq(hn::Zero(d), hn::Zero(d));
      for (std::int64_t c = 0; c < p_.value_dim; ++c) {
        T* const place = total_ + c * R + x * N;
        const auto y = hn::Add(hn::Load(d, place), hn::Zero(d));
        all = hn::And(all, hn::Eq(y, y));
        hn::Store(y, d, place);
      }
      const auto real = lanes_of<T>(bits_between(0, static_cast<int>(rows_.rows)), x);
      numbers = numbers && hn::AllTrue(d, hn::Or(all, hn::Not(real)));
    }
    if (p_.out == nullptr) return numbers;
    T* const to = static_cast<T*>(p_.out) + rows_.batch * p_.out_stride[0] + rows_.head * p_.out_stride[1] +
                  rows_.row * p_.out_stride[2];
    transpose(total_, std::int64_t{R}, p_.value_dim, rows_.rows, to, p_.out_stride[2]);
    return numbers;
  }

  TileScores<T> tile_scores_;
  const Normalization& stage_;
  T* total_;  // [Dv][R]  the memory of dO in the backward pass
  T* t_;      // [R]      softmax's l, or the threshold; 0 if the row sees no key
  ScoreVectors<T> weight_mod_;
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
