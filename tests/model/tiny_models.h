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

/// Gemma 2 of a few numbers: a window in the first layer, soft caps, norms of both outputs.
inline ModelConfig tiny_gemma2() {
  ModelConfig config = tiny_llama();
  config.norm = ModelConfig::Norm::rms_norm_plus_one;
  config.activation = ModelConfig::Activation::geglu_tanh;
  config.post_norms = config.scaled_embedding = config.tied_head = true;
  config.query_scalar = 3;
  config.attention_softcap = 5;
  config.final_softcap = 4;
  config.per_layer = {{.sliding_window = 3}, {}};
  return config;
}

/// Gemma 3 of a few numbers: two thetas, one of them scaled.
inline ModelConfig tiny_gemma3() {
  ModelConfig config = tiny_gemma2();
  config.qk_norm = true;
  config.attention_softcap = config.final_softcap = 0;
  config.per_layer[1] = {.rotary_theta = 1e6,
                         .rotary_scaling = nn::RotaryScaling{.factor = 8, .kind = nn::RotaryScaling::Kind::linear}};
  return config;
}

/// The tiny Llama as Phi-3: half of each head is rotated.
inline ModelConfig tiny_phi3() {
  ModelConfig config = tiny_llama();
  config.head_dim = 0;
  config.heads = 2;
  config.rotary_dim = 2;
  return config;
}

/// The tiny Llama as SmolLM 3: a layer without positions.
inline ModelConfig tiny_smollm3() {
  ModelConfig config = tiny_llama();
  config.per_layer = {{}, {.rotary = false}};
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
