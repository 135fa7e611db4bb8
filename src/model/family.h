// src/model/family.h: whose names a model's files have.
#pragma once
#include <attn/model.h>

namespace attn {

enum class Family { gpt2, llama, mistral, qwen2, qwen3, attn };

/// Llama and those that have its tensors, by its names, and some of their own.
constexpr bool is_llama_like(Family family) { return family != Family::gpt2 && family != Family::attn; }

/// The family that has this shape.
Family family_of(const ModelConfig& config);

}  // namespace attn
