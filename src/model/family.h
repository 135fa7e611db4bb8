// src/model/family.h: finds the model family of a config, which decides the names of tensors in files.
#pragma once
#include <attn/model.h>

namespace attn {

enum class Family { gpt2, llama, mistral, qwen2, qwen3, attn };

/// Returns whether the family is Llama or uses Llama's tensor names (some add names of their own).
constexpr bool is_llama_like(Family family) { return family != Family::gpt2 && family != Family::attn; }

/// Returns the family whose architecture the config has.
Family family_of(const ModelConfig& config);

}  // namespace attn
