// src/tensor/binary.cc: what operations on one and two operands share, whatever their element function is.
#include "tensor/unary.h"

namespace attn {

Tensor compute_into(const char* function, const Tensor& out, const Dims& sizes, Dtype dtype, std::initializer_list<const Tensor*> inputs, WriteInto write,
                    void* context) {
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

void binary_into(const Tensor& target, const Tensor& a, const Tensor& b, InnerLoop loop, void* element) {
  const Dims& sizes = target.sizes();
  const Operand operands[] = {operand(target, sizes), operand(a, sizes), operand(b, sizes)};
  iterate_in_parts(sizes, operands, loop, element);
}

Tensor binary(const char* function, const Tensor& a, const Tensor& b, Dtype result, const Tensor& out, InnerLoop loop, void* element) {
  return compute_into(function, out, broadcast_shapes(function, a.sizes(), b.sizes()), result, {&a, &b},
                      [&](const Tensor& target) { binary_into(target, a, b, loop, element); });
}

Tensor unary(const char* function, const Tensor& x, Dtype result, const Tensor& out, InnerLoop loop, void* element) {
  return compute_into(function, out, x.sizes(), result, {&x}, [&](const Tensor& target) {
    const Operand operands[] = {operand(target, x.sizes()), operand(x, x.sizes())};
    iterate_in_parts(x.sizes(), operands, loop, element);
  });
}

}  // namespace attn
