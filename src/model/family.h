// src/model/family.h: finds the model family of a config, which decides the names of tensors in files.
#pragma once
#include <attn/model.h>

#include <array>
#include <string>

namespace attn {

enum class Family { gpt2, llama, mistral, qwen2, qwen3, gemma2, gemma3, phi3, smollm3, attn };

/// The model_type of each.
inline constexpr std::array<const char*, 10> family_names = {"gpt2",   "llama",       "mistral", "qwen2",   "qwen3",
                                                             "gemma2", "gemma3_text", "phi3",    "smollm3", "attn"};

/// Returns whether the family is Llama or uses Llama's tensor names (some add names of their own).
constexpr bool is_llama_like(Family family) { return family != Family::gpt2 && family != Family::attn; }
constexpr bool is_gemma(Family family) { return family == Family::gemma2 || family == Family::gemma3; }
constexpr bool is_qwen(Family family) { return family == Family::qwen2 || family == Family::qwen3; }

/// Returns the family whose architecture the config has.
Family family_of(const ModelConfig& config);

/// Returns the family that a config.json names; it decides the names of the tensors in the same folder. Errors as
/// ModelConfig::from_json.
Family family_in(const std::string& json, const std::string& name);

/// What the layers have in common.
struct LayersInCommon {
  bool window = true;     // there is at most one window
  bool rotary = true;     // those that rotate have the same rotary embedding
  bool by_window = true;  // so have those with a window, and those without, each among themselves
  bool all_rotate = true;
  bool all_windowed = true, any_windowed = false;
  std::int64_t sliding_window = 0;                      // that of the layers that have one
  std::optional<LayerConfig> windowed = {}, full = {};  // the first layer with a window, and without
  /// Returns the first layer that rotates; with none the default.
  LayerConfig first;
};
LayersInCommon in_common(const ModelConfig& config);

/// Puts layers that do not differ into the fields for all of them.
void set_layers(ModelConfig& config, const std::vector<LayerConfig>& layers);

/// Returns the context of a model with that dynamic scaling: `factor` times that of its training. config.json has the
/// latter.
std::int64_t dynamic_context(const nn::RotaryScaling& scaling);

}  // namespace attn
