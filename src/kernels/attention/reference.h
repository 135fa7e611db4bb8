// src/kernels/attention/reference.h: declares the reference code of attention, as a table of functions.
#pragma once
#include "kernels/attention/problem.h"
#include "kernels/reference.h"

namespace attn::kernels {

/// One build of src/kernels/ref/attention.cc. It accepts every problem and allocates nothing. A row's result depends
/// only on that row's query, the keys that it sees, and their values.
struct AttentionReference {
  std::size_t (*scratch_bytes)(const AttentionProblem& problem) noexcept;
  /// Computes the rows of a task of one head: the output, and every other result for which the problem has a pointer;
  /// the weights of a task of one row go to Task::lane_row, if that is not null. Scratch is 64-byte aligned.
  void (*rows)(const AttentionProblem& problem, const Task& task, void* memory) noexcept;
  /// Computes the scores (docs/numerics.md section 3.1) of every pair of these rows into problem.weights.
  void (*scores)(const AttentionProblem& problem, const Task& task, void* memory) noexcept;
  /// Applies only the problem's expression to the scores of these rows, in place in problem.weights; q, k and v are not
  /// read.
  void (*score_mod)(const AttentionProblem& problem, const Task& task) noexcept;
};

inline const AttentionReference& attention_reference() noexcept { return *reference().attention; }

}  // namespace attn::kernels
