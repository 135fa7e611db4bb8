// src/model/config.cc: defines the preset model sizes and checks a ModelConfig.
#include <attn/model.h>

#include "model/fields.h"
#include "nn/rotary_frequencies.h"

#include "runtime/format.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attn {
namespace {

// limits every size, so that the product of two fits in 64 bits
constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();

void check_size(const char* name, std::int64_t value) {
  if (value < 1 || value > most)
    throw ValueError("ModelConfig: " + std::string(name) + " is " + std::to_string(value) + "; it must be from 1 to " +
                     std::to_string(most));
}

template <typename Enum>
void check_value(const char* name, Enum value) {
  if (!has_value(value))
    throw ValueError(
        runtime::format("ModelConfig: {} is {}; the enumeration has no such value", name, static_cast<int>(value)));
}

void divides(const char* name, std::int64_t part, const char* whole_name, std::int64_t whole) {
  if (whole % part != 0)
    throw ValueError("ModelConfig: " + std::string(name) + " is " + std::to_string(part) + "; it must divide " +
                     whole_name + " (" + std::to_string(whole) + ")");
}

/// Counts the parameters in type T: int64, or double, which does not overflow.
template <typename T>
T numbers_of(const ModelConfig& c) {
  const T width = static_cast<T>(c.width), head_dim = static_cast<T>(c.dim_of_head()),
          m = static_cast<T>(c.dim_of_mlp());
  const T norms = width * (c.norm == ModelConfig::Norm::layer_norm ? 2 : 1);
  const T q = static_cast<T>(c.heads) * head_dim, kv = 2 * static_cast<T>(c.key_value_heads()) * head_dim;
  const T attention = width * (q + kv) + q * width + (c.attention_bias ? q + kv : 0) + (c.bias_of_out() ? width : 0) +
                      (c.qk_norm ? 2 * head_dim : 0);
  const T ups = is_gated(c.activation) ? 2 : 1;
  const T mlp = (ups + 1) * width * m + (c.mlp_bias ? ups * m + width : 0);
  const T tables = static_cast<T>(c.vocab_size) * width * (c.tied_head ? 1 : 2);
  const T places = c.positions == ModelConfig::Positions::learned ? static_cast<T>(c.context) * width : 0;
  return tables + places + static_cast<T>(c.layers) * ((c.post_norms ? 4 : 2) * norms + attention + mlp) + norms;
}

void check_not_negative(const char* name, double value) {
  if (!(value >= 0) || std::isinf(value))
    throw ValueError(runtime::format("ModelConfig: {} is {}; it must not be negative, and finite", name, value));
}

/// Checks the window and the rotary embedding of a layer, or of all. `field`: what the window's name begins with.
void check_layer(const ModelConfig& c, const LayerConfig& layer, const std::string& field) {
  if (layer.sliding_window != 0) check_size((field + "sliding_window").c_str(), layer.sliding_window);
  const nn::RotaryEmbeddingOptions options{.theta = layer.rotary_theta, .scaling = layer.rotary_scaling};
  try {
    nn::check_rotary("", c.rotated_dim() / 2, options);
  } catch (const ValueError& error) {
    throw ValueError("ModelConfig: " + field + "rotary_" + std::string(error.what()).substr(2));
  }
}

/// Checks the layers' own windows and rotary embeddings.
void check_layers(const ModelConfig& c) {
  check_layer(c, {c.sliding_window, true, c.rotary_theta, c.rotary_scaling}, "");
  if (c.per_layer.empty()) return;
  if (static_cast<std::int64_t>(c.per_layer.size()) != c.layers)
    throw ValueError(
        runtime::format("ModelConfig: per_layer has {} entries; it must have one for each of the {} layers",
                        c.per_layer.size(), c.layers));
  for (std::size_t n = 0; n < c.per_layer.size(); ++n)
    check_layer(c, c.per_layer[n], runtime::format("per_layer[{}].", n));
}

}  // namespace

ModelConfig ModelConfig::nano(std::int64_t vocab_size) {
  return {.vocab_size = vocab_size, .context = 64, .layers = 4, .heads = 4, .width = 128};
}

ModelConfig ModelConfig::baby(std::int64_t vocab_size) {
  return {.vocab_size = vocab_size, .context = 256, .layers = 6, .heads = 6, .width = 384};
}

ModelConfig ModelConfig::small(std::int64_t vocab_size) { return {.vocab_size = vocab_size}; }

LayerConfig ModelConfig::layer(std::int64_t n) const {
  if (n < 0 || n >= layers)
    throw ValueError(runtime::format("ModelConfig: layer is {}; it must be from 0 to {}", n, layers - 1));
  LayerConfig result = per_layer.empty() ? LayerConfig{sliding_window, true, rotary_theta, rotary_scaling}
                                         : per_layer[static_cast<std::size_t>(n)];
  if (positions != Positions::rotary) result.rotary = false;
  return result;
}

Mask ModelConfig::mask(std::int64_t n) const {
  const std::int64_t window = layer(n).sliding_window;
  return window > 0 ? Mask::causal() & Mask::window(window - 1, 0) : Mask::causal();
}

bool ModelConfig::same_frequencies(std::int64_t a, std::int64_t b) const {
  const auto same = [&](const std::optional<nn::RotaryScaling>& scaling) { return !scaling || scaling->same(a, b); };
  if (positions != Positions::rotary) return true;
  if (per_layer.empty()) return same(rotary_scaling);
  return std::all_of(per_layer.begin(), per_layer.end(),
                     [&](const LayerConfig& one) { return !one.rotary || same(one.rotary_scaling); });
}

std::int64_t ModelConfig::parameters() const {
  check();
  return numbers_of<std::int64_t>(*this);
}

void ModelConfig::check() const {
  check_size("vocab_size", vocab_size);
  check_size("context", context);
  check_size("layers", layers);
  check_size("heads", heads);
  check_size("width", width);
  // 0 stands for the default
  if (kv_heads != 0) check_size("kv_heads", kv_heads);
  if (head_dim != 0) check_size("head_dim", head_dim);
  if (mlp_width != 0) check_size("mlp_width", mlp_width);
  check_size("mlp_width", dim_of_mlp());
  check_value("norm", norm);
  check_value("positions", positions);
  check_value("activation", activation);
  if (head_dim == 0) divides("heads", heads, "width", width);
  divides("kv_heads", key_value_heads(), "heads", heads);
  if (rotary_dim != 0) check_size("rotary_dim", rotary_dim);
  if (rotated_dim() > dim_of_head())
    throw ValueError(
        runtime::format("ModelConfig: rotary_dim is {}; it must be at most head_dim, {}", rotary_dim, dim_of_head()));
  if (positions == Positions::rotary && rotated_dim() % 2 != 0)
    throw ValueError(runtime::format("ModelConfig: {} is {}; rotary positions need an even one",
                                     rotary_dim > 0 ? "rotary_dim" : "head_dim", rotated_dim()));
  check_layers(*this);
  check_not_negative("query_scalar", query_scalar);
  check_not_negative("attention_softcap", attention_softcap);
  check_not_negative("final_softcap", final_softcap);
  if (!(numbers_of<double>(*this) < 0x1p60))
    throw ValueError("ModelConfig: the weights are more numbers than can be counted");
  check_not_negative("norm_eps", norm_eps);
  if (!(dropout >= 0 && dropout < 1))
    throw ValueError(runtime::format("ModelConfig: dropout is {}; it must be from 0 to below 1", dropout));
}

}  // namespace attn
