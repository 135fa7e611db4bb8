// src/kernels/recurrent/state_rows-inl.h: runs the recurrence over rows, forward and backward: columns of the state are
// the lanes, and one pass over the state ends a row and begins the next.
#if defined(ATTN_STATE_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_STATE_ROWS_INL_H
#undef ATTN_STATE_ROWS_INL_H
#else
#define ATTN_STATE_ROWS_INL_H
#endif

#include "kernels/math/activations-inl.h"
#include "kernels/recurrence.h"
#include "kernels/simd/lanes-inl.h"

#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// The vectors of state that a pass over the key channels carries: a chain of sums in each of two of them per vector,
/// twice as many as an fma takes cycles.
inline constexpr int state_vectors = registers == 16 ? 2 : 4;

template <typename T>
const T* items(const void* x) {
  return static_cast<const T*>(x);
}
template <typename T>
T* items(void* x) {
  return static_cast<T*>(x);
}

/// Reads the decay of a row: once, or at each key channel.
template <typename T, Decay KIND>
struct RowDecay {
  const T* at;
  HWY_INLINE RowDecay(const StateRows& p, std::int64_t t) : at(nullptr) {
    if constexpr (KIND != Decay::none) at = items<T>(p.decay) + (KIND == Decay::scalar ? t : t * p.key_stride);
  }
  HWY_INLINE Vector<T> times(std::int64_t d, Vector<T> x) const {
    if constexpr (KIND == Decay::none) return x;
    return hn::Mul(hn::Set(Tag<T>(), at[KIND == Decay::scalar ? 0 : d]), x);
  }
};

template <typename T, int V, Decay KIND, bool DELTA, bool OUTPUT>
HWY_NOINLINE void forward_tile(const ForwardRows& p, std::int64_t first) {
  const Tag<T> tag;
  constexpr int N = lanes<T>;
  const std::int64_t columns = p.columns, dim = p.dim;
  T* const state = items<T>(p.state) + first;
  Vector<T> memory[V], u[V], output[V];
  ATTN_UNROLL_FOR (int i = 0; i < V; ++i) memory[i] = hn::Zero(tag);
  if constexpr (DELTA) {
    for (std::int64_t d = 0; d < dim; ++d) {
      const auto k = hn::Set(tag, items<T>(p.decayed_k)[d]);
      ATTN_UNROLL_FOR (int i = 0; i < V; ++i)
        memory[i] = hn::MulAdd(hn::LoadU(tag, state + d * columns + i * N), k, memory[i]);
    }
  }
  for (std::int64_t t = 0; t < p.rows; ++t) {
    const T *k = items<T>(p.k) + t * p.key_stride, *q = items<T>(p.q) + t * p.key_stride;
    // the last row has no next one: its own key takes the place, and the sums are not used
    const T* next = DELTA ? items<T>(p.decayed_k) + (t + 1 < p.rows ? t + 1 : t) * p.key_stride : nullptr;
    const RowDecay<T, KIND> decay(p, t);
    const std::int64_t at = t * columns + first;
    ATTN_UNROLL_FOR (int i = 0; i < V; ++i) {
      u[i] = hn::LoadU(tag, items<T>(p.v) + at + i * N);
      if constexpr (DELTA) {
        u[i] = hn::Sub(u[i], memory[i]);
        if (!OUTPUT && p.error != nullptr) hn::StoreU(u[i], tag, items<T>(p.error) + at + i * N);
        u[i] = hn::Mul(hn::Set(tag, items<T>(p.beta)[t]), u[i]);
      }
      memory[i] = output[i] = hn::Zero(tag);
    }
    for (std::int64_t d = 0; d < dim; ++d) {
      T* const s = state + d * columns;
      const auto key = hn::Set(tag, k[d]);
      ATTN_UNROLL_FOR (int i = 0; i < V; ++i) {
        const auto x = hn::MulAdd(key, u[i], decay.times(d, hn::LoadU(tag, s + i * N)));
        hn::StoreU(x, tag, s + i * N);
        if constexpr (OUTPUT) output[i] = hn::MulAdd(x, hn::Set(tag, q[d]), output[i]);
        if constexpr (DELTA) memory[i] = hn::MulAdd(x, hn::Set(tag, next[d]), memory[i]);
      }
    }
    if constexpr (OUTPUT) {
      ATTN_UNROLL_FOR (int i = 0; i < V; ++i)
        hn::StoreU(canonical(tag, hn::Add(output[i], hn::Zero(tag))), tag, items<T>(p.output) + at + i * N);
    }
  }
}

template <typename T, int V, Decay KIND, bool DELTA>
HWY_NOINLINE void reverse_tile(const ReverseRows& p, std::int64_t first) {
  const Tag<T> tag;
  constexpr int N = lanes<T>;
  const std::int64_t columns = p.columns, dim = p.dim, stride = p.key_stride;
  T* const gradient = items<T>(p.state_gradient) + first;
  Vector<T> du[V], dv[V], flow[V];
  // the gradient that row t adds to that of its state, and the chains of du
  const auto begin_row = [&](std::int64_t t) HWY_ATTR {
    ATTN_UNROLL_FOR (int i = 0; i < V; ++i) {
      flow[i] = hn::LoadU(tag, items<T>(p.output_gradient) + t * columns + first + i * N);
      du[i] = hn::Zero(tag);
    }
  };
  if (p.rows == 0) return;
  begin_row(p.rows - 1);
  const T *k = items<T>(p.k) + (p.rows - 1) * stride, *q = items<T>(p.q) + (p.rows - 1) * stride;
  for (std::int64_t d = 0; d < dim; ++d) {
    T* const g = gradient + d * columns;
    ATTN_UNROLL_FOR (int i = 0; i < V; ++i) {
      const auto x = hn::MulAdd(hn::Set(tag, q[d]), flow[i], hn::LoadU(tag, g + i * N));
      hn::StoreU(x, tag, g + i * N);
      du[i] = hn::MulAdd(x, hn::Set(tag, k[d]), du[i]);
    }
  }
  for (std::int64_t t = p.rows; t-- > 0;) {
    const RowDecay<T, KIND> decay(p, t);
    k = items<T>(p.k) + t * stride;
    ATTN_UNROLL_FOR (int i = 0; i < V; ++i) {
      hn::StoreU(du[i], tag, items<T>(p.update_gradient) + t * columns + first + i * N);
      dv[i] = DELTA ? hn::Mul(hn::Set(tag, items<T>(p.beta)[t]), du[i]) : du[i];
    }
    const auto memory = [&](std::int64_t d, int i, Vector<T> x) HWY_ATTR {
      if constexpr (DELTA) return hn::NegMulAdd(hn::Set(tag, k[d]), dv[i], x);
      return x;
    };
    if (t == 0) {
      for (std::int64_t d = 0; d < dim; ++d)
        ATTN_UNROLL_FOR (int i = 0; i < V; ++i) {
          T* const g = gradient + d * columns + i * N;
          hn::StoreU(decay.times(d, memory(d, i, hn::LoadU(tag, g))), tag, g);
        }
      return;
    }
    begin_row(t - 1);
    const T* const earlier = k - stride;
    q = items<T>(p.q) + (t - 1) * stride;
    for (std::int64_t d = 0; d < dim; ++d) {
      T* const g = gradient + d * columns;
      ATTN_UNROLL_FOR (int i = 0; i < V; ++i) {
        const auto before = decay.times(d, memory(d, i, hn::LoadU(tag, g + i * N)));
        const auto x = hn::MulAdd(hn::Set(tag, q[d]), flow[i], before);
        hn::StoreU(x, tag, g + i * N);
        du[i] = hn::MulAdd(x, hn::Set(tag, earlier[d]), du[i]);
      }
    }
  }
}

/// Calls run<V>(first column) for the tiles of V vectors that the columns consist of.
template <typename T, typename Run>
HWY_INLINE void for_tiles(std::int64_t columns, Run run) {
  constexpr int N = lanes<T>;
  std::int64_t first = 0;
  for (; first + state_vectors * N <= columns; first += state_vectors * N)
    run(std::integral_constant<int, state_vectors>(), first);
  if constexpr (state_vectors > 2)
    for (; first + 2 * N <= columns; first += 2 * N) run(std::integral_constant<int, 2>(), first);
  for (; first < columns; first += N) run(std::integral_constant<int, 1>(), first);
}

template <typename Run>
HWY_INLINE void with_decay(Decay kind, Run run) {
  if (kind == Decay::none) return run(std::integral_constant<Decay, Decay::none>());
  if (kind == Decay::scalar) return run(std::integral_constant<Decay, Decay::scalar>());
  run(std::integral_constant<Decay, Decay::channel>());
}

template <typename T>
void forward_rows(const ForwardRows& p) {
  if (p.rows == 0) return;
  with_decay(p.decay_kind, [&](auto kind) {
    for_tiles<T>(p.columns, [&](auto vectors, std::int64_t first) {
      constexpr int V = decltype(vectors)::value;
      constexpr Decay KIND = decltype(kind)::value;
      if (p.output == nullptr)
        return p.beta != nullptr ? forward_tile<T, V, KIND, true, false>(p, first)
                                 : forward_tile<T, V, KIND, false, false>(p, first);
      p.beta != nullptr ? forward_tile<T, V, KIND, true, true>(p, first)
                        : forward_tile<T, V, KIND, false, true>(p, first);
    });
  });
}

template <typename T>
void reverse_rows(const ReverseRows& p) {
  with_decay(p.decay_kind, [&](auto kind) {
    for_tiles<T>(p.columns, [&](auto vectors, std::int64_t first) {
      constexpr int V = decltype(vectors)::value;
      constexpr Decay KIND = decltype(kind)::value;
      p.beta != nullptr ? reverse_tile<T, V, KIND, true>(p, first) : reverse_tile<T, V, KIND, false>(p, first);
    });
  });
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
