// src/model/initial_weights.h: draws the initial weights of a model.
#pragma once
#include "model/blocks.h"

namespace attn {

/// Draws in nanoGPT's order: torch's modules draw their weights when they are constructed, then nanoGPT draws all
/// weights again. So the same generator state gives exactly nanoGPT's weights. Half floats are rounded from the f32
/// numbers.
void draw_initial_weights(const LanguageModel::Parts& parts, Generator& generator);

}  // namespace attn
