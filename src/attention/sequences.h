// src/attention/sequences.h: represents packed sequences and documents as sequences of a call that are computed
// separately.
#pragma once
#include "attention/lower.h"

namespace attn {

/// Returns the packed sequences. Row 0 of sequence s has position query_start[s] if that is given; otherwise the
/// alignment decides.
std::vector<kernels::Sequence> packed_sequences(const PackedLengths& packed, const Tensor& query_start);

/// Returns the documents: each run of rows with the same keys. The keys of a row are those of its id if they are
/// contiguous, else all keys; none if the row is padding or no key has its id.
std::vector<kernels::Sequence> document_sequences(const kernels::MaskNode& ids,
                                                  const kernels::AttentionProblem& problem);

}  // namespace attn
