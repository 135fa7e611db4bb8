// src/tensor/slope.cc: dy times a slope in one pass over memory.
#include "tensor/slope.h"

#include <attn/ops.h>

#include "tensor/unary.h"

namespace attn {
namespace {

template <typename T>
void slope_run(SlopeOfBlock<Compute<T>> slope, char* const* data, const std::int64_t* strides, std::int64_t n) {
  using C = Compute<T>;
  C x[Block<C>::most], y[Block<C>::most];
  for (std::int64_t start = 0; start < n; start += Block<C>::most) {
    const std::int64_t count = std::min(Block<C>::most, n - start);
    const auto at = [&](int operand, std::int64_t i) { return reinterpret_cast<T*>(data[operand] + (start + i) * strides[operand]); };
    for (std::int64_t i = 0; i < count; ++i) x[i] = widen(*at(2, i));
    slope(x, y, count);
    for (std::int64_t i = 0; i < count; ++i) *at(0, i) = convert<T>(widen(*at(1, i)) * y[i]);
  }
}

}  // namespace

Tensor times_slope(const Tensor& dy, const Tensor& x, SlopeOfBlock<float> f32, SlopeOfBlock<double> f64) {
  const Tensor result = empty(x.sizes(), x.dtype());
  const auto run = [&]<typename T>(Type<T>) {
    const auto slope = [&] {
      if constexpr (std::is_same_v<T, double>) return f64;
      else return f32;
    }();
    iterate(x.sizes(), {operand(result, x.sizes()), operand(dy, x.sizes()), operand(x, x.sizes())},
            [slope](char* const* data, const std::int64_t* strides, std::int64_t n) {
              run_in_parts<3>(data, strides, n, [slope](char* const* part, const std::int64_t* by, std::int64_t count) { slope_run<T>(slope, part, by, count); });
            });
  };
  switch (x.dtype()) {
    case Dtype::f64: run(Type<double>{}); break;
    case Dtype::bf16: run(Type<bfloat16>{}); break;
    case Dtype::f16: run(Type<float16>{}); break;
    default: run(Type<float>{});
  }
  return result;
}

}  // namespace attn
