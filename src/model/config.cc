// src/model/config.cc: defines the preset model sizes and checks a ModelConfig.
#include <attn/model.h>

#include "model/fields.h"

#include "runtime/format.h"

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

bool is_above_0(double x) { return x > 0 && std::isfinite(x); }

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
  const T ups = c.activation == ModelConfig::Activation::swiglu ? 2 : 1;
  const T mlp = (ups + 1) * width * m + (c.mlp_bias ? ups * m + width : 0);
  const T tables = static_cast<T>(c.vocab_size) * width * (c.tied_head ? 1 : 2);
  const T places = c.positions == ModelConfig::Positions::learned ? static_cast<T>(c.context) * width : 0;
  return tables + places + static_cast<T>(c.layers) * (2 * norms + attention + mlp) + norms;
}

}  // namespace

ModelConfig ModelConfig::nano(std::int64_t vocab_size) {
  return {.vocab_size = vocab_size, .context = 64, .layers = 4, .heads = 4, .width = 128};
}

ModelConfig ModelConfig::baby(std::int64_t vocab_size) {
  return {.vocab_size = vocab_size, .context = 256, .layers = 6, .heads = 6, .width = 384};
}

ModelConfig ModelConfig::small(std::int64_t vocab_size) { return {.vocab_size = vocab_size}; }

Mask ModelConfig::mask() const {
  return sliding_window > 0 ? Mask::causal() & Mask::window(sliding_window - 1, 0) : Mask::causal();
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
  if (sliding_window != 0) check_size("sliding_window", sliding_window);
  check_value("norm", norm);
  check_value("positions", positions);
  check_value("activation", activation);
  if (head_dim == 0) divides("heads", heads, "width", width);
  divides("kv_heads", key_value_heads(), "heads", heads);
  const bool rotary = positions == Positions::rotary;
  if (rotary && dim_of_head() % 2 != 0)
    throw ValueError("ModelConfig: head_dim is " + std::to_string(dim_of_head()) +
                     "; rotary positions need an even one");
  if (const auto& s = rotary_scaling;
      s && !(is_above_0(s->factor) && is_above_0(s->low_frequency) && is_above_0(s->high_frequency) &&
             s->high_frequency >= s->low_frequency && s->original_context > 0))
    throw ValueError(runtime::format(
        "ModelConfig: rotary_scaling has factor {}, low_frequency {}, high_frequency {}, original_context {}; "
        "they must be above 0, and high_frequency no less than low_frequency",
        s->factor, s->low_frequency, s->high_frequency, s->original_context));
  if (!is_above_0(rotary_theta))
    throw ValueError(runtime::format("ModelConfig: rotary_theta is {}; it must be above 0, and finite", rotary_theta));
  if (!(numbers_of<double>(*this) < 0x1p60))
    throw ValueError("ModelConfig: the weights are more numbers than can be counted");
  if (!(norm_eps >= 0) || std::isinf(norm_eps))
    throw ValueError(runtime::format("ModelConfig: norm_eps is {}; it must not be negative, and finite", norm_eps));
  if (!(dropout >= 0 && dropout < 1))
    throw ValueError(runtime::format("ModelConfig: dropout is {}; it must be from 0 to below 1", dropout));
}

}  // namespace attn
