// src/nn/rotary_frequencies.h: computes the frequencies of rotary embedding, with every scaling.
#pragma once
#include <attn/nn/rotary.h>

namespace attn::nn {

/// Throws a ValueError that begins with `who` unless the options are those of `pairs` frequencies.
void check_rotary(const char* who, std::int64_t pairs, const RotaryEmbeddingOptions& options);

/// Returns the frequencies f32 [dim / 2] of a text with that many tokens.
Tensor rotary_frequencies(std::int64_t dim, const RotaryEmbeddingOptions& options, std::int64_t tokens);

}  // namespace attn::nn
