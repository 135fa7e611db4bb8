// src/model/config.cc: the shapes models come in, and what keeps a shape from being one.
#include <attn/model.h>

#include <limits>

namespace attn {
namespace {

constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();  // so that products of two sizes can be counted

void check_size(const char* name, std::int64_t value) {
  if (value < 1 || value > most)
    throw ValueError("ModelConfig: " + std::string(name) + " is " + std::to_string(value) + "; it must be from 1 to " + std::to_string(most));
}

void divides(const char* name, std::int64_t part, const char* whole_name, std::int64_t whole) {
  if (whole % part != 0)
    throw ValueError("ModelConfig: " + std::string(name) + " is " + std::to_string(part) + "; it must divide " + whole_name + " (" + std::to_string(whole) + ")");
}

}  // namespace

ModelConfig ModelConfig::nano(std::int64_t vocab_size) {
  return {.vocab_size = vocab_size, .context = 64, .layers = 4, .heads = 4, .width = 128};
}

ModelConfig ModelConfig::baby(std::int64_t vocab_size) {
  return {.vocab_size = vocab_size, .context = 256, .layers = 6, .heads = 6, .width = 384};
}

ModelConfig ModelConfig::small(std::int64_t vocab_size) { return {.vocab_size = vocab_size}; }

std::int64_t ModelConfig::parameters() const {
  const std::int64_t norms = width * (norm == Norm::layer_norm ? 2 : 1), q = heads * dim_of_head(), kv = 2 * key_value_heads() * dim_of_head(), m = dim_of_mlp();
  const std::int64_t attention = width * (q + kv) + q * width + (attention_bias ? q + kv + width : 0);
  const std::int64_t ups = activation == Activation::swiglu ? 2 : 1;
  const std::int64_t mlp = (ups + 1) * width * m + (mlp_bias ? ups * m + width : 0);
  return vocab_size * width * (tied_head ? 1 : 2) + (positions == Positions::learned ? context * width : 0) + layers * (2 * norms + attention + mlp) + norms;
}

void ModelConfig::check() const {
  check_size("vocab_size", vocab_size);
  check_size("context", context);
  check_size("layers", layers);
  check_size("heads", heads);
  check_size("width", width);
  check_size("kv_heads", key_value_heads());
  if (head_dim > 0) check_size("head_dim", head_dim);
  check_size("mlp_width", dim_of_mlp());
  if (head_dim <= 0) divides("heads", heads, "width", width);
  divides("kv_heads", key_value_heads(), "heads", heads);
  if (positions == Positions::rotary) {
    if (dim_of_head() % 2 != 0) throw ValueError("ModelConfig: head_dim is " + std::to_string(dim_of_head()) + "; rotary positions need an even one");
    if (!(rotary_theta > 0)) throw ValueError("ModelConfig: rotary_theta is " + std::to_string(rotary_theta) + "; it must be above 0");
  }
  if (!(norm_eps >= 0)) throw ValueError("ModelConfig: norm_eps is " + std::to_string(norm_eps) + "; it must not be negative");
  if (!(dropout >= 0 && dropout < 1)) throw ValueError("ModelConfig: dropout is " + std::to_string(dropout) + "; it must be from 0 to below 1");
}

}  // namespace attn
