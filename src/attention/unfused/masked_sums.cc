// src/attention/unfused/masked_sums.cc: computes masked_sums.h by matmul where every number is finite, else pair by
// pair.
#include "attention/unfused/masked_sums.h"

#include <attn/ops.h>

#include "runtime/parallel.h"
#include "tensor/record.h"

#include <cmath>

namespace attn {
namespace {

/// Adds visible_sums to `result` pair by pair. All tensors are contiguous.
template <typename T>
void sum_pairs(const Tensor& w, const Tensor& x, const Tensor& masked, const Tensor& result) {
  const std::int64_t rows = w.size(2), keys = w.size(3), width = x.size(3);
  runtime::parallel_for(w.size(0) * w.size(1) * rows, [&](std::int64_t row) {
    const T* from = x.data<T>() + row / rows * keys * width;
    T* to = result.data<T>() + row * width;
    for (std::int64_t j = 0; j < keys; ++j) {
      if (masked.data<bool>()[row * keys + j]) continue;
      const T weight = w.data<T>()[row * keys + j];
      for (std::int64_t d = 0; d < width; ++d) to[d] = std::fma(weight, from[j * width + d], to[d]);
    }
  });
}

}  // namespace

bool all_finite(const Tensor& x) { return sum(x.detach() * 0).item() == 0; }

Tensor visible_sums(const Tensor& w, const Tensor& x, const Tensor& masked) {
  Tensor result;
  if (all_finite(x)) {
    result = matmul(masked_fill(w.detach(), masked, 0), x.detach());
  } else {
    result = zeros({x.size(0), x.size(1), w.size(2), x.size(3)}, x.dtype());
    const auto sum = x.dtype() == Dtype::f64 ? sum_pairs<double> : sum_pairs<float>;
    sum(w.detach().contiguous(), x.detach().contiguous(), masked.contiguous(), result);
  }
  return record("AttentionBackward0", result,
                wrt(
                    w, [](auto& dy, auto& x, auto& masked) { return visible_products(dy, x, masked); }, x, masked),
                wrt(
                    x,
                    [](auto& dy, auto& w, auto& masked) {
                      return visible_sums(w.transpose(-1, -2), dy, masked.transpose(-1, -2));
                    },
                    w, masked));
}

Tensor visible_products(const Tensor& a, const Tensor& b, const Tensor& masked) {
  return record("AttentionBackward0", masked_fill(matmul(a.detach(), b.detach().transpose(-1, -2)), masked, 0),
                wrt(
                    a, [](auto& dy, auto& b, auto& masked) { return visible_sums(dy, b, masked); }, b, masked),
                wrt(
                    b,
                    [](auto& dy, auto& a, auto& masked) {
                      return visible_sums(dy.transpose(-1, -2), a, masked.transpose(-1, -2));
                    },
                    a, masked));
}

}  // namespace attn
