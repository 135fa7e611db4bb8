// src/attention/parts.h: calls whose rows see but a part of the keys by construction: packed sequences, documents side
// by side.
#pragma once
#include "attention/check.h"

namespace attn {

/// Each sequence as a part. Row 0 of sequence s stands at query_start[s], or as the alignment says.
std::vector<kernels::Part> packed_parts(const PackedLengths& packed, const Tensor& query_start);

/// Each run of rows with one id: with the run of keys of that id, where it is one run; else with all keys.
std::vector<kernels::Part> document_parts(const kernels::MaskNode& ids, const kernels::AttentionProblem& problem);

/// The problem of `part` alone; null: of the whole call.
kernels::AttentionProblem problem_of(const Call& call, const kernels::AttentionProblem& problem,
                                     const kernels::Part* part);

/// Calls visit(its problem, b, row_begin, row_end) for every part, or for every batch item where there are none.
template <typename F>
void for_each_part(const Call& call, const kernels::AttentionProblem& problem, F&& visit) {
  if (call.parts.empty())
    for (std::int64_t b = 0; b < problem.batch; ++b) visit(problem, b, std::int64_t{0}, problem.q_rows);
  for (const kernels::Part& part : call.parts)
    visit(problem_of(call, problem, &part), part.batch, part.rows_begin, part.rows_end);
}

}  // namespace attn
