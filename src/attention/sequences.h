// src/attention/sequences.h: packed sequences and documents as parts of a call that are computed apart.
#pragma once
#include "attention/call/check.h"

namespace attn {

/// Each sequence as a part. Row 0 of sequence s stands at query_start[s], or as the alignment says.
std::vector<kernels::Sequence> packed_sequences(const PackedLengths& packed, const Tensor& query_start);

/// Each run of rows with one id: with the run of keys of that id, where it is one run; else with all keys.
std::vector<kernels::Sequence> document_sequences(const kernels::MaskNode& ids,
                                                  const kernels::AttentionProblem& problem);

/// The problem of `part` alone; null: of the whole call.
kernels::AttentionProblem problem_of(const Call& call, const kernels::AttentionProblem& problem,
                                     const kernels::Sequence* sequence);

/// Calls visit(its problem, b, row_begin, row_end) for every part, or for every batch item where there are none.
template <typename F>
void for_each_sequence(const Call& call, const kernels::AttentionProblem& problem, F&& visit) {
  if (call.sequences.empty())
    for (std::int64_t b = 0; b < problem.batch; ++b) visit(problem, b, std::int64_t{0}, problem.q_rows);
  for (const kernels::Sequence& sequence : call.sequences)
    visit(problem_of(call, problem, &sequence), sequence.batch, sequence.rows_begin, sequence.rows_end);
}

}  // namespace attn
