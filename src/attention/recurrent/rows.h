// src/attention/recurrent/rows.h: reads rows of a call of linear attention into arrays of the type of the computation,
// and writes such arrays back.
#pragma once
#include "attention/recurrent/call.h"
#include "kernels/rows/target.h"
#include "tensor/blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attn {

inline std::int64_t padded_lanes(std::int64_t n) {
  return (n + kernels::recurrent_lanes - 1) / kernels::recurrent_lanes * kernels::recurrent_lanes;
}

inline char* address(const Tensor& x, std::int64_t b, std::int64_t h, std::int64_t t) {
  return static_cast<char*>(x.data()) +
         (b * x.stride(0) + h * x.stride(1) + t * x.stride(2)) * static_cast<std::int64_t>(size_of(x.dtype()));
}
inline std::int64_t step_bytes(const Tensor& x, int d) {
  return x.stride(d) * static_cast<std::int64_t>(size_of(x.dtype()));
}

/// Reads n adjacent elements; writes them, rounded once. Half floats go in blocks that the conversion takes.
template <typename T>
void read_items(const Tensor& x, const char* from, T* to, std::int64_t n) {
  read_block(x.dtype(), from, static_cast<std::int64_t>(size_of(x.dtype())), to, n);
}
template <typename T>
void write_items(const Tensor& x, const T* from, char* to, std::int64_t n) {
  write_block(x.dtype(), from, to, static_cast<std::int64_t>(size_of(x.dtype())), n);
}

/// Makes zeros +0 and NaN the canonical one.
template <typename T>
void make_canonical(T* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] != x[i] ? std::numeric_limits<T>::quiet_NaN() : x[i] + T(0);
}

template <typename T>
T sum_of(const T* x, std::int64_t n) {
  T sum = 0;
  kernels::row_kernels().row(kernels::RowOp::sum, sizeof(T) == 8 ? kernels::Element::f64 : kernels::Element::f32, x, 1,
                             &sum, 1, n);
  return sum;
}

constexpr double l2norm_eps = 1e-6;

/// 1 / sqrt(sum of squares + eps) of a row.
template <typename T>
T inverse_norm(const T* x, std::int64_t n) {
  T squares = 0;
  kernels::row_kernels().row(kernels::RowOp::sum_of_squares,
                             sizeof(T) == 8 ? kernels::Element::f64 : kernels::Element::f32, x, 1, &squares, 1, n);
  return T(1) / std::sqrt(squares + static_cast<T>(l2norm_eps));
}

/// What up to `most` rows of a head, at most 64, share for all columns of its state: arrays of [most, stride], or
/// [most].
template <typename T>
struct HeadRows {
  T *k, *q, *decay, *decayed_k, *beta;
  std::int64_t stride;

  static std::int64_t items(const RecurrentCall& call, std::int64_t most = kernels::recurrent_chunk) {
    return most * (4 * padded_lanes(call.dim) + 1);
  }
  /// Takes `items` of memory, which is set to 0.
  HeadRows(const RecurrentCall& call, T* memory, std::int64_t most = kernels::recurrent_chunk)
      : stride(padded_lanes(call.dim)) {
    const std::int64_t rows = most * stride;
    std::fill(memory, memory + items(call, most), T(0));
    k = memory;
    q = k + rows;
    decay = q + rows;
    decayed_k = decay + rows;
    beta = decayed_k + rows;
  }

  /// Reads n rows of head h of v, from row `first` of the batch item on.
  void read(const RecurrentCall& call, std::int64_t item, std::int64_t h, std::int64_t first, std::int64_t n) {
    const std::int64_t key_head = h / call.group(), dim = call.dim;
    const T scale = static_cast<T>(call.scale);
    for (std::int64_t t = 0; t < n; ++t) {
      T *key = k + t * stride, *query = q + t * stride;
      read_items(call.k, address(call.k, item, key_head, first + t), key, dim);
      read_items(call.q, address(call.q, item, key_head, first + t), query, dim);
      if (call.l2norm) {
        const T by_k = inverse_norm(key, dim), by_q = inverse_norm(query, dim);
        for (std::int64_t d = 0; d < dim; ++d) {
          key[d] = key[d] * by_k;
          query[d] = query[d] * by_q;
        }
      }
      for (std::int64_t d = 0; d < dim; ++d) query[d] = query[d] * scale;
    }
    read_decay(call, item, h, first, n);
    if (!call.has_delta()) return;
    read_block(call.beta.dtype(), address(call.beta, item, h, first), step_bytes(call.beta, 2), beta, n);
    for (std::int64_t t = 0; t < n; ++t) {
      const T *key = k + t * stride, *by_channel = decay + t * stride;
      T* to = decayed_k + t * stride;
      if (call.decay == kernels::Decay::none) std::copy(key, key + dim, to);
      else if (call.decay == kernels::Decay::scalar)
        for (std::int64_t d = 0; d < dim; ++d) to[d] = decay[t] * key[d];
      else
        for (std::int64_t d = 0; d < dim; ++d) to[d] = by_channel[d] * key[d];
    }
  }

  void fill(const RecurrentCall& call, kernels::StateRows& rows, std::int64_t n, std::int64_t columns) const {
    rows.element = call.element();
    rows.decay_kind = call.decay;
    rows.rows = n;
    rows.dim = call.dim;
    rows.columns = columns;
    rows.key_stride = stride;
    rows.k = k;
    rows.q = q;
    rows.decay = decay;
    rows.beta = call.has_delta() ? beta : nullptr;
  }

 private:
  void read_decay(const RecurrentCall& call, std::int64_t item, std::int64_t h, std::int64_t first, std::int64_t n) {
    const auto& table = kernels::row_kernels();
    if (call.decay == kernels::Decay::scalar) {
      read_block(call.g.dtype(), address(call.g, item, h, first), step_bytes(call.g, 2), decay, n);
      table.unary(kernels::Unary::exp, call.element(), decay, decay, n);
    }
    if (call.decay == kernels::Decay::channel)
      for (std::int64_t t = 0; t < n; ++t) {
        T* to = decay + t * stride;
        read_items(call.g, address(call.g, item, h, first + t), to, call.dim);
        table.unary(kernels::Unary::exp, call.element(), to, to, call.dim);
      }
  }
};

/// Reads rows of `count` columns of values from column `c` on into [n, columns]; the columns after them are unchanged.
template <typename T>
void read_values(const Tensor& x, std::int64_t item, std::int64_t h, std::int64_t first, std::int64_t n, std::int64_t c,
                 std::int64_t count, T* to, std::int64_t columns) {
  const auto size = static_cast<std::int64_t>(size_of(x.dtype()));
  for (std::int64_t t = 0; t < n; ++t)
    read_items(x, address(x, item, h, first + t) + c * size, to + t * columns, count);
}

/// How the columns of the states are divided among threads: no bit depends on it.
struct ColumnSlices {
  std::int64_t width, count;
  ColumnSlices(std::int64_t value_dim, std::int64_t heads);
};

}  // namespace attn
