// tests/model/tiny_models.h: models of a few numbers, one for each family, and the folders of the golden ones.
#pragma once
#include <attn/model.h>

#include "support/folder.h"
#include "support/places.h"

#include <string>

namespace attn::testing {

inline std::string golden_folder(const std::string& name) { return golden_path("model/" + name); }

/// A Llama of a few numbers: grouped heads, rotary positions, SwiGLU.
inline ModelConfig tiny_llama() {
  return {.vocab_size = 13,
          .context = 12,
          .layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .width = 8,
          .head_dim = 4,
          .mlp_width = 10,
          .norm = ModelConfig::Norm::rms_norm,
          .positions = ModelConfig::Positions::rotary,
          .activation = ModelConfig::Activation::swiglu,
          .attention_bias = false,
          .mlp_bias = false,
          .tied_head = false};
}

/// The tiny Llama with Mistral's window: texts of a few tokens outgrow it.
inline ModelConfig tiny_mistral() {
  ModelConfig config = tiny_llama();
  config.sliding_window = 4;
  return config;
}

/// The tiny Llama as Qwen 2: biases of q, k and v alone.
inline ModelConfig tiny_qwen2() {
  ModelConfig config = tiny_llama();
  config.attention_bias = true;
  config.attention_out_bias = false;
  return config;
}

/// The tiny Llama as Qwen 3: norms of each head's q and k.
inline ModelConfig tiny_qwen3() {
  ModelConfig config = tiny_llama();
  config.qk_norm = true;
  return config;
}

/// What no family has: all of these at once, with layer norm and learned positions.
inline ModelConfig tiny_mixture() {
  return {.vocab_size = 13,
          .context = 12,
          .layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .width = 8,
          .head_dim = 6,
          .mlp_width = 12,
          .attention_bias = false,
          .attention_out_bias = true,
          .qk_norm = true,
          .sliding_window = 3};
}

/// A GPT-2 of a few numbers.
inline ModelConfig tiny_gpt2() {
  return {.vocab_size = 13, .context = 12, .layers = 2, .heads = 2, .width = 8, .mlp_width = 12};
}

}  // namespace attn::testing
