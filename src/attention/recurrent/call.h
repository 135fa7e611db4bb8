// src/attention/recurrent/call.h: a checked call of linear attention with a state, and its rows in the type of the
// computation.
#pragma once
#include <attn/linear_attention.h>

#include "kernels/recurrence.h"

#include <cstdint>
#include <vector>

namespace attn {

/// A sequence of a call: rows [first, first + rows) of a batch item; its first kept state is number `chunk`.
struct RecurrentSequence {
  std::int64_t item = 0, first = 0, rows = 0, chunk = 0;
  std::int64_t chunks() const { return (rows + kernels::recurrent_chunk - 1) / kernels::recurrent_chunk; }
};

struct RecurrentCall {
  Tensor q, k, v;                          // without history, last dim contiguous
  Tensor g = {}, beta = {}, initial = {};  // without history; undefined: none. g and beta are [B, Hv, T(, Dk)]
  Dtype compute = Dtype::f32;
  std::int64_t batch = 0, k_heads = 0, v_heads = 0, rows = 0, dim = 0, value_dim = 0;
  kernels::Decay decay = kernels::Decay::none;
  double scale = 1;
  bool l2norm = false;
  std::vector<RecurrentSequence> sequences = {};
  std::int64_t chunks = 0;  // of all sequences

  bool has_delta() const { return beta.defined(); }
  std::int64_t group() const { return v_heads / k_heads; }
  kernels::Element element() const { return compute == Dtype::f64 ? kernels::Element::f64 : kernels::Element::f32; }
  Dims state_sizes() const { return {static_cast<std::int64_t>(sequences.size()), v_heads, dim, value_dim}; }
};

/// Returns x without history, in a dtype whose blocks are read into arrays of `compute`.
Tensor as_read(const Tensor& x, Dtype compute);

/// Checks the operands and options; every mistake of the caller is thrown here.
RecurrentCall check_recurrent(const char* function, const Tensor& q, const Tensor& k, const Tensor& v,
                              const LinearAttentionOptions& options);

/// Computes output and state with the kernels given. `states` (or undefined) receives the state before every 64th row.
LinearAttentionResult run_recurrent(const RecurrentCall& call, const kernels::RecurrentKernels& kernels,
                                    const Tensor& states);
Tensor kept_states(const RecurrentCall& call);
/// Computes the gradients; an undefined gradient of output or state counts as 0.
LinearAttentionGradients run_recurrent_backward(const RecurrentCall& call, const kernels::RecurrentKernels& kernels,
                                                const Tensor& states, const Tensor& grad_output,
                                                const Tensor& grad_state);

}  // namespace attn
