// src/tensor/iterate.h: the one way to walk several tensors of one shape, whatever their strides.
#pragma once
#include <attn/tensor.h>

#include <span>

namespace attn {

inline constexpr int max_operands = 4;

/// One tensor on the walk: its first element and a stride in bytes for each dim of the common shape.
struct Operand {
  char* data = nullptr;
  Dims strides;
};

/// `tensor` broadcast to `shape` (stride 0 along the dims it lacks); the shapes are known to fit.
Operand operand(const Tensor& tensor, const Dims& shape);

/// n elements of every operand: data[i] advances by strides[i] bytes.
using InnerLoop = void (*)(void* context, char* const* data, const std::int64_t* strides, std::int64_t n);

/// Calls `loop` for runs that together visit every element once, in row-major order. Dims that are one run in every
/// operand are joined, so contiguous operands of the same shape make a single call.
void iterate(const Dims& shape, std::span<const Operand> operands, InnerLoop loop, void* context);
/// The same in no order, many elements in parts of a fixed size that threads share: for loops whose elements do not
/// meet.
void iterate_in_parts(const Dims& shape, std::span<const Operand> operands, InnerLoop loop, void* context);

/// `loop` as a function pointer and its context.
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
