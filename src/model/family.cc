// src/model/family.cc: finds the model family of a config, by what its layers have in common.
#include "model/family.h"

#include "model/fields.h"

#include <algorithm>
#include <limits>

namespace attn {
namespace {

using Config = ModelConfig;

bool same_rotary(const LayerConfig& a, const LayerConfig& b) {
  return a.rotary_theta == b.rotary_theta && a.rotary_scaling == b.rotary_scaling;
}

/// Returns the family of a config with Llama's layers: RMS norms, SwiGLU and rotary positions.
Family llama_like_family(const Config& c, const LayersInCommon& layers) {
  const bool same_bias = c.attention_bias == c.bias_of_out(), no_bias = !c.attention_bias && same_bias && !c.mlp_bias,
             whole = c.heads * c.dim_of_head() == c.width;
  if (!layers.rotary || !layers.window) return Family::attn;
  const auto& scaling = layers.first.rotary_scaling;
  const bool long_rope = scaling && scaling->kind == nn::RotaryScaling::Kind::longrope,
             one_window = layers.all_windowed || !layers.any_windowed;
  if (c.rotary_dim == c.dim_of_head()) return Family::attn;  // others say it as 0
  if ((c.rotary_dim > 0 || long_rope) && no_bias && whole && !c.qk_norm && one_window && layers.all_rotate &&
      (long_rope || !scaling))
    return Family::phi3;
  if (c.rotary_dim > 0) return Family::attn;
  if (!layers.all_rotate || !one_window) {
    if (!c.qk_norm && same_bias) return Family::smollm3;
    if (!layers.all_rotate || c.mlp_bias) return Family::attn;
  }
  if (!c.qk_norm && !layers.any_windowed && same_bias) return Family::llama;
  if (c.mlp_bias) return Family::attn;
  if (c.qk_norm) return same_bias ? Family::qwen3 : Family::attn;
  if (!same_bias) return c.attention_bias ? Family::qwen2 : Family::attn;
  return c.attention_bias ? Family::attn : Family::mistral;
}

}  // namespace

LayersInCommon in_common(const Config& c) {
  LayersInCommon result;
  std::optional<LayerConfig> first;
  const std::int64_t layers = c.per_layer.empty() ? 1 : c.layers;
  for (std::int64_t n = 0; n < layers; ++n) {
    const LayerConfig layer = c.layer(n);
    const bool windowed = layer.sliding_window > 0;
    (windowed ? result.any_windowed : result.all_windowed) = windowed;
    std::int64_t& window = result.sliding_window;
    if (windowed && window == 0) window = layer.sliding_window;
    result.window = result.window && (!windowed || window == layer.sliding_window);
    auto& like = windowed ? result.windowed : result.full;
    if (!like) like = layer;
    result.all_rotate = result.all_rotate && layer.rotary;
    result.by_window = result.by_window && layer.rotary && same_rotary(*like, layer);
    if (!layer.rotary) continue;
    if (!first) first = layer;
    result.rotary = result.rotary && same_rotary(*first, layer);
  }
  if (first) result.first = *first;
  return result;
}

void set_layers(Config& config, const std::vector<LayerConfig>& layers) {
  const bool same = std::all_of(layers.begin(), layers.end(), [&](const auto& one) { return one == layers.front(); });
  if (!same || layers.empty() || !layers.front().rotary) {
    config.per_layer = layers;
    return;
  }
  config.sliding_window = layers.front().sliding_window;
  config.rotary_theta = layers.front().rotary_theta;
  config.rotary_scaling = layers.front().rotary_scaling;
}

std::int64_t dynamic_context(const nn::RotaryScaling& scaling) {
  const double context = scaling.factor * static_cast<double>(scaling.original_context);
  // a size that no config may have is named as such
  return context < 0x1p62 ? static_cast<std::int64_t>(context) : std::numeric_limits<std::int64_t>::max();
}

Family family_of(const Config& c) {
  const bool plain_heads = c.key_value_heads() == c.heads && c.heads * c.dim_of_head() == c.width,
             same_bias = c.attention_bias == c.bias_of_out(),
             plain = !c.post_norms && !c.scaled_embedding && c.query_scalar == 0 && c.attention_softcap == 0 &&
                     c.final_softcap == 0;
  if (c.norm == Config::Norm::layer_norm && c.positions == Config::Positions::learned && !is_gated(c.activation) &&
      plain_heads && c.attention_bias && same_bias && c.mlp_bias && !c.qk_norm && c.sliding_window == 0 &&
      c.per_layer.empty() && c.rotary_dim == 0 && plain)
    return Family::gpt2;
  const Config defaults;
  const bool unused = c.sliding_window == 0 && c.rotary_theta == defaults.rotary_theta && !c.rotary_scaling;
  if (c.positions != Config::Positions::rotary || (!c.per_layer.empty() && !unused)) return Family::attn;
  const LayersInCommon layers = in_common(c);
  for (const auto& one : {layers.windowed, layers.full})
    if (one && one->rotary_scaling && one->rotary_scaling->kind == nn::RotaryScaling::Kind::dynamic &&
        c.context != dynamic_context(*one->rotary_scaling))
      return Family::attn;
  if (c.norm == Config::Norm::rms_norm && c.activation == Config::Activation::swiglu && plain)
    return llama_like_family(c, layers);
  if (c.norm == Config::Norm::rms_norm_plus_one && c.activation == Config::Activation::geglu_tanh && c.post_norms &&
      c.scaled_embedding && !c.mlp_bias && same_bias && c.rotary_dim == 0 && layers.window && layers.all_rotate) {
    if (!c.qk_norm && layers.rotary) return Family::gemma2;
    if (c.qk_norm && layers.by_window && c.attention_softcap == 0) return Family::gemma3;
  }
  return Family::attn;
}

}  // namespace attn
