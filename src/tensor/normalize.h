// src/tensor/normalize.h: what layer_norm and rms_norm share: rows of contiguous elements, computed into the memory that is given.
#pragma once
#include "tensor/binary.h"
#include "tensor/rows.h"

namespace attn {

/// Whether the results of x, in its compute type, are too many for the caches.
inline bool goes_to_memory(const Tensor& wide) { return wide.numel() * static_cast<std::int64_t>(size_of(wide.dtype())) >= streamed_bytes; }

/// norm(row of `wide`, row of the result) for each row of n elements; `wide`: x in its compute type, contiguous. Weight and bias, where
/// defined, are read meanwhile.
template <typename F>
Tensor normalized(const char* function, const Tensor& x, const Tensor& wide, std::int64_t n, std::array<Tensor, 2> affine, const Tensor& out, F&& norm) {
  const std::int64_t bytes = n * static_cast<std::int64_t>(size_of(wide.dtype())), rows = n == 0 ? 0 : x.numel() / n;
  const auto write = [&](const Tensor& to) {
    parallel_rows(rows, n, [&](std::int64_t row) { norm(static_cast<const char*>(wide.data()) + row * bytes, static_cast<char*>(to.data()) + row * bytes); });
  };
  for (Tensor& read : affine)
    if (!read.defined()) read = x;
  if (x.dtype() == wide.dtype() && (!out.defined() || out.is_contiguous()))
    return compute_into(function, out, x.sizes(), x.dtype(), {x, affine[0], affine[1]}, write);
  const Tensor result = empty(x.sizes(), wide.dtype());
  write(result);
  return deliver(function, result, out, x.dtype());
}
inline const void* data_or_null(const Tensor& x) { return x.defined() ? x.data() : nullptr; }

}  // namespace attn
