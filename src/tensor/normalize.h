// src/tensor/normalize.h: declares what layer_norm and rms_norm share: the loop over rows of contiguous elements, and
// the gradients in one pass over the rows.
#pragma once
#include <attn/error.h>
#include "runtime/format.h"

#include "runtime/thread_scratch.h"
#include "tensor/binary.h"
#include "tensor/blocks.h"
#include "tensor/node.h"
#include "tensor/rows.h"

#include <limits>

namespace attn {

inline bool is_half_dtype(Dtype dtype) { return dtype != compute_dtype(dtype); }
inline const void* data_or_null(const Tensor& x) { return x.defined() ? x.data() : nullptr; }

inline void check_eps(const char* function, double eps) {
  if (!(eps >= 0 && eps < std::numeric_limits<double>::infinity()))
    throw ValueError(runtime::format("{}: eps is {}; it must be 0 or more, and finite", function, eps));
}

/// Returns whether the results of x are too large for the caches. Always false for half floats, which go through a
/// buffer that stays in the cache.
inline bool goes_to_memory(const Tensor& x) {
  return !is_half_dtype(x.dtype()) && x.numel() * static_cast<std::int64_t>(size_of(x.dtype())) >= streamed_bytes;
}

/// Calls norm(row of x, row of the result) for each row of n elements in the type of the computation; both may be the
/// same memory. Half floats are converted to a row of f32. Weight and bias, if defined, are read inside `norm`.
template <typename F>
Tensor normalized(const char* function, const Tensor& given, std::int64_t n, std::array<Tensor, 2> affine,
                  const Tensor& out, F&& norm) {
  const Tensor x = given.detach().contiguous();
  const std::int64_t rows = n == 0 ? 0 : x.numel() / n;
  const auto write = [&](const Tensor& to) {
    parallel_rows(rows, n, [&](std::int64_t row) {
      if (!is_half_dtype(x.dtype())) return norm(advance(x, row * n), advance(to, row * n));
      auto* const wide = static_cast<float*>(runtime::thread_scratch(static_cast<std::size_t>(n) * sizeof(float)));
      read_halves(x.dtype(), advance(x, row * n), wide, n);
      norm(wide, wide);
      write_halves(x.dtype(), wide, advance(to, row * n), n);
    });
  };
  for (Tensor& read : affine)
    if (!read.defined()) read = x;
  if (!out.defined() || out.is_contiguous())
    return compute_into(function, out, x.sizes(), x.dtype(), {&x, &affine[0], &affine[1]}, write);
  const Tensor result = empty(x.sizes(), x.dtype());
  write(result);
  return deliver(function, result, out, x.dtype());
}

/// Computes the gradients of a norm from saved x and weight, without a graph: those of x, weight and, if there is one,
/// bias. The last two are sums over the rows.
Gradients norm_gradients(const Backward& at, const Dims& normalized, double eps, bool rms);

}  // namespace attn
