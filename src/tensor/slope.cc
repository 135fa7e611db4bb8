// src/tensor/slope.cc: dy times a slope in one pass over memory.
#include "tensor/slope.h"

#include <attn/ops.h>

#include "tensor/unary.h"

namespace attn {
namespace {

/// A whole block of neighbours, in a count the compiler knows.
template <typename T>
void whole_block(SlopeOfBlock<T> slope, const T* dy, const T* x, T* result) {
  alignas(64) T y[Block<T>::most];
  slope(x, y, Block<T>::most);
  for (std::int64_t i = 0; i < Block<T>::most; ++i) result[i] = dy[i] * y[i];
}

template <typename T>
void slope_run(SlopeOfBlock<Compute<T>> slope, char* const* data, const std::int64_t* strides, std::int64_t n) {
  using C = Compute<T>;
  C x[Block<C>::most], y[Block<C>::most];
  const bool neighbours = std::is_same_v<T, C> && std::all_of(strides, strides + 3, [](std::int64_t s) { return s == sizeof(T); });
  for (std::int64_t start = 0; start < n; start += Block<C>::most) {
    if constexpr (std::is_same_v<T, C>) {
      if (neighbours && n - start >= Block<C>::most) {
        const auto from = [&](int operand) { return reinterpret_cast<T*>(data[operand]) + start; };
        whole_block<T>(slope, from(1), from(2), from(0));
        continue;
      }
    }
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
