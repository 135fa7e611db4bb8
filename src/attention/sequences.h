// src/attention/sequences.h: packed sequences and documents as parts of a call that are computed apart.
#pragma once
#include "attention/lower.h"

namespace attn {

/// The packed sequences. Row 0 of sequence s has position query_start[s], or the one that the alignment gives.
std::vector<kernels::Sequence> packed_sequences(const PackedLengths& packed, const Tensor& query_start);

/// Documents: each run of rows with one id, with the run of keys of that id if it is one run, else with all keys.
std::vector<kernels::Sequence> document_sequences(const kernels::MaskNode& ids,
                                                  const kernels::AttentionProblem& problem);

}  // namespace attn
