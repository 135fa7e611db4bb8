// tests/attention/calls.h: all that a call returns in one tensor, to be compared as bits.
#pragma once
#include "attention/call/call.h"
#include "attention/inputs.h"
#include "kernels/attention/reference.h"

namespace attn::testing {

/// Output and logsumexp side by side: [B, H, T, Dv + 1].
inline Tensor run(const Inputs& in, const AttentionOptions& options) {
  const AttentionResult r = attention(in.q, in.k, in.v, options);
  return cat({r.output.to(Dtype::f64), r.logsumexp.unsqueeze(-1).to(Dtype::f64)}, -1);
}

/// The same by one of the builds of the specification.
inline Tensor by_specification(const kernels::AttentionReference& reference, const Call& call) {
  kernels::AttentionProblem p = call.problem;
  const Dtype dtype = call.compute_dtype();
  const Tensor output = zeros({p.batch, p.q_heads, p.q_rows, p.value_dim}, dtype),
               lse = zeros({p.batch, p.q_heads, p.q_rows}, dtype);
  p.out = output.data();
  for (int d = 0; d < 3; ++d) p.out_stride[d] = output.stride(d);
  p.logsumexp = lse.data();
  std::vector<double> scratch(reference.scratch_bytes(p) / sizeof(double) + 1);
  for_each_sequence(call, p, [&](const kernels::AttentionProblem& part, const kernels::Task& all) {
    for (std::int64_t h = 0; h < p.q_heads; ++h)
      reference.rows(part, all.with_rows(h, all.row, all.rows), scratch.data());
  });
  return cat({output.to(Dtype::f64), lse.unsqueeze(-1).to(Dtype::f64)}, -1);
}

}  // namespace attn::testing
