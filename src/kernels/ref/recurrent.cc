// src/kernels/ref/recurrent.cc: linear attention with a state, forward and backward, and the causal convolution, in
// the order of docs/numerics.md section 9.
#include "kernels/ref/math.h"
#include "kernels/ref/table.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {
namespace {

template <typename T>
const T* as(const void* x) {
  return static_cast<const T*>(x);
}
template <typename T>
T* as(void* x) {
  return static_cast<T*>(x);
}

/// Multiplies x by the decay of row t and channel d, if there is one.
template <typename T>
T decayed(Decay kind, const void* decay, std::int64_t stride, std::int64_t t, std::int64_t d, T x) {
  if (kind == Decay::none) return x;
  return as<T>(decay)[kind == Decay::scalar ? t : t * stride + d] * x;
}

template <typename T>
void forward_rows(const ForwardRows& p) {
  for (std::int64_t c = 0; c < p.columns; ++c) {
    T* state = as<T>(p.state) + c;
    for (std::int64_t t = 0; t < p.rows; ++t) {
      const std::int64_t at = t * p.columns + c, row = t * p.key_stride;
      T u = as<T>(p.v)[at];
      if (p.beta != nullptr) {  // S^T k of the decayed state, and v minus it
        T memory = 0;
        for (std::int64_t d = 0; d < p.dim; ++d)
          memory = fma(state[d * p.columns], as<T>(p.decayed_k)[row + d], memory);
        u = u - memory;
        if (p.error != nullptr) as<T>(p.error)[at] = u;
        u = as<T>(p.beta)[t] * u;
      }
      T output = 0;
      for (std::int64_t d = 0; d < p.dim; ++d) {
        T& s = state[d * p.columns];
        s = fma(as<T>(p.k)[row + d], u, decayed(p.decay_kind, p.decay, p.key_stride, t, d, s));
        if (p.output != nullptr) output = fma(s, as<T>(p.q)[row + d], output);
      }
      if (p.output != nullptr) as<T>(p.output)[at] = canonical(output + T(0));
    }
  }
}

template <typename T>
void reverse_rows(const ReverseRows& p) {
  for (std::int64_t c = 0; c < p.columns; ++c) {
    T* gradient = as<T>(p.state_gradient) + c;
    for (std::int64_t t = p.rows; t-- > 0;) {
      const std::int64_t at = t * p.columns + c, row = t * p.key_stride;
      T du = 0;
      for (std::int64_t d = 0; d < p.dim; ++d) {
        T& g = gradient[d * p.columns];
        g = fma(as<T>(p.q)[row + d], as<T>(p.output_gradient)[at], g);
        du = fma(g, as<T>(p.k)[row + d], du);
      }
      as<T>(p.update_gradient)[at] = du;
      const T dv = p.beta != nullptr ? as<T>(p.beta)[t] * du : du;
      for (std::int64_t d = 0; d < p.dim; ++d) {
        T& g = gradient[d * p.columns];
        if (p.beta != nullptr) g = fma(-as<T>(p.k)[row + d], dv, g);
        g = decayed(p.decay_kind, p.decay, p.key_stride, t, d, g);
      }
    }
  }
}

/// Computes one key channel.
template <typename T>
void chunk_channel(const ChunkGradient& p, std::int64_t d) {
  constexpr std::int64_t most = recurrent_chunk;
  const auto k = [&](std::int64_t t) { return as<T>(p.k)[t * p.stride + d]; };
  const auto q = [&](std::int64_t t) { return as<T>(p.q)[t * p.stride + d]; };
  const auto times_decay = [&](std::int64_t t, T x) { return decayed(p.decay_kind, p.decay, p.stride, t, d, x); };
  const auto w = [&](std::int64_t t, std::int64_t s) { return as<T>(p.by_output)[t * most + s]; };
  const auto m = [&](std::int64_t t, std::int64_t s) { return as<T>(p.by_memory)[t * most + s]; };
  const bool delta = p.by_memory != nullptr;
  T x[most + 1], y[most + 1], sums[most] = {};
  for (std::int64_t r = 0; r < p.rows; ++r) {
    // S_s do_r and S_s dm_r, for the states before each row s and after row r
    x[0] = as<T>(p.first_output)[r * p.stride + d];
    for (std::int64_t s = 0; s <= r; ++s) x[s + 1] = fma(k(s), w(r, s), times_decay(s, x[s]));
    as<T>(p.q_gradient)[r * p.stride + d] = x[r + 1];
    if (delta) {
      y[0] = as<T>(p.first_memory)[r * p.stride + d];
      for (std::int64_t s = 0; s < r; ++s) y[s + 1] = fma(k(s), m(r, s), times_decay(s, y[s]));
    }
    // dS_r u_r, from the gradient of the state after the last row
    T z = as<T>(p.last_update)[r * p.stride + d];
    for (std::int64_t s = p.rows - 1; s > r; --s) {
      z = fma(q(s), w(s, r), z);
      if (delta) z = fma(k(s), m(s, r), z);
      z = times_decay(s, z);
    }
    z = fma(q(r), w(r, r), z);
    if (delta) z = z + times_decay(r, y[r]);
    as<T>(p.k_gradient)[r * p.stride + d] = z;
    if (p.log_decay_gradient == nullptr) continue;
    T product = 1;  // of the decays of rows s to r
    for (std::int64_t s = r; s >= 0; --s) {
      product = times_decay(s, product);
      sums[s] = fma(q(r), product * x[s], sums[s]);
      if (delta) sums[s] = fma(k(r), product * y[s], sums[s]);
    }
  }
  if (p.log_decay_gradient == nullptr) return;
  // the part that flows through the state after the last row
  x[0] = as<T>(p.ends)[d];
  for (std::int64_t s = 0; s + 1 < p.rows; ++s)
    x[s + 1] = fma(k(s), as<T>(p.last_update)[s * p.stride + d], times_decay(s, x[s]));
  T product = 1;
  for (std::int64_t s = p.rows; s-- > 0;) {
    product = times_decay(s, product);
    as<T>(p.log_decay_gradient)[s * p.stride + d] = fma(product, x[s], sums[s]);
  }
}

template <typename T>
void convolved(const ConvolvedRow& p) {
  for (std::int64_t i = 0; i < p.n; ++i) {
    const std::int64_t own = p.weight_stride == 0 ? 0 : i;
    T sum = p.bias != nullptr ? as<T>(p.bias)[own] : T(0);
    for (std::int64_t j = 0; j < p.taps; ++j)
      sum = fma(as<T>(p.weight)[p.weight_stride == 0 ? j : j * p.weight_stride + i], as<T>(p.x[j])[i], sum);
    as<T>(p.y)[i] = canonical(sum + T(0));
  }
}

void forward(const ForwardRows& rows) noexcept {
  rows.element == Element::f64 ? forward_rows<double>(rows) : forward_rows<float>(rows);
}
void reverse(const ReverseRows& rows) noexcept {
  rows.element == Element::f64 ? reverse_rows<double>(rows) : reverse_rows<float>(rows);
}
void chunk_gradient(const ChunkGradient& chunk) noexcept {
  for (std::int64_t d = 0; d < chunk.stride; ++d)
    chunk.element == Element::f64 ? chunk_channel<double>(chunk, d) : chunk_channel<float>(chunk, d);
}
void convolve(const ConvolvedRow& row) noexcept {
  row.element == Element::f64 ? convolved<double>(row) : convolved<float>(row);
}

}  // namespace

const RecurrentKernels recurrent_kernels = {"ref", forward, reverse, chunk_gradient, convolve};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
