// src/tensor/iterate.h: iterates over several tensors of one shape with any strides, element by element.
#pragma once
#include <attn/tensor.h>

#include <span>

namespace attn {

inline constexpr int max_operands = 4;

/// One tensor of an iteration: its first element, and a stride in bytes for each dim of the common shape.
struct Operand {
  char* data = nullptr;
  Dims strides;
};

/// Returns `tensor` broadcast to `shape` (stride 0 along the dims that are broadcast). The shapes must fit; this is not
/// checked.
Operand operand(const Tensor& tensor, const Dims& shape);

/// An inner loop processes n elements of every operand: data[i] advances by strides[i] bytes from one element to the
/// next.
using InnerLoop = void (*)(void* context, char* const* data, const std::int64_t* strides, std::int64_t n);

/// Calls `loop` for runs that together visit every element once, in row-major order. Dims that form one run in every
/// operand are joined, so contiguous operands of the same shape need a single call.
void iterate(const Dims& shape, std::span<const Operand> operands, InnerLoop loop, void* context);
/// Calls `loop` in any order, for loops whose elements are independent. Many elements are divided into parts, which
/// threads share; the division depends only on shape and strides.
void iterate_in_parts(const Dims& shape, std::span<const Operand> operands, InnerLoop loop, void* context);

/// Returns `loop` as a function pointer; the loop itself is the context.
template <typename F>
InnerLoop inner_loop(F&) {
  return [](void* context, char* const* data, const std::int64_t* strides, std::int64_t n) {
    (*static_cast<F*>(context))(data, strides, n);
  };
}
template <typename F>
void iterate(const Dims& shape, std::initializer_list<Operand> operands, F&& loop) {
  iterate(shape, std::span(operands.begin(), operands.size()), inner_loop(loop),
          const_cast<void*>(static_cast<const void*>(&loop)));
}
template <typename F>
void iterate_in_parts(const Dims& shape, std::initializer_list<Operand> operands, F&& loop) {
  iterate_in_parts(shape, std::span(operands.begin(), operands.size()), inner_loop(loop),
                   const_cast<void*>(static_cast<const void*>(&loop)));
}

}  // namespace attn
