// src/kernels/recurrent/chunk_gradient-inl.h: computes the gradients of q, k and log decay of a chunk of rows; key
// channels are the lanes.
#if defined(ATTN_CHUNK_GRADIENT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_CHUNK_GRADIENT_INL_H
#undef ATTN_CHUNK_GRADIENT_INL_H
#else
#define ATTN_CHUNK_GRADIENT_INL_H
#endif

#include "kernels/recurrent/state_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Computes V vectors of channels from channel `first` on, as chunk_channel of kernels/ref/recurrent.cc does.
template <typename T, int V, Decay KIND, bool DELTA, bool DECAY_GRADIENT>
HWY_NOINLINE void chunk_tile(const ChunkGradient& p, std::int64_t first) {
  const Tag<T> tag;
  constexpr int N = lanes<T>, width = V * N;
  constexpr std::int64_t most = recurrent_chunk;
  const std::int64_t rows = p.rows;
  alignas(64) T xs[DECAY_GRADIENT ? most * width : width], ys[DECAY_GRADIENT ? most * width : width];
  const auto load = [&](const void* from, std::int64_t t, int i)
                        HWY_ATTR { return hn::LoadU(tag, items<T>(from) + t * p.stride + first + i * N); };
  const auto store = [&](Vector<T> x, void* to, std::int64_t t, int i)
                         HWY_ATTR { hn::StoreU(x, tag, items<T>(to) + t * p.stride + first + i * N); };
  const auto times_decay = [&](std::int64_t t, int i, Vector<T> x) HWY_ATTR {
    if constexpr (KIND == Decay::none) return x;
    else if constexpr (KIND == Decay::scalar) return hn::Mul(hn::Set(tag, items<T>(p.decay)[t]), x);
    else return hn::Mul(load(p.decay, t, i), x);
  };
  const auto keep = [&](T* to, std::int64_t s, int i, Vector<T> x) HWY_ATTR {
    if constexpr (DECAY_GRADIENT) hn::Store(x, tag, to + s * width + i * N);
  };
  if constexpr (DECAY_GRADIENT)
    for (std::int64_t s = 0; s < rows; ++s)
      ATTN_UNROLL_FOR (int i = 0; i < V; ++i) store(hn::Zero(tag), p.log_decay_gradient, s, i);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T *w = items<T>(p.by_output) + r * most, *m = DELTA ? items<T>(p.by_memory) + r * most : nullptr;
    Vector<T> x[V], y[V], z[V];
    ATTN_UNROLL_FOR (int i = 0; i < V; ++i) {
      x[i] = load(p.first_output, r, i);
      y[i] = DELTA ? load(p.first_memory, r, i) : hn::Zero(tag);
      z[i] = load(p.last_update, r, i);
    }
    for (std::int64_t s = 0; s <= r; ++s) {
      const auto by_output = hn::Set(tag, w[s]), by_memory = DELTA ? hn::Set(tag, m[s]) : hn::Zero(tag);
      ATTN_UNROLL_FOR (int i = 0; i < V; ++i) {
        const auto k = load(p.k, s, i);
        keep(xs, s, i, x[i]);
        x[i] = hn::MulAdd(k, by_output, times_decay(s, i, x[i]));
        if constexpr (DELTA) {
          keep(ys, s, i, y[i]);
          if (s < r) y[i] = hn::MulAdd(k, by_memory, times_decay(s, i, y[i]));
        }
      }
    }
    for (std::int64_t s = rows - 1; s > r; --s) {
      const auto by_output = hn::Set(tag, items<T>(p.by_output)[s * most + r]),
                 by_memory = DELTA ? hn::Set(tag, items<T>(p.by_memory)[s * most + r]) : hn::Zero(tag);
      ATTN_UNROLL_FOR (int i = 0; i < V; ++i) {
        z[i] = hn::MulAdd(load(p.q, s, i), by_output, z[i]);
        if constexpr (DELTA) z[i] = hn::MulAdd(load(p.k, s, i), by_memory, z[i]);
        z[i] = times_decay(s, i, z[i]);
      }
    }
    const auto own = hn::Set(tag, w[r]);
    Vector<T> product[V], k[V], q[V];
    ATTN_UNROLL_FOR (int i = 0; i < V; ++i) {
      k[i] = load(p.k, r, i);
      q[i] = load(p.q, r, i);
      z[i] = hn::MulAdd(q[i], own, z[i]);
      if constexpr (DELTA) z[i] = hn::Add(z[i], times_decay(r, i, y[i]));
      store(x[i], p.q_gradient, r, i);
      store(z[i], p.k_gradient, r, i);
      product[i] = hn::Set(tag, T(1));
    }
    if constexpr (DECAY_GRADIENT)
      for (std::int64_t s = r; s >= 0; --s)
        ATTN_UNROLL_FOR (int i = 0; i < V; ++i) {
          product[i] = times_decay(s, i, product[i]);
          auto sum = load(p.log_decay_gradient, s, i);
          sum = hn::MulAdd(q[i], hn::Mul(product[i], hn::Load(tag, xs + s * width + i * N)), sum);
          if constexpr (DELTA) sum = hn::MulAdd(k[i], hn::Mul(product[i], hn::Load(tag, ys + s * width + i * N)), sum);
          store(sum, p.log_decay_gradient, s, i);
        }
  }
  if constexpr (DECAY_GRADIENT) {
    ATTN_UNROLL_FOR (int i = 0; i < V; ++i) {
      auto x = load(p.ends, 0, i);
      for (std::int64_t s = 0; s < rows; ++s) {
        keep(xs, s, i, x);
        x = hn::MulAdd(load(p.k, s, i), load(p.last_update, s, i), times_decay(s, i, x));
      }
      auto product = hn::Set(tag, T(1));
      for (std::int64_t s = rows; s-- > 0;) {
        product = times_decay(s, i, product);
        store(hn::MulAdd(product, hn::Load(tag, xs + s * width + i * N), load(p.log_decay_gradient, s, i)),
              p.log_decay_gradient, s, i);
      }
    }
  }
}

template <typename T>
void chunk_gradient_of(const ChunkGradient& p) {
  constexpr int N = lanes<T>, most = N >= recurrent_lanes ? 1 : 2;
  with_decay(p.decay_kind, [&](auto kind) {
    constexpr Decay KIND = decltype(kind)::value;
    for (std::int64_t first = 0; first < p.stride; first += most * N) {
      if (KIND == Decay::none || p.log_decay_gradient == nullptr)
        p.by_memory != nullptr ? chunk_tile<T, most, KIND, true, false>(p, first)
                               : chunk_tile<T, most, KIND, false, false>(p, first);
      else
        p.by_memory != nullptr ? chunk_tile<T, most, KIND, true, true>(p, first)
                               : chunk_tile<T, most, KIND, false, true>(p, first);
    }
  });
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
