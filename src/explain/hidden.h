// src/explain/hidden.h: finds the reason why each masked pair takes no part.
#pragma once
#include <attn/explain.h>

#include <vector>

namespace attn::explain_detail {

/// Returns one reason for each pair of [B, H, Tq, Tk]: padding comes first, then the first part of the mask that hides
/// the pair. Empty when no pair is hidden.
std::vector<Hidden> hidden_pairs(const Mask& mask, const Dims& pairs, const Lengths& lengths);

/// Returns whether the mask holds tensors, whose sizes tie it to one batch.
bool holds_tensors(const Mask& mask);

}  // namespace attn::explain_detail
