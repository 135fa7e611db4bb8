// src/kernels/attention/pass/gradient_tangent_pass-inl.h: computes the tangents of the gradients of 64 query rows over
// their keys (a product with second derivatives) in f32 and f64. With x' the tangent of x:
//
//   S^T = K Q^T     S'^T = K Q'^T + K' Q^T     dP^T = V dO^T     dP'^T = V dO'^T + V' dO^T
//   dS = P o (dP - delta)     dS' = P o ((S' - mu) o (dP - delta) + dP' - delta')     P' = P o (S' - mu)
//   dQ'^T += K^T dS'^T + K'^T dS^T     dK' += dS'^T Q + dS^T Q'     dV' += P'^T dO + P^T dO'
//
// mu and O' come from the tangent of the forward pass. Only the scores of one block of keys are stored.
#if defined(ATTN_GRADIENT_TANGENT_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GRADIENT_TANGENT_PASS_INL_H
#undef ATTN_GRADIENT_TANGENT_PASS_INL_H
#else
#define ATTN_GRADIENT_TANGENT_PASS_INL_H
#endif

#include "kernels/attention/pass/backward_pass-inl.h"
#include "kernels/attention/tangent_problem.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// The memory of a step for what moves.
template <typename T>
struct GradientTangentScratch {
  static constexpr int R = query_block;

  T *q = nullptr, *dout = nullptr;            // [D][R], [Dv][R]   tangents of q (scaled) and of dO, transposed
  T *q_rows = nullptr, *dout_rows = nullptr;  // [R][wide D], [R][wide Dv]
  T *mu = nullptr, *delta = nullptr;          // [R]               tangents of the logsumexp and of delta
  T* score = nullptr;                         // [64][R]           tangents of the scores, then of the weights
  T* dp = nullptr;                            // [64][R]           tangents of dP, then dS itself
  T* capped = nullptr;                        // [64][R]           tangents of the scores after the softcap

  GradientTangentScratch(Arena& arena, const AttentionProblem& p) {
    const auto take = [&arena](std::int64_t count) { return arena.take<T>(count * R); };
    q = take(p.dim), dout = take(p.value_dim);
    q_rows = take(GradientOperands<T>::wide(p.dim)), dout_rows = take(GradientOperands<T>::wide(p.value_dim));
    mu = take(1), delta = take(1);
    score = take(kv_block), dp = take(kv_block), capped = take(p.softcap != 0 ? kv_block : 0);
  }
};

template <typename T>
class GradientTangentPass : public BackwardPass<T> {
  using Pass = BackwardPass<T>;
  using Pass::g_, Pass::p_, Pass::rows_, Pass::scratch_, Pass::vectors_, Pass::at_, Pass::ahead_, Pass::k_, Pass::v_;

 public:
  using Pass::R, Pass::N;

  GradientTangentPass(const AttentionGradient& g, const Task& rows, Arena& arena)
      : Pass(g, rows, arena), t_(*g.along), o_(t_.operands), at_tangent_(arena, g.problem) {
    dk_ = rows_of_head(o_.dk, o_.dk_stride, p_.key_head(rows.head));
    dv_ = rows_of_head(o_.dv, o_.dv_stride, p_.value_head(rows.head));
  }
  static std::size_t bytes(const AttentionProblem& p) {
    return scratch_bytes<BackwardScratch<T>, GradientOperands<T>, GradientTangentScratch<T>>(p);
  }

  HWY_NOINLINE void load_rows() {
    Pass::load_rows();
    if (o_.dq != nullptr)
      load(o_.dq, o_.dq_stride, p_.dim, static_cast<T>(p_.scale), at_tangent_.q_rows, at_tangent_.q);
    Pass::row_products(o_.out, o_.out_stride, at_.dout, at_tangent_.delta);
    if (t_.dout != nullptr) {
      load(t_.dout, t_.dout_stride, p_.value_dim, T(1), at_tangent_.dout_rows, at_tangent_.dout);
      Pass::row_products(p_.out, p_.out_stride, at_tangent_.dout, at_tangent_.mu);
      for (int r = 0; r < vectors_ * N; ++r) at_tangent_.delta[r] += at_tangent_.mu[r];
    }
    const T* const mu = static_cast<const T*>(o_.logsumexp) + Pass::saved();
    const T* const dlse = static_cast<const T*>(t_.dlogsumexp);
    for (int r = 0; r < vectors_ * N; ++r) {
      const bool sees = scratch_.inverse[r] != 0;
      at_tangent_.mu[r] = sees ? mu[r] : 0;
      if (!sees) at_tangent_.delta[r] = 0;
      else if (dlse != nullptr) at_tangent_.delta[r] -= dlse[Pass::saved() + r];
    }
  }

  /// Computes weights, their tangents, dS and its tangent (in d): the last two before the softcap. 0 where masked.
  HWY_NOINLINE void derive(const KvBlock& keys, bool) {
    ahead_.soon.clear();
    add_block({ahead_.soon, sizeof(T)}, p_, Pass::rows_, keys.first, keys.count);
    ahead_.begin_block();
    Pass::products(keys, k_, p_.dim, at_.q, scratch_.scores.s);
    Pass::products(keys, v_, p_.value_dim, at_.dout, scratch_.d);
    sum_of_products(keys, {k_, o_.dq != nullptr, at_tangent_.q}, {dk_, o_.dk != nullptr, at_.q}, p_.dim,
                    at_tangent_.score);
    sum_of_products(keys, {v_, t_.dout != nullptr, at_tangent_.dout}, {dv_, o_.dv != nullptr, at_.dout}, p_.value_dim,
                    at_tangent_.dp);
    Pass::apply_modifiers(keys);
    move_scores(keys);
    if (keys.visible) clear_trimmed(keys.ranges);
    if (p_.drops(rows_)) {
      alignas(64) Word kept[64];
      kept_rows(p_, Pass::rows_, keys.first, keys.count, kept);
      weigh<true>(keys, kept);
    } else {
      weigh<false>(keys, nullptr);
    }
    if (p_.temperature == 1) return;
    divide_by_temperature<R>(p_, keys.ranges, scratch_.d);
    divide_by_temperature<R>(p_, keys.ranges, at_tangent_.dp);
  }

  HWY_NOINLINE void back_to_scores(const KvBlock& keys) {
    if (p_.softcap == 0) return;
    const Tag<T> d;
    const auto cap = hn::Set(d, static_cast<T>(p_.softcap)), one = hn::Set(d, T(1)), zero = hn::Zero(d);
    for_each_score<R>(keys.ranges, scratch_.d, [&](Vector<T> moved, int at) HWY_ATTR {
      const auto t = hn::Load(d, scratch_.capped + at), e = hn::Load(d, at_tangent_.dp + at);
      const auto slope = hn::NegMulAdd(t, t, one);
      const auto bend = hn::Mul(hn::Mul(hn::Set(d, T(-2)), t), hn::Div(hn::Load(d, at_tangent_.capped + at), cap));
      hn::Store(hn::IfThenZeroElse(hn::Eq(e, zero), hn::Mul(e, slope)), d, at_tangent_.dp + at);
      const auto by_slope = hn::IfThenZeroElse(hn::Eq(moved, zero), hn::Mul(moved, slope));
      return hn::IfThenElse(hn::Eq(e, zero), by_slope, hn::MulAdd(e, bend, by_slope));
    });
  }

  void add_to_queries(const KvBlock& keys) {
    Pass::add_to_queries(keys);
    if (o_.dk == nullptr) return;
    const ActiveRanges& ranges = keys.ranges;
    const Matrix<T> rows{dk_.row(keys.first), dk_.stride};
    for (int v = 0, last; v < vectors_; v = last) {
      last = ranges.same_range(v, vectors_);
      if (ranges.begin[v] >= ranges.end[v]) continue;
      for_each_tile(v, last, [&]<int V>(int x) HWY_ATTR {
        query_columns<T, V>(rows, ranges.begin[v], ranges.end[v], p_.dim, at_tangent_.dp + x * N, at_.dq + x * N, false,
                            ahead_);
      });
    }
  }

  void add_to_dk_and_dv(const KvBlock& keys) {
    KvBlock more = keys;
    more.first_of_keys = false;
    const typename Pass::KeyGradient dk{g_.dk, g_.dk_stride, p_.k_heads}, dv{g_.dv, g_.dv_stride, p_.v_heads};
    Pass::add_products(keys, scratch_.d, at_.q_rows, p_.dim, dk);
    if (o_.dq != nullptr) Pass::add_products(more, at_tangent_.dp, at_tangent_.q_rows, p_.dim, dk);
    Pass::add_products(keys, at_tangent_.score, at_.dout_rows, p_.value_dim, dv);
    if (t_.dout != nullptr) Pass::add_products(more, scratch_.scores.s, at_tangent_.dout_rows, p_.value_dim, dv);
  }

  /// Writes the sums of the parameters; that of a sink is made here.
  HWY_NOINLINE void write_parameters() {
    Pass::write_parameters();
    if (p_.sinks == nullptr) return;
    const Tag<T> d;
    const T moved = o_.sinks != nullptr ? static_cast<const T*>(o_.sinks)[rows_.head] : T(0);
    const auto sink = hn::Set(d, static_cast<const T*>(p_.sinks)[rows_.head]);
    for (int x = 0; x < vectors_ * N; x += N) {
      const auto inverse = hn::Load(d, scratch_.inverse + x), mu = hn::Load(d, at_tangent_.mu + x);
      const auto weight = hn::Mul(weight_of<T>(sink, hn::Load(d, scratch_.m + x)), inverse);
      const auto sum = hn::Mul(weight, hn::MulAdd(hn::Sub(mu, hn::Set(d, moved)), hn::Load(d, scratch_.delta + x),
                                                  hn::Sub(hn::Zero(d), hn::Load(d, at_tangent_.delta + x))));
      hn::Store(hn::IfThenZeroElse(hn::Eq(inverse, hn::Zero(d)), sum), d, scratch_.sums + x);
    }
    T& to = static_cast<T*>(g_.parameters)[(rows_.block * p_.q_heads + rows_.head) * parameter_count(p_)];
    to = 0;
    for (std::int64_t r = 0; r < rows_.rows; ++r) to += scratch_.sums[r];
    if (to != to) to = std::numeric_limits<T>::quiet_NaN();
  }

  /// Writes the rows of dQ. Returns false when a number of theirs, of mu, of the tangents of delta or of Q, or one that
  /// the backward pass looks at, is not finite.
  bool write_queries() {
    bool finite = Pass::write_queries();
    const auto check = [&](const T* x, std::int64_t columns) {
      for (std::int64_t c = 0; c < columns && finite; ++c)
        for (std::int64_t r = 0; r < rows_.rows; ++r) finite = finite && x[c * R + r] - x[c * R + r] == 0;
    };
    check(at_tangent_.mu, 1);
    check(at_tangent_.delta, 1);
    if (o_.dq != nullptr) check(at_tangent_.q, p_.dim);
    return finite;
  }

 private:
  Matrix<T> rows_of_head(const void* data, const std::int64_t (&stride)[3], std::int64_t head) const {
    if (data == nullptr) return {nullptr, 0};
    return {static_cast<const T*>(data) + rows_.batch * stride[0] + head * stride[1], stride[2]};
  }
  void load(const void* data, const std::int64_t (&stride)[3], std::int64_t columns, T factor, T* rows, T* transposed) {
    const Matrix<T> head = rows_of_head(data, stride, rows_.head);
    Pass::copy_rows({head.row(rows_.row), head.stride}, columns, factor, rows);
    Pass::transpose_rows(rows, columns, transposed);
  }

  /// One of two products whose sum is a tangent; not there if its factor does not move.
  struct Product {
    Matrix<T> rows;
    bool there;
    const T* transposed;
  };
  HWY_NOINLINE void sum_of_products(const KvBlock& keys, const Product& a, const Product& b, std::int64_t columns,
                                    T* to) {
    const Tag<T> d;
    if (!a.there && !b.there) return Pass::clear(to, keys.count);
    if (a.there) Pass::products(keys, a.rows, columns, a.transposed, to);
    if (b.there) Pass::products(keys, b.rows, columns, b.transposed, a.there ? scratch_.scores.extra : to);
    if (a.there && b.there)
      for_each_score<R>(keys.ranges, to, [&](Vector<T> x, int at) HWY_ATTR {
        return hn::Add(x, hn::Load(d, scratch_.scores.extra + at));
      });
  }

  /// Takes the tangents of the scores through softcap, bias terms and temperature.
  HWY_NOINLINE void move_scores(const KvBlock& keys) {
    const Tag<T> d;
    T* const moved = at_tangent_.score;
    if (p_.softcap != 0)
      for_each_score<R>(keys.ranges, moved, [&](Vector<T> x, int at) HWY_ATTR {
        const auto t = hn::Load(d, scratch_.capped + at);
        const auto y = hn::IfThenZeroElse(hn::Eq(x, hn::Zero(d)), hn::Mul(x, hn::NegMulAdd(t, t, hn::Set(d, T(1)))));
        hn::Store(y, d, at_tangent_.capped + at);
        return y;
      });
    if (o_.bias_count != 0) {
      AttentionProblem p = p_;
      p.bias = o_.bias, p.bias_count = o_.bias_count;
      QueryTileScratch<T, R> to = scratch_.scores;
      to.s = moved;
      use_bias<BiasUse::add>(p, Pass::rows_, keys.first, keys.count, keys.ranges, to);
    }
    if (p_.temperature != 1 && o_.has_score_tangents()) divide_by_temperature<R>(p_, keys.ranges, moved);
  }

  void clear_trimmed(const ActiveRanges& ranges) {
    const Tag<T> d;
    Pass::clear_trimmed(ranges);
    for (int g = 0; g < ranges.count; ++g)
      for (int r = ranges.key[g]; r < ranges.key[g + 1]; ++r)
        for (int v = 0; v < vectors_; ++v) {
          if (v >= ranges.first[g] && v < ranges.last[g]) continue;
          hn::Store(hn::Zero(d), d, at_tangent_.score + r * R + v * N);
          hn::Store(hn::Zero(d), d, at_tangent_.dp + r * R + v * N);
        }
  }

  template <bool DROPPED>
  HWY_NOINLINE void weigh(const KvBlock& keys, const Word* kept) {
    const Tag<T> d;
    const ActiveRanges& ranges = keys.ranges;
    const auto keep_scale = hn::Set(d, static_cast<T>(p_.keep_scale));
    for (int g = 0; g < ranges.count; ++g)
      for (int v = ranges.first[g]; v < ranges.last[g]; ++v) {
        const auto m = hn::Load(d, scratch_.m + v * N), inverse = hn::Load(d, scratch_.inverse + v * N),
                   delta = hn::Load(d, scratch_.delta + v * N), mu = hn::Load(d, at_tangent_.mu + v * N),
                   delta_tangent = hn::Load(d, at_tangent_.delta + v * N);
        for (int r = ranges.key[g]; r < ranges.key[g + 1]; ++r) {
          const int at = r * R + v * N;
          const auto s = hn::Load(d, scratch_.scores.s + at);
          auto seen = hn::Not(hn::Eq(s, minus_infinity<T>()));  // NaN counts as seen, but x86's Ne is false for it
          if (keys.visible) seen = hn::And(seen, lanes_of<T>(keys.visible[r], v));
          const auto p = hn::Mul(weight_of<T>(s, m), inverse);
          const auto moves = hn::Sub(hn::Load(d, at_tangent_.score + at), mu);
          auto weight = p, moved = hn::Mul(p, moves);
          auto dp = hn::Load(d, scratch_.d + at), dp_tangent = hn::Load(d, at_tangent_.dp + at);
          if constexpr (DROPPED) {
            const auto stays = lanes_of<T>(kept[r], v);
            for (auto* x : {&weight, &moved, &dp, &dp_tangent}) *x = hn::IfThenElseZero(stays, hn::Mul(*x, keep_scale));
          }
          const auto u = hn::Sub(dp, delta);
          const auto derivative = hn::Mul(p, hn::MulAdd(moves, u, hn::Sub(dp_tangent, delta_tangent)));
          hn::Store(hn::IfThenElseZero(seen, weight), d, scratch_.scores.s + at);
          hn::Store(hn::IfThenElseZero(seen, moved), d, at_tangent_.score + at);
          hn::Store(hn::IfThenElseZero(seen, hn::Mul(p, u)), d, at_tangent_.dp + at);
          hn::Store(hn::IfThenElseZero(seen, derivative), d, scratch_.d + at);
        }
      }
  }

  const GradientTangent& t_;
  const AttentionTangent& o_;  // the tangents of the operands and of the results
  GradientTangentScratch<T> at_tangent_;
  Matrix<T> dk_, dv_;  // tangents of the rows of K and V
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
