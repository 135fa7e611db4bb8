// src/model/family.h: whose names a model's files have.
#pragma once
#include <attn/model.h>

namespace attn {

enum class Family { gpt2, llama, attn };

/// The family that has this shape.
Family family_of(const ModelConfig& config);

}  // namespace attn
