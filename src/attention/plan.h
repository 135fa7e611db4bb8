// src/attention/plan.h: the kernels there are, best first, and which of them takes a call.
#pragma once
#include <attn/attention.h>

#include "kernels/attention/problem.h"

#include <span>

namespace attn {

/// What a kernel says to a call.
enum class Answer : std::uint8_t { takes, takes_everything };

/// One way to compute rows of a head. `rows` and `scratch_bytes` as in kernels/attention/reference.h.
struct AttentionKernel {
  const char* name;
  std::int64_t strip_rows;  // rows of a task: by shape only, so that no bit depends on the number of threads
  Answer (*ask)(const kernels::AttentionProblem& problem);
  std::size_t (*scratch_bytes)(const kernels::AttentionProblem& problem);
  void (*rows)(const kernels::AttentionProblem& problem, std::int64_t b, std::int64_t h, std::int64_t row_begin, std::int64_t row_end, void* scratch);
};
std::span<const AttentionKernel> attention_kernels();

/// The first that takes the problem; the last, the reference, takes everything.
const AttentionKernel& plan_attention(const kernels::AttentionProblem& problem, Plan& plan);

}  // namespace attn
