// src/model/encoder_decoder/initial_weights.cc: draws the initial weights of an encoder-decoder, with the deviations
// that transformers' classes have.
#include "model/encoder_decoder/initial_weights.h"

#include <attn/nn/init.h>
#include <attn/ops.h>

#include <cmath>

namespace attn {
namespace {

using PairConfig = EncoderDecoderConfig;

/// Returns the deviation of a matrix or a table by its name, without ".weight".
double deviation_of(const PairConfig& c, const std::string& name) {
  if (c.family != PairConfig::Family::t5) return 0.02;
  const auto inverse_root = [](std::int64_t n) { return 1 / std::sqrt(static_cast<double>(n)); };
  const std::string last = name.substr(name.rfind('.') + 1);
  const std::int64_t inner = c.encoder_heads * c.dim_of_head();
  if (last == "embedding") return 1;
  if (last == "down") return inverse_root(name.starts_with("encoder") ? c.encoder_mlp_width : c.decoder_mlp_width);
  if (last == "out" || last == "cross_out") return inverse_root(inner);
  if (last == "cross_q") return inverse_root(c.width * c.dim_of_head());
  return last == "head" ? 1 : inverse_root(c.width);
}

void draw(const Tensor& weight, double deviation, Generator& generator) {
  const bool half = size_of(weight.dtype()) == 2;
  const Tensor drawn = half ? empty(weight.sizes()) : weight;
  nn::init::normal_(drawn, 0, deviation, &generator);
  if (half) weight.copy_(drawn);
}

}  // namespace

void draw_initial_weights(const EncoderDecoder& model, Generator& generator) {
  const PairConfig& c = model.config;
  const std::string ending = ".weight";
  for (const auto& [full, parameter] : model.named_parameters()) {
    if (parameter.dim() != 2) continue;  // norms are ones, biases zeros
    const std::string name = full.substr(0, full.size() - ending.size());
    const Tensor weight = parameter.detach();
    draw(weight, deviation_of(c, name), generator);
    if (c.family == PairConfig::Family::t5) {
      const std::int64_t inner = c.encoder_heads * c.dim_of_head();
      // the scores are not scaled, so the queries are small
      if (name.ends_with(".qkv")) weight.narrow(0, 0, inner).mul_(1 / std::sqrt(static_cast<double>(c.dim_of_head())));
    } else if (name.ends_with("embedding")) {
      weight.select(0, c.padding_id).fill_(0);
    }
  }
}

}  // namespace attn
