// src/kernels/attention/softmax/normalizer-inl.h: computes weights and their slopes from scores, and the numbers of a
// row on which they depend, for every normalizer.
#if defined(ATTN_NORMALIZER_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_NORMALIZER_INL_H
#undef ATTN_NORMALIZER_INL_H
#else
#define ATTN_NORMALIZER_INL_H
#endif

#include "kernels/attention/normalizer_problem.h"
#include "kernels/attention/softmax/softmax_backward-inl.h"
#include "kernels/math/activations-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Calls f<OP>() for the operation.
template <typename F>
HWY_INLINE void by_normalizer(NormalizerOp op, F&& f) {
  switch (op) {
    case NormalizerOp::softmax: return f.template operator()<NormalizerOp::softmax>();
    case NormalizerOp::sigmoid: return f.template operator()<NormalizerOp::sigmoid>();
    case NormalizerOp::sparsemax: return f.template operator()<NormalizerOp::sparsemax>();
    case NormalizerOp::entmax15: return f.template operator()<NormalizerOp::entmax15>();
    case NormalizerOp::relu_squared: return f.template operator()<NormalizerOp::relu_squared>();
  }
}

/// Returns z, which sparsemax and entmax-1.5 compare with the threshold: the score minus the row's maximum m; halved
/// for entmax-1.5.
template <NormalizerOp OP, typename T>
HWY_INLINE Vector<T> below_maximum(Vector<T> s, Vector<T> m) {
  const auto z = hn::Sub(s, m);
  if constexpr (OP == NormalizerOp::entmax15) return hn::Mul(z, hn::Set(Tag<T>(), T(0.5)));
  return z;
}

/// A weight, and the slope u by which its row's gradients are weighted. NaN stays NaN.
template <typename T>
struct Weighed {
  Vector<T> weight, slope;
};
/// `m`, `t`: of softmax m and 1 / l; of sparsemax and entmax-1.5 m and the threshold; of the others the number of the
/// item, and nothing.
template <NormalizerOp OP, typename T>
HWY_INLINE Weighed<T> weighed(Vector<T> s, Vector<T> m, Vector<T> t) {
  const Tag<T> d;
  if constexpr (OP == NormalizerOp::softmax) {
    const auto w = hn::Mul(weight_of<T>(s, m), t);
    return {w, w};
  } else if constexpr (OP == NormalizerOp::sigmoid) {
    const auto y = sigmoid(d, hn::Add(s, m));
    return {y, hn::Mul(y, hn::Sub(hn::Set(d, T(1)), y))};
  } else if constexpr (OP == NormalizerOp::relu_squared) {
    const auto x = hn::IfThenZeroElse(hn::Le(s, hn::Zero(d)), s);
    return {hn::Mul(hn::Mul(x, x), m), hn::Mul(hn::Add(x, x), m)};
  } else {
    const auto over = hn::Sub(below_maximum<OP, T>(s, m), t);
    const auto none = hn::Le(over, hn::Zero(d));
    const auto x = hn::IfThenZeroElse(none, over);
    if constexpr (OP == NormalizerOp::entmax15) return {hn::Mul(x, x), x};
    return {x, hn::IfThenZeroElse(none, hn::Set(d, T(1)))};
  }
}

/// The scores of a query tile: -inf where masked.
template <typename T>
struct TileScores {
  static constexpr int R = query_block, N = lanes<T>;
  T* scores = nullptr;        // [blocks][64][R]
  KvBlock* blocks = nullptr;  // [blocks]
  int count = 0;

  static std::int64_t most_blocks(const AttentionProblem& p) { return (p.k_rows + kv_block - 1) / kv_block; }
  TileScores(Arena& arena, const AttentionProblem& p)
      : scores(arena.take<T>(most_blocks(p) * kv_block * R)), blocks(arena.take<KvBlock>(most_blocks(p))) {}

  T* of(int block) const { return scores + static_cast<std::int64_t>(block) * kv_block * R; }
  /// Calls visit(score) for each key of the block of which vector v takes part.
  template <typename F>
  HWY_INLINE void each_key(int block, int v, F&& visit) const {
    const ActiveRanges& ranges = blocks[block].ranges;
    const T* const from = of(block) + v * N;
    for (int g = 0; g < ranges.count; ++g) {
      if (v < ranges.first[g] || v >= ranges.last[g]) continue;
      for (int r = ranges.key[g]; r < ranges.key[g + 1]; ++r) visit(hn::Load(Tag<T>(), from + r * R));
    }
  }

  HWY_NOINLINE void maximum(int v, T* m) const {
    const Tag<T> d;
    auto largest = minus_infinity<T>();
    for (int n = 0; n < count; ++n)
      each_key(n, v, [&](Vector<T> s) HWY_ATTR { largest = hn::IfThenElse(hn::Gt(s, largest), s, largest); });
    hn::Store(largest, d, m + v * N);
  }

  /// Computes softmax's l: a chain over each block, the blocks added in order.
  HWY_NOINLINE void sum(int v, const T* m, T* l) const {
    const Tag<T> d;
    const auto reference = safe_reference<T>(hn::Load(d, m + v * N));
    auto total = hn::Zero(d);
    for (int n = 0; n < count; ++n) {
      auto chain = hn::Zero(d);
      each_key(n, v, [&](Vector<T> s) HWY_ATTR { chain = hn::Add(chain, weight_of<T>(s, reference)); });
      total = hn::Add(total, chain);
    }
    hn::Store(total, d, l + v * N);
  }

  /// Computes the threshold by Newton's method from below (docs/numerics.md section 13): a row stops when its threshold
  /// rises no more.
  template <NormalizerOp OP>
  HWY_NOINLINE void threshold(int v, const T* m, T* t) const {
    const Tag<T> d;
    const auto reference = safe_reference<T>(hn::Load(d, m + v * N)), one = hn::Set(d, T(1));
    auto least = hn::Set(d, T(-1));
    for (;;) {
      auto first = hn::Zero(d), second = hn::Zero(d);
      for (int n = 0; n < count; ++n) {
        auto a = hn::Zero(d), b = hn::Zero(d);
        each_key(n, v, [&](Vector<T> s) HWY_ATTR {
          const auto z = below_maximum<OP, T>(s, reference);
          const auto over = hn::Gt(z, least);
          if constexpr (OP == NormalizerOp::sparsemax) {
            a = hn::Add(a, hn::IfThenElseZero(over, z));
            b = hn::Add(b, hn::IfThenElseZero(over, one));
          } else {
            const auto x = hn::IfThenElseZero(over, hn::Sub(z, least));
            a = hn::MulAdd(x, x, a);
            b = hn::Add(b, x);
          }
        });
        first = hn::Add(first, a);
        second = hn::Add(second, b);
      }
      auto next = least;
      if constexpr (OP == NormalizerOp::sparsemax) {
        next = hn::Div(hn::Sub(first, one), second);
      } else {
        const auto root = hn::Sqrt(first);
        next = hn::Add(least, hn::Div(hn::Mul(hn::Sub(root, one), root), second));
      }
      const auto rises = hn::Gt(next, least);
      if (hn::AllFalse(d, rises)) break;
      least = hn::IfThenElse(rises, next, least);
    }
    hn::Store(least, d, t + v * N);
  }
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
