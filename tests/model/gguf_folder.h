// tests/model/gguf_folder.h: writes the model of a Hugging Face folder as a GGUF file, as llama.cpp converts it.
#pragma once
#include <attn/model.h>
#include <attn/ops.h>
#include <attn/safetensors.h>

#include "model/gguf_bytes.h"
#include "support/folder.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>

namespace attn::testing {

/// Puts the rows of each head that rotate together beside each other: i and i + D/2 become 2i and 2i + 1.
inline Tensor neighbours(const Tensor& rows, std::int64_t heads) {
  const std::int64_t half = rows.size(0) / heads / 2, inner = rows.numel() / rows.size(0);
  return rows.reshape({heads, 2, half, inner}).transpose(1, 2).reshape(rows.sizes());
}

/// Returns the name of a tensor in GGUF files; "" for one that is not written.
inline std::string gguf_name(std::string name) {
  constexpr std::pair<const char*, const char*> parts[] = {{"transformer.wte", "token_embd"},
                                                           {"transformer.wpe", "position_embd"},
                                                           {"transformer.ln_f", "output_norm"},
                                                           {"transformer.h.", "blk."},
                                                           {".ln_1.", ".attn_norm."},
                                                           {".attn.c_attn.", ".attn_qkv."},
                                                           {".attn.c_proj.", ".attn_output."},
                                                           {".ln_2.", ".ffn_norm."},
                                                           {".mlp.c_fc.", ".ffn_up."},
                                                           {".mlp.c_proj.", ".ffn_down."},
                                                           {"model.embed_tokens", "token_embd"},
                                                           {"model.layers.", "blk."},
                                                           {".input_layernorm.", ".attn_norm."},
                                                           {".post_attention_layernorm.", ".ffn_norm."},
                                                           {".self_attn.q_proj.", ".attn_q."},
                                                           {".self_attn.k_proj.", ".attn_k."},
                                                           {".self_attn.v_proj.", ".attn_v."},
                                                           {".self_attn.o_proj.", ".attn_output."},
                                                           {".self_attn.q_norm.", ".attn_q_norm."},
                                                           {".self_attn.k_norm.", ".attn_k_norm."},
                                                           {".mlp.gate_proj.", ".ffn_gate."},
                                                           {".mlp.up_proj.", ".ffn_up."},
                                                           {".mlp.down_proj.", ".ffn_down."},
                                                           {"model.norm.", "output_norm."},
                                                           {"lm_head.", "output."}};
  for (const auto& [from, to] : parts)
    if (const std::size_t at = name.find(from); at != std::string::npos) name.replace(at, std::string(from).size(), to);
  return name;
}

/// Llama 3's factors, as llama.cpp computes them.
inline std::vector<float> rope_factors(const nn::RotaryScaling& s, std::int64_t dim, double theta) {
  std::vector<float> factors;
  const auto context = static_cast<double>(s.original_context);
  for (std::int64_t i = 0; i < dim / 2; ++i) {
    const double length =
        2 * std::numbers::pi * std::pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(dim));
    const double stay = (context / length - s.low_frequency) / (s.high_frequency - s.low_frequency);
    factors.push_back(static_cast<float>(length < context / s.high_frequency  ? 1
                                         : length > context / s.low_frequency ? s.factor
                                                                              : 1 / ((1 - stay) / s.factor + stay)));
  }
  return factors;
}

/// `name`: that of the architecture.
inline GgufBytes gguf_of_folder(const std::string& folder, const std::string& name) {
  const ModelConfig config = LanguageModel::load(folder).config;
  const bool gpt2 = name == "gpt2", llama = name == "llama";
  const auto key = [&](const char* what) { return name + "." + what; };
  const auto size = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  GgufBytes file;
  file.text("general.architecture", name).number(key("context_length"), size(config.context));
  file.number(key("block_count"), size(config.layers)).number(key("attention.head_count"), size(config.heads));
  file.number(key("attention.head_count_kv"), size(config.key_value_heads()));
  file.number(key("embedding_length"), size(config.width))
      .number(key("feed_forward_length"), size(config.dim_of_mlp()));
  file.real(key(gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"),
            static_cast<float>(config.norm_eps));
  if (!gpt2) {
    file.real(key("rope.freq_base"), static_cast<float>(config.rotary_theta));
    file.number(key("rope.dimension_count"), size(config.dim_of_head()));
    file.number(key("attention.key_length"), size(config.dim_of_head()));
    file.number(key("attention.value_length"), size(config.dim_of_head()));
  }
  if (config.sliding_window > 0) file.number(key("attention.sliding_window"), size(config.sliding_window));
  if (!config.end_tokens.empty()) file.number("tokenizer.ggml.eos_token_id", size(config.end_tokens[0]));
  if (config.rotary_scaling) {
    const std::vector<float> factors = rope_factors(*config.rotary_scaling, config.dim_of_head(), config.rotary_theta);
    file.floats("rope_freqs.weight", {factors.size()}, factors);
  }
  for (auto [from, tensor] : load_safetensors(folder + "/model.safetensors").tensors) {
    const bool linear = from.find("c_attn.w") != std::string::npos || from.find("c_proj.w") != std::string::npos ||
                        from.find("c_fc.w") != std::string::npos;
    if (linear) tensor = tensor.t().contiguous();
    if (llama && from.find("q_proj") != std::string::npos) tensor = neighbours(tensor, config.heads);
    if (llama && from.find("k_proj") != std::string::npos) tensor = neighbours(tensor, config.key_value_heads());
    std::vector<std::uint64_t> sizes;
    for (int i = tensor.dim() - 1; i >= 0; --i) sizes.push_back(static_cast<std::uint64_t>(tensor.size(i)));
    file.floats(gguf_name(from), sizes, {tensor.data<float>(), static_cast<std::size_t>(tensor.numel())});
  }
  return file;
}

}  // namespace attn::testing
