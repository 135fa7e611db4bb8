// src/tensor/elements.cc: applies an element loop to runs of elements of any dtype and stride.
#include "tensor/elements.h"

#include "tensor/blocks.h"

namespace attn {
namespace {

/// One operand in a run of elements: address, stride in bytes and dtype.
struct Lane {
  char* data;
  std::int64_t stride;
  Dtype dtype;
  bool direct;  // whether the loop can read and write it in place
};

/// Runs the kernel for this operation if it can, and returns whether it did. The kernel needs a contiguous result and
/// first operand, both f32, f64 or bf16; the second operand must be contiguous elements of this dtype, or one number.
bool run_kernel(kernels::Binary op, const Lane* lanes, std::int64_t n) {
  const Dtype dtype = lanes[0].dtype;
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const auto& table = kernels::row_kernels();
  if (table.binary == nullptr || !is_floating(dtype) || dtype == Dtype::f16 || lanes[1].dtype != dtype) return false;
  const bool one = lanes[2].stride == 0, neighbours = lanes[2].dtype == dtype && lanes[2].stride == size;
  if (lanes[0].stride != size || lanes[1].stride != size || !(one || neighbours)) return false;
  double number = 0;
  if (one && dtype == Dtype::f64) {
    number = *reinterpret_cast<const double*>(lanes[2].data);
  } else if (one) {
    float single;
    read_block(lanes[2].dtype, lanes[2].data, 0, &single, 1);
    number = single;
  }
  const auto element = dtype == Dtype::f64    ? kernels::Element::f64
                       : dtype == Dtype::bf16 ? kernels::Element::bf16
                                              : kernels::Element::f32;
  table.binary(op, element, lanes[1].data, one ? nullptr : lanes[2].data, number, lanes[0].data, n);
  return true;
}

void run(const Elements& elements, const Lane* lanes, std::size_t count, std::int64_t n) {
  if (elements.kernel && run_kernel(*elements.kernel, lanes, n)) return;
  const void* x[max_operands] = {};
  bool direct = true;
  for (std::size_t i = 0; i < count; ++i) direct &= lanes[i].direct;
  if (direct) {
    for (std::size_t i = 1; i < count; ++i) x[i - 1] = lanes[i].data;
    return elements.loop(elements.function, x, lanes[0].data, n);
  }
  alignas(64) std::byte buffers[max_operands][block_elements * 8];
  const auto read = elements.words ? read_words : read_block;
  const auto write = elements.words ? write_words : write_block;
  in_blocks(n, [&](std::int64_t start, std::int64_t length) {
    for (std::size_t i = 1; i < count; ++i) {
      const Lane& lane = lanes[i];
      x[i - 1] = lane.direct ? lane.data + start * lane.stride : static_cast<void*>(buffers[i]);
      if (!lane.direct && (start == 0 || lane.stride != 0))
        read(lane.dtype, lane.data + start * lane.stride, lane.stride, buffers[i], length);
    }
    char* const to = lanes[0].data + start * lanes[0].stride;
    elements.loop(elements.function, x, lanes[0].direct ? static_cast<void*>(to) : buffers[0], length);
    if (!lanes[0].direct) write(lanes[0].dtype, buffers[0], to, lanes[0].stride, length);
  });
}

}  // namespace

void compute_elements(const Elements& elements, const Tensor& target, std::initializer_list<const Tensor*> inputs) {
  const Dims& sizes = target.sizes();
  std::array<Operand, max_operands> operands{operand(target, sizes)};
  std::array<Lane, max_operands> lanes{Lane{nullptr, 0, target.dtype(), false}};
  std::size_t count = 1;
  for (const Tensor* input : inputs) {
    operands[count] = operand(*input, sizes);
    lanes[count++].dtype = input->dtype();
  }
  auto loop = [&elements, &lanes, count](char* const* data, const std::int64_t* strides, std::int64_t n) {
    std::array<Lane, max_operands> here;
    for (std::size_t i = 0; i < count; ++i) {
      const Dtype dtype = lanes[i].dtype;
      here[i] = {
          data[i], strides[i], dtype,
          strides[i] == static_cast<std::int64_t>(size_of(dtype)) && (elements.words || compute_dtype(dtype) == dtype)};
    }
    run(elements, here.data(), count, n);
  };
  iterate_in_parts(sizes, std::span(operands.data(), count), inner_loop(loop), &loop);
}

}  // namespace attn
