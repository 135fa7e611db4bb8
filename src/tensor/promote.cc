// src/tensor/promote.cc: implements torch's type promotion.
#include "tensor/promote.h"

namespace attn {
namespace {

int width_rank(Dtype dtype) {
  switch (dtype) {
    case Dtype::boolean: return 0;
    case Dtype::i32: return 1;
    case Dtype::i64: return 2;
    case Dtype::bf16:
    case Dtype::f16: return 3;
    case Dtype::f32: return 4;
    default: return 5;
  }
}

int kind_rank(Dtype dtype) { return is_floating(dtype) ? 2 : is_integral(dtype) ? 1 : 0; }

}  // namespace

Dtype promote(Dtype a, Dtype b) {
  if (a == b) return a;
  if (width_rank(a) == width_rank(b)) return Dtype::f32;
  return width_rank(a) > width_rank(b) ? a : b;
}

Dtype result_type(const Tensor& a, const Tensor& b) {
  if ((a.dim() == 0) == (b.dim() == 0)) return promote(a.dtype(), b.dtype());
  const Dtype larger = a.dim() ? a.dtype() : b.dtype();
  const Dtype single = a.dim() ? b.dtype() : a.dtype();
  return kind_rank(single) > kind_rank(larger) ? promote(larger, single) : larger;
}

Dtype result_type(const Tensor& a, Scalar b) {
  const Dtype single = b.is_floating() ? Dtype::f32 : b.is_boolean() ? Dtype::boolean : Dtype::i64;
  return kind_rank(single) > kind_rank(a.dtype()) ? promote(a.dtype(), single) : a.dtype();
}

Dtype floating_type(Dtype dtype) { return is_floating(dtype) ? dtype : Dtype::f32; }

}  // namespace attn
