// src/attention/sequences.h: packed sequences and documents as parts of a call that are computed apart.
#pragma once
#include "attention/lower.h"

namespace attn {

/// Each sequence as a part. Row 0 of sequence s stands at query_start[s], or as the alignment says.
std::vector<kernels::Sequence> packed_sequences(const PackedLengths& packed, const Tensor& query_start);

/// Each run of rows with one id: with the run of keys of that id, where it is one run; else with all keys.
std::vector<kernels::Sequence> document_sequences(const kernels::MaskNode& ids,
                                                  const kernels::AttentionProblem& problem);

}  // namespace attn
