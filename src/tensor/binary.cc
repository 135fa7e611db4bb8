// src/tensor/binary.cc: implements those parts of operations on one and two operands that are the same for every
// element function.
#include "tensor/binary.h"

namespace attn {

Tensor compute_into(const char* function, const Tensor& out, const Dims& sizes, Dtype dtype,
                    std::initializer_list<const Tensor*> inputs, WriteInto write, void* context) {
  Tensor result = result_memory(function, out, sizes, dtype);
  bool aside = false;
  if (out.defined())
    for (const Tensor* input : inputs) aside |= overlaps(out, *input);
  if (!aside) {
    write(context, result);
    return result;
  }
  const Tensor other = result_memory(function, {}, sizes, dtype);
  write(context, other);
  copy_values(result, other);
  return result;
}

Tensor binary(const char* function, const Tensor& a, const Tensor& b, Dtype result, const Tensor& out,
              const Elements& elements) {
  return compute_into(function, out, broadcast_shapes(function, a.sizes(), b.sizes()), result, {&a, &b},
                      [&](const Tensor& target) { compute_elements(elements, target, {&a, &b}); });
}

Tensor unary(const char* function, const Tensor& x, Dtype result, const Tensor& out, const Elements& elements) {
  return compute_into(function, out, x.sizes(), result, {&x},
                      [&](const Tensor& target) { compute_elements(elements, target, {&x}); });
}

}  // namespace attn
