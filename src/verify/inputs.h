// src/verify/inputs.h: makes the tensors of a case: scaled integers of a fixed generator, the same on every machine.
#pragma once
#include <attn/attention_jvp.h>
#include <attn/cache.h>
#include <attn/linear_attention.h>

#include "verify/blocks.h"
#include "verify/case.h"

#include <memory>

namespace attn::cases {

/// Returns uniform numbers in [-width, width): 21-bit integers for f32, 41-bit for f64, 8-bit for bf16 and f16, times a
/// power of two. `width` must be a power of two.
Tensor integers(const Dims& sizes, Dtype dtype, std::uint64_t seed, double width = 2);

/// Holds K and V in a cache: sequence b holds batch item b.
struct Cached {
  KvCache cache;
  std::vector<KvSequence> sequences;
};

struct Inputs {
  Tensor q, k, v;  // attention
  AttentionOptions options;
  std::shared_ptr<Cached> cached;  // cases with a cache; k and v are then what it returns
  Tensor doutput;                  // attention_backward: the incoming gradient
  AttentionTangents tangents;      // forward mode: the direction of the operands and of doutput
  Tensor doutput_tangent;
  Tensor a, b, addend;  // matmul: a [M, K], b [K, N], views if `layout` says so; addend [N] or undefined
  std::shared_ptr<const Blocks> blocks;  // matmul with blocks: b is a view of what they stand for
  // rows: x [rows, N]; norms: weight, layer_norm: bias [N]; causal_conv: x [B, N, Tq], weight [N, K], bias [N]
  Tensor x, weight, bias;
  LinearAttentionOptions recurrent;  // linear attention; its q, k and v are those of attention
};
/// Makes the inputs of a case. Throws ValueError for fields that do not fit together.
Inputs make_inputs(const Case& c, std::uint64_t seed = 1);
/// Returns the options without key_lengths and query_start, which a cache knows itself.
AttentionOptions cached_options(AttentionOptions options);
/// Puts the keys and values of a case into a new cache. in.options.key_lengths must be defined.
std::shared_ptr<Cached> cached_rows(const Case& c, const Inputs& in);
/// Returns the same inputs in f32, for 16-bit dtypes.
Inputs widened(const Inputs& inputs);

}  // namespace attn::cases
