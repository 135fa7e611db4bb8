// src/verify/inputs.h: the tensors of a case: scaled integers of a fixed generator, so that every machine has the same.
#pragma once
#include <attn/attention.h>

#include "verify/case.h"

namespace attn::cases {

/// Uniform in [-width, width): 21-bit integers for f32, 41-bit for f64, 8-bit for bf16 and f16, times a power of two.
/// `width` is a power of two.
Tensor integers(const Dims& sizes, Dtype dtype, std::uint64_t seed, double width = 2);

struct Inputs {
  Tensor q, k, v;  // attention; copies of `options` share its tensors
  AttentionOptions options;
  Tensor doutput;  // attention_backward: the gradient that comes in
  Tensor a, b, addend;  // matmul: a [M, K], b [K, N], views where the layout says so; addend [N] or undefined
  Tensor x, weight, bias;  // rows: x [rows, N]; norms: weight, layer_norm: bias [N]
};
/// ValueError for fields that do not go together.
Inputs make_inputs(const Case& c, std::uint64_t seed = 1);
/// The same inputs in f32, for 16-bit dtypes.
Inputs widened(const Inputs& inputs);

}  // namespace attn::cases
