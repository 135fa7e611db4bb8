// src/tensor/allclose.cc: checks whether two tensors are close, or the same bit for bit.
#include "tensor/build.h"
#include "tensor/element.h"

#include <attn/ops.h>

#include <cmath>
#include <cstring>

namespace attn {

bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  if (a.dtype() != b.dtype())
    throw DtypeError("allclose: a is " + std::string(name_of(a.dtype())) + ", b is " + std::string(name_of(b.dtype())) +
                     "; they must be the same");
  const Dims shape = broadcast_shapes("allclose", a.sizes(), b.sizes());
  const Tensor x = a.detach().expand(shape).to(Dtype::f64).contiguous(),
               y = b.detach().expand(shape).to(Dtype::f64).contiguous();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double left = x.data<double>()[i], right = y.data<double>()[i];
    const bool close =
        left == right ||
        (std::isfinite(left) && std::isfinite(right) && std::abs(left - right) <= atol + rtol * std::abs(right)) ||
        (equal_nan && std::isnan(left) && std::isnan(right));
    if (!close) return false;
  }
  return true;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (!(a.sizes() == b.sizes()) || a.dtype() != b.dtype()) return false;
  const Tensor left = a.detach().contiguous(), right = b.detach().contiguous();
  return with_type(a.dtype(), [&]<typename T>(Type<T>) {
    const T* x = static_cast<const T*>(left.data());
    const T* y = static_cast<const T*>(right.data());
    for (std::int64_t i = 0; i < left.numel(); ++i) {
      if (std::memcmp(x + i, y + i, sizeof(T)) == 0) continue;
      if constexpr (!std::is_integral_v<T>) {
        if (std::isnan(widen(x[i])) && std::isnan(widen(y[i]))) continue;
      }
      return false;
    }
    return true;
  });
}

}  // namespace attn
