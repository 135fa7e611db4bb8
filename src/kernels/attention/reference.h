// src/kernels/attention/reference.h: declares the reference code of attention, as a table of functions.
#pragma once
#include "kernels/attention/problem.h"
#include "kernels/reference.h"

namespace attn::kernels {

/// One build of src/kernels/ref/attention.cc. It accepts every problem and allocates nothing. A row's result depends
/// only on that row's query, the keys that it sees, and their values.
struct AttentionReference {
  std::size_t (*scratch_bytes)(const AttentionProblem& problem) noexcept;
  /// Computes rows [row_begin, row_end) of (b, h): the output, and every other result for which the problem has a
  /// pointer. Scratch is 64-byte aligned.
  void (*rows)(const AttentionProblem& problem, std::int64_t b, std::int64_t h, std::int64_t row_begin,
               std::int64_t row_end, void* memory) noexcept;
  /// Computes the scores (docs/numerics.md section 3.1) of every pair of these rows into problem.weights.
  void (*scores)(const AttentionProblem& problem, std::int64_t b, std::int64_t h, std::int64_t row_begin,
                 std::int64_t row_end, void* memory) noexcept;
  /// Applies only the problem's expression to the scores of these rows, in place in problem.weights; q, k and v are not
  /// read.
  void (*score_mod)(const AttentionProblem& problem, std::int64_t b, std::int64_t h, std::int64_t row_begin,
                    std::int64_t row_end) noexcept;
};

inline const AttentionReference& attention_reference() noexcept { return *reference().attention; }

}  // namespace attn::kernels
