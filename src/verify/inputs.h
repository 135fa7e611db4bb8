// src/verify/inputs.h: the tensors of a case: scaled integers of a fixed generator, so that every machine has the same.
#pragma once
#include <attn/attention.h>
#include <attn/cache.h>

#include "verify/case.h"

#include <memory>

namespace attn::cases {

/// Uniform in [-width, width): 21-bit integers for f32, 41-bit for f64, 8-bit for bf16 and f16, times a power of two.
/// `width` is a power of two.
Tensor integers(const Dims& sizes, Dtype dtype, std::uint64_t seed, double width = 2);

/// K and V in a cache: sequence b holds batch item b.
struct Cached {
  KvCache cache;
  std::vector<KvSequence> sequences;
};

struct Inputs {
  Tensor q, k, v;  // attention; copies of `options` share its tensors
  AttentionOptions options;
  std::shared_ptr<Cached> cached;  // cases with a cache; k and v are then what it gives back
  Tensor doutput;                  // attention_backward: the gradient that comes in
  Tensor a, b, addend;     // matmul: a [M, K], b [K, N], views where the layout says so; addend [N] or undefined
  Tensor x, weight, bias;  // rows: x [rows, N]; norms: weight, layer_norm: bias [N]
};
/// ValueError for fields that do not go together.
Inputs make_inputs(const Case& c, std::uint64_t seed = 1);
/// The same without what a cache knows of its sequences.
AttentionOptions cached_options(AttentionOptions options);
/// The keys and values of a case with a cache, in one of its own.
std::shared_ptr<Cached> cached_rows(const Case& c, const Inputs& in);
/// The same inputs in f32, for 16-bit dtypes.
Inputs widened(const Inputs& inputs);

}  // namespace attn::cases
