// src/kernels/attention/pass/tangent_pass-inl.h: computes the tangents (Jacobian-vector products) of 64 query rows over
// their keys in f32 and f64.
//
//   S^T = K Q^T                         dS^T = K dQ^T + dK Q^T        weights P from the saved m and l, as in backward
//   dO^T += V^T (P o dS)^T + dV^T P^T   mu += sum of P o dS           at last dO = dO - mu o O
//
// Only the scores of one block of keys are stored.
#if defined(ATTN_TANGENT_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_TANGENT_PASS_INL_H
#undef ATTN_TANGENT_PASS_INL_H
#else
#define ATTN_TANGENT_PASS_INL_H
#endif

#include "kernels/attention/pass/backward_pass-inl.h"
#include "kernels/attention/tangent_problem.h"

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

template <typename T>
class TangentPass : public BackwardPass<T> {
  using Pass = BackwardPass<T>;
  using Pass::p_, Pass::rows_, Pass::scratch_, Pass::vectors_, Pass::at_, Pass::ahead_, Pass::k_, Pass::v_;

 public:
  using Pass::R, Pass::N;
  using typename Pass::Blocks;

  TangentPass(const AttentionTangent& tangent, const Task& rows, Arena& arena)
      : Pass(tangent.call, rows, arena), t_(tangent), total_(at_.dout), mu_(scratch_.delta) {
    dk_ = rows_of_head(t_.dk, t_.dk_stride, p_.key_head(rows.head));
    dv_ = rows_of_head(t_.dv, t_.dv_stride, p_.value_head(rows.head));
  }

  /// Returns false if a result is NaN.
  bool run() {
    load();
    Blocks blocks(p_.keys_begin(rows_), p_.keys_end(rows_));
    KvBlock& keys = blocks.keys;
    bool first = true;
    while (Pass::next(blocks)) {
      keys.first_of_rows = first;
      first = false;
      move_scores(keys);
      weigh(keys);
      if (t_.has_score_tangents()) add_to_rows(keys, v_, scratch_.d, keys.first_of_rows);
      if (t_.dv != nullptr) add_to_rows(keys, dv_, scratch_.scores.s, keys.first_of_rows && !t_.has_score_tangents());
    }
    if (first || (!t_.has_score_tangents() && t_.dv == nullptr)) Pass::clear(total_, p_.value_dim);
    if (t_.sinks != nullptr) add_sinks();
    return write();
  }

 private:
  Matrix<T> rows_of_head(const void* data, const std::int64_t (&stride)[3], std::int64_t head) const {
    if (data == nullptr) return {nullptr, 0};
    return {static_cast<const T*>(data) + rows_.batch * stride[0] + head * stride[1], stride[2]};
  }

  /// Loads the rows of Q and of its tangent, scaled and transposed, and what the forward pass saved.
  HWY_NOINLINE void load() {
    Pass::load_saved();
    Pass::clear(mu_, 1);
    load_rows(p_.q, p_.q_stride, at_.q);
    if (t_.dq != nullptr) load_rows(t_.dq, t_.dq_stride, at_.dq);
  }
  void load_rows(const void* data, const std::int64_t (&stride)[3], T* transposed) {
    const Matrix<T> head = rows_of_head(data, stride, rows_.head);
    Pass::copy_rows({head.row(rows_.row), head.stride}, p_.dim, static_cast<T>(p_.scale), at_.q_rows);
    Pass::transpose_rows(at_.q_rows, p_.dim, transposed);
  }

  /// Computes the scores of a block in scores.s and their tangents in d, both as they go into the softmax.
  HWY_NOINLINE void move_scores(const KvBlock& keys) {
    ahead_.soon.clear();
    add_block({ahead_.soon, sizeof(T)}, p_, Pass::rows_, keys.first, keys.count);
    ahead_.begin_block();
    Pass::products(keys, k_, p_.dim, at_.q, scratch_.scores.s);
    T* const d = scratch_.d;
    if (t_.dq != nullptr) Pass::products(keys, k_, p_.dim, at_.dq, d);
    if (t_.dk != nullptr) Pass::products(keys, dk_, p_.dim, at_.q, t_.dq != nullptr ? scratch_.scores.extra : d);
    if (t_.dq != nullptr && t_.dk != nullptr)
      for_each_score<R>(keys.ranges, d, [&](Vector<T> x, int at) HWY_ATTR {
        return hn::Add(x, hn::Load(Tag<T>(), scratch_.scores.extra + at));
      });
    if (t_.dq == nullptr && t_.dk == nullptr) Pass::clear(d, keys.count);
    Pass::apply_modifiers(keys);
    if (!t_.has_score_tangents()) return;
    if (p_.softcap != 0) Pass::back_through_softcap(keys.ranges);
    if (t_.bias_count != 0) add_bias_tangents(keys);
    if (Pass::score_mod().used()) Pass::score_mod().back(keys.first, keys.count, keys.ranges, {});
    if (p_.temperature != 1) divide_by_temperature<R>(p_, keys.ranges, d);
  }
  HWY_NOINLINE void add_bias_tangents(const KvBlock& keys) {
    AttentionProblem p = p_;
    p.bias = t_.bias, p.bias_count = t_.bias_count;
    QueryTileScratch<T, R> to = scratch_.scores;
    to.s = scratch_.d;
    use_bias<BiasUse::add>(p, Pass::rows_, keys.first, keys.count, keys.ranges, to);
  }

  /// Computes weights (after dropout) in scores.s, and their products with the tangents of the scores in d; 0 where
  /// masked. Adds the products before dropout to mu: a chain over the block's keys, then one sum.
  HWY_NOINLINE void weigh(const KvBlock& keys) {
    if (keys.visible) Pass::clear_trimmed(keys.ranges);
    alignas(64) T sums[R] = {};
    if (p_.drops(rows_)) {
      alignas(64) Word kept[64];
      kept_rows(p_, Pass::rows_, keys.first, keys.count, kept);
      weigh<true>(keys, kept, sums);
    } else {
      weigh<false>(keys, nullptr, sums);
    }
    const Tag<T> d;
    for (int x = 0; x < vectors_ * N; x += N)
      hn::Store(hn::Add(hn::Load(d, mu_ + x), hn::Load(d, sums + x)), d, mu_ + x);
  }
  template <bool DROPPED>
  HWY_NOINLINE void weigh(const KvBlock& keys, const Word* kept, T* sums) {
    const Tag<T> d;
    const ActiveRanges& ranges = keys.ranges;
    const auto keep_scale = hn::Set(d, static_cast<T>(p_.keep_scale));
    for (int g = 0; g < ranges.count; ++g)
      for (int v = ranges.first[g]; v < ranges.last[g]; ++v) {
        const auto m = hn::Load(d, scratch_.m + v * N), inverse = hn::Load(d, scratch_.inverse + v * N);
        auto sum = hn::Load(d, sums + v * N);
        for (int r = ranges.key[g]; r < ranges.key[g + 1]; ++r) {
          T* const place = scratch_.scores.s + r * R + v * N;
          T* const tangent = scratch_.d + r * R + v * N;
          const auto s = hn::Load(d, place), ds = hn::Load(d, tangent);
          auto seen = hn::Not(hn::Eq(s, minus_infinity<T>()));  // NaN counts as seen, but x86's Ne is false for it
          if (keys.visible) seen = hn::And(seen, lanes_of<T>(keys.visible[r], v));
          auto weight = hn::Mul(weight_of<T>(s, m), inverse);
          sum = hn::IfThenElse(seen, hn::MulAdd(weight, ds, sum), sum);
          if constexpr (DROPPED) weight = hn::IfThenElseZero(lanes_of<T>(kept[r], v), hn::Mul(weight, keep_scale));
          auto kept_and_seen = seen;
          if constexpr (DROPPED) kept_and_seen = hn::And(seen, lanes_of<T>(kept[r], v));
          hn::Store(hn::IfThenElseZero(seen, weight), d, place);
          hn::Store(hn::IfThenElseZero(kept_and_seen, hn::Mul(weight, ds)), d, tangent);
        }
        hn::Store(sum, d, sums + v * N);
      }
  }

  /// Adds the products of the block's rows of V, or of its tangent, with weights [64][R].
  HWY_NOINLINE void add_to_rows(const KvBlock& keys, const Matrix<T>& from, const T* weights, bool begins) {
    const ActiveRanges& ranges = keys.ranges;
    const Matrix<T> rows{from.row(keys.first), from.stride};
    for (int v = 0, last; v < vectors_; v = last) {
      last = ranges.same_range(v, vectors_);
      if (ranges.begin[v] >= ranges.end[v] && !begins) continue;
      for_each_tile(v, last, [&]<int V>(int x) HWY_ATTR {
        query_columns<T, V>(rows, ranges.begin[v], ranges.end[v], p_.value_dim, weights + x * N, total_ + x * N, begins,
                            ahead_);
      });
    }
  }

  HWY_NOINLINE void add_sinks() {
    const Tag<T> d;
    const auto sink = hn::Set(d, static_cast<const T*>(p_.sinks)[rows_.head]),
               tangent = hn::Set(d, static_cast<const T*>(t_.sinks)[rows_.head]);
    for (int x = 0; x < vectors_ * N; x += N) {
      const auto inverse = hn::Load(d, scratch_.inverse + x), mu = hn::Load(d, mu_ + x);
      const auto weight = hn::Mul(weight_of<T>(sink, hn::Load(d, scratch_.m + x)), inverse);
      hn::Store(hn::IfThenElse(hn::Eq(inverse, hn::Zero(d)), mu, hn::MulAdd(weight, tangent, mu)), d, mu_ + x);
    }
  }

  /// Computes total - mu o and writes it, with +0 for a zero; the outputs are transposed 64 columns at a time. Returns
  /// false if a result is NaN.
  HWY_NOINLINE bool write() {
    const Tag<T> d;
    const Matrix<T> out = rows_of_head(p_.out, p_.out_stride, rows_.head);
    T* const transposed = scratch_.scores.s;
    bool numbers = true;
    for (int x = 0; x < vectors_ * N; x += N) hn::Store(hn::Add(hn::Load(d, mu_ + x), hn::Zero(d)), d, mu_ + x);
    for (std::int64_t r = 0; r < rows_.rows; ++r) numbers = numbers && mu_[r] == mu_[r];
    for (std::int64_t c = 0; c < p_.value_dim; c += kv_block) {
      const std::int64_t count = p_.value_dim - c < kv_block ? p_.value_dim - c : kv_block;
      transpose(out.row(rows_.row) + c, out.stride, rows_.rows, count, transposed, std::int64_t{R});
      for (int x = 0; x < vectors_; ++x) {
        const auto mu = hn::Load(d, mu_ + x * N);
        AreNumbers<T> all;
        for (std::int64_t n = 0; n < count; ++n) {
          T* const place = total_ + (c + n) * R + x * N;
          const auto o = hn::Load(d, transposed + n * R + x * N);
          const auto y = hn::Add(hn::NegMulAdd(mu, o, hn::Load(d, place)), hn::Zero(d));
          all.add(y);
          hn::Store(y, d, place);
        }
        const auto real = lanes_of<T>(bits_between(0, static_cast<int>(rows_.rows)), x);
        numbers = numbers && all.in(real);
      }
    }
    T* const to = static_cast<T*>(t_.out) + rows_.batch * t_.out_stride[0] + rows_.head * t_.out_stride[1] +
                  rows_.row * t_.out_stride[2];
    transpose(total_, std::int64_t{R}, p_.value_dim, rows_.rows, to, t_.out_stride[2]);
    std::memcpy(static_cast<T*>(t_.logsumexp) + Pass::saved(), mu_, static_cast<std::size_t>(rows_.rows) * sizeof(T));
    return numbers;
  }

  const AttentionTangent& t_;
  T* total_;  // [Dv][R]  the memory of dO in the backward pass
  T* mu_;     // [R]      sum of P o dS: the tangent of the logsumexp
  Matrix<T> dk_, dv_;
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
