// src/explain/hidden.h: why each pair takes no part.
#pragma once
#include <attn/explain.h>

#include <vector>

namespace attn::explain_detail {

/// One reason a pair of [B, H, Tq, Tk]: padding first, then the first part of the mask that hides it.
/// Empty when everything is seen.
std::vector<Hidden> hidden_pairs(const Mask& mask, const Dims& pairs, const Lengths& lengths);

/// Whether the mask holds tensors, whose sizes tie it to one batch.
bool holds_tensors(const Mask& mask);

}  // namespace attn::explain_detail
