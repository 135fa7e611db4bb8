// src/ranks/heads_call.h: what a rank checks, and compares with the others, before heads are exchanged.
#pragma once
#include <attn/attention_backward.h>
#include <attn/ranks.h>

#include "model/part_tree.h"
#include "ranks/head_options.h"

#include <exception>
#include <string>

namespace attn {

/// A call whose heads are dealt: this rank has `rows` of all heads before the exchange, all rows of `heads` after it.
struct HeadsCall {
  const char* function = "rank_attention";
  std::int64_t batch = 0, length = 0, dim = 0, value_dim = 0;
  std::int64_t q_heads = 0, k_heads = 0, v_heads = 0;
  std::int64_t units = 1;  // groups of heads that share no head of k or v
  Dtype dtype = Dtype::f32;
  Span rows{0, 0};
  HeadRange heads{0, 0, 0};
  bool alone = false;       // one rank: nothing is exchanged
  bool wants_grad = false;  // an operand or a tensor of the options requires a gradient
  std::string text;         // all that must be equal at every rank

  Dtype compute_dtype() const { return dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32; }
  /// Return the sizes of an array of `count` heads: this rank's rows, and all rows of its heads.
  Dims of_rows(std::int64_t count, std::int64_t width) const { return {batch, count, rows.size(), width}; }
  Dims of_heads(std::int64_t count, std::int64_t width) const {
    return {batch, heads.size() * count / q_heads, length, width};
  }
};

/// Throws the error that the complete call gives in one process, or one that says what ranks cannot do. It sends no
/// message.
HeadsCall check_heads_call(const char* function, const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t length,
                           const Ranks& ranks, const AttentionOptions& options);

/// Throws unless the tensor has these sizes.
void check_rows(const HeadsCall& call, const Tensor& x, const Dims& sizes, const char* name);

/// Calls `work` at every rank. If it fails at one of them, all throw.
template <typename Work>
void at_every_rank(const Ranks& ranks, const Work& work) {
  std::exception_ptr failure;
  try {
    work();
  } catch (...) { failure = std::current_exception(); }
  ranks.agree(failure);
}

}  // namespace attn
