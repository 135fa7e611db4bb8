// src/kernels/attention/reference.h: the executable specification of attention, behind one table.
#pragma once
#include "kernels/attention/problem.h"

namespace attn::kernels {

/// One build of src/kernels/ref/attention.cc. It takes every problem, allocates nothing, and a row's result depends on
/// nothing but that row's query, the keys it sees and their values.
struct AttentionReference {
  const char* build;  // "fma" or "generic"
  std::size_t (*scratch_bytes)(const AttentionProblem& problem) noexcept;
  /// Rows [row_begin, row_end) of (b, h): output, and what else the problem has pointers for. Scratch is 64-byte
  /// aligned.
  void (*rows)(const AttentionProblem& problem, std::int64_t b, std::int64_t h, std::int64_t row_begin,
               std::int64_t row_end, void* memory) noexcept;
  /// The scores alone (docs/numerics.md section 3, step 1) of every pair of those rows, into problem.weights.
  void (*scores)(const AttentionProblem& problem, std::int64_t b, std::int64_t h, std::int64_t row_begin,
                 std::int64_t row_end, void* memory) noexcept;
  /// Scores of those rows after the problem's expression alone, in place in problem.weights; q, k and v are not read.
  void (*score_mod)(const AttentionProblem& problem, std::int64_t b, std::int64_t h, std::int64_t row_begin,
                    std::int64_t row_end) noexcept;
};

/// The build this processor runs, and both for the test that their bits agree (the second is null where there is only
/// one).
const AttentionReference& attention_reference() noexcept;
const AttentionReference* attention_reference_generic() noexcept;
const AttentionReference* attention_reference_fma() noexcept;

}  // namespace attn::kernels
