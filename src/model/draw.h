// src/model/draw.h: the first values of a model's weights.
#pragma once
#include "model/blocks.h"

namespace attn {

/// Draws as nanoGPT does, which builds torch's modules (they draw), then draws all weights anew; so the same state of
/// the generator gives its weights, number for number. Half floats are rounded from the f32 numbers.
void draw_weights(const LanguageModel::Parts& parts, Generator& generator);

}  // namespace attn
