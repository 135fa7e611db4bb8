// src/tensor/random_dropout.cc: implements dropout: sets some elements to 0 and multiplies the others by 1 / (1 - p).
#include <attn/ops.h>

#include "runtime/format.h"

#include "runtime/floating_point.h"
#include "tensor/random_fill.h"

namespace attn {
namespace {

/// Draws 0 or 1 / (1 - p) for each element, in the memory order of x. The value is rounded to x's dtype, so that the
/// product with x rounds only once more.
Tensor noise(const Tensor& x, double p, Generator& generator) {
  if (p == 1) return zeros(x.sizes(), x.dtype());
  const runtime::DefaultFloatingPoint floating_point;
  const Tensor keep = empty_in_order_of(x);
  with_type(x.dtype(), [&]<typename T>(Type<T>) {
    if constexpr (std::is_floating_point_v<Compute<T>>) {  // drawn as `bernoulli_` does
      const T kept = convert<T>(1 / static_cast<Compute<T>>(1 - p)), dropped = convert<T>(0);
      T* const data = keep.data<T>();
      for (std::int64_t i = 0, n = keep.numel(); i < n; ++i) data[i] = generator.uniform_f64() < 1 - p ? kept : dropped;
    }
  });
  return keep;
}

}  // namespace

Tensor dropout(const Tensor& x, double p, bool training, Generator& generator) {
  check_floating("dropout", x);
  if (!(p >= 0 && p <= 1)) throw ValueError(runtime::format("dropout: p is {}; it must be from 0 to 1", p));
  if (!training || p == 0) return x;
  const Tensor factors = noise(x, p, generator);
  return record("MulBackward0", mul(x.detach(), factors),
                wrt(x, [](auto& dy, auto& factors) { return dy * factors; }, factors));
}

Tensor dropout(const Tensor& x, double p, bool training) { return dropout(x, p, training, LockedGenerator()); }

}  // namespace attn
