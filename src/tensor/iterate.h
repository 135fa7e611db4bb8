// src/tensor/iterate.h: the one way to walk several tensors of one shape, whatever their strides.
#pragma once
#include <attn/tensor.h>

#include <span>
#include <type_traits>

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

/// Calls `loop` for runs that together visit every element once. Dims that are one run in every operand are joined, so
/// contiguous operands of the same shape make a single call.
void iterate(const Dims& shape, std::span<const Operand> operands, InnerLoop loop, void* context);

template <typename F>
void iterate(const Dims& shape, std::initializer_list<Operand> operands, F&& loop) {
  using Function = std::remove_reference_t<F>;
  iterate(
      shape, std::span<const Operand>(operands.begin(), operands.size()),
      [](void* context, char* const* data, const std::int64_t* strides, std::int64_t n) {
        (*static_cast<Function*>(context))(data, strides, n);
      },
      const_cast<void*>(static_cast<const void*>(&loop)));
}

}  // namespace attn
