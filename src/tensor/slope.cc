// src/tensor/slope.cc: dy times a slope in one pass over memory.
#include "tensor/slope.h"

#include <attn/ops.h>

#include "tensor/blocks.h"
#include "tensor/unary.h"

namespace attn {
namespace {

template <typename T>
void slope_run(kernels::Slope op, char* const* data, const std::int64_t* strides, std::int64_t n) {
  using C = Compute<T>;
  const auto element = std::is_same_v<C, double> ? kernels::Element::f64 : kernels::Element::f32;
  const auto& table = kernels::row_kernels();
  if (!is_half<T> && strides[0] == sizeof(T) && strides[1] == sizeof(T) && strides[2] == sizeof(T)) return table.slope(op, element, data[1], data[2], data[0], n);
  in_blocks(n, [&](std::int64_t start, std::int64_t count) {
    alignas(64) C dy[block_elements], x[block_elements];
    read_block<T>(data[1] + start * strides[1], strides[1], dy, count);
    read_block<T>(data[2] + start * strides[2], strides[2], x, count);
    table.slope(op, element, dy, x, dy, count);
    write_block<T>(dy, data[0] + start * strides[0], strides[0], count);
  });
}

}  // namespace

Tensor times_slope(const Tensor& dy, const Tensor& x, kernels::Slope op) {
  const Tensor result = empty(x.sizes(), x.dtype());
  const auto run = [&]<typename T>(Type<T>) {
    iterate_in_parts(x.sizes(), {operand(result, x.sizes()), operand(dy, x.sizes()), operand(x, x.sizes())},
                     [op](char* const* data, const std::int64_t* strides, std::int64_t n) { slope_run<T>(op, data, strides, n); });
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
