// src/tensor/iterate.cc: joining dims, then an odometer over what is left.
#include "tensor/iterate.h"

#include <array>

namespace attn {
namespace {

using Strides = std::array<std::int64_t, max_operands>;

/// The walk with the dims of size 1 dropped and neighbours joined; dim 0 is the innermost.
struct Walk {
  int dims = 0;
  std::array<std::int64_t, max_rank> sizes{};
  std::array<Strides, max_rank> strides{};

  void add(std::int64_t size, const Strides& stride, std::size_t operands) {
    if (size == 1) return;
    if (dims > 0) {
      bool one_run = true;
      for (std::size_t i = 0; i < operands; ++i) one_run &= stride[i] == strides[dims - 1][i] * sizes[dims - 1];
      if (one_run) {
        sizes[dims - 1] *= size;
        return;
      }
    }
    sizes[dims] = size;
    strides[dims++] = stride;
  }
};

}  // namespace

Operand operand(const Tensor& tensor, const Dims& shape) {
  Operand result{static_cast<char*>(tensor.data()), shape};
  const int shift = shape.size() - tensor.dim();
  const auto bytes = static_cast<std::int64_t>(size_of(tensor.dtype()));
  for (int i = 0; i < shape.size(); ++i) {
    const bool broadcast = i < shift || (tensor.sizes()[i - shift] == 1 && shape[i] != 1);
    result.strides[i] = broadcast ? 0 : tensor.strides()[i - shift] * bytes;
  }
  return result;
}

void iterate(const Dims& shape, std::span<const Operand> operands, InnerLoop loop, void* context) {
  if (shape.product() == 0) return;
  Walk walk;
  for (int d = shape.size() - 1; d >= 0; --d) {
    Strides stride{};
    for (std::size_t i = 0; i < operands.size(); ++i) stride[i] = operands[i].strides[d];
    walk.add(shape[d], stride, operands.size());
  }
  std::array<char*, max_operands> data{};
  for (std::size_t i = 0; i < operands.size(); ++i) data[i] = operands[i].data;
  if (walk.dims == 0) return loop(context, data.data(), walk.strides[0].data(), 1);

  std::array<std::int64_t, max_rank> index{};
  while (true) {
    loop(context, data.data(), walk.strides[0].data(), walk.sizes[0]);
    int d = 1;
    for (; d < walk.dims; ++d) {
      for (std::size_t i = 0; i < operands.size(); ++i) data[i] += walk.strides[d][i];
      if (++index[d] < walk.sizes[d]) break;
      for (std::size_t i = 0; i < operands.size(); ++i) data[i] -= walk.strides[d][i] * walk.sizes[d];
      index[d] = 0;
    }
    if (d >= walk.dims) return;
  }
}

}  // namespace attn
