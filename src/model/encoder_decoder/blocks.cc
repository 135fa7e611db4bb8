// src/model/encoder_decoder/blocks.cc: implements the layers of an encoder-decoder, with the norms before each part or
// after it.
#include "model/encoder_decoder/blocks.h"

#include <attn/ops.h>

#include "model/encoder/activation.h"
#include "model/encoder_decoder/sines.h"

#include <cmath>

namespace attn {
namespace {

using PairFamily = EncoderDecoderConfig::Family;

bool has_biases(const EncoderDecoderConfig& config) { return config.family != PairFamily::t5; }

bool is_of_bart(const EncoderDecoderConfig& config) {
  return config.family == PairFamily::bart || config.family == PairFamily::mbart;
}

bool has_head_bias(const EncoderDecoderConfig& config) {
  return has_biases(config) && config.family != PairFamily::m2m_100;
}

ModelNorm pair_norm(const EncoderDecoderConfig& config, Dtype dtype) {
  const auto kind = has_biases(config) ? ModelConfig::Norm::layer_norm : ModelConfig::Norm::rms_norm;
  return ModelNorm(kind, config.width, config.norm_eps, dtype);
}

ModelLinear pair_map(const EncoderDecoderConfig& config, std::int64_t in, std::int64_t out, Dtype dtype) {
  return ModelLinear(in, out, has_biases(config), dtype, /*stored=*/false);
}

nn::Embedding table_of(std::int64_t rows, std::int64_t columns, Dtype dtype) {
  return nn::Embedding(rows, columns, {.dtype = dtype, .draw = false});
}

std::int64_t bytes_of_weights(const EncoderDecoderConfig& c, Dtype dtype) {
  // an estimate: what decoding reads, for which packed copies are made
  const double mlp = static_cast<double>(c.gated ? 3 : 2) * static_cast<double>(c.decoder_mlp_width);
  const double inner = static_cast<double>(c.decoder_heads * c.dim_of_decoder_head());
  const double all = static_cast<double>(c.width) * (static_cast<double>(c.decoder_layers) * (8 * inner + mlp) +
                                                     static_cast<double>(c.decoder_vocab_size));
  constexpr double most = static_cast<double>(std::int64_t{1} << 30);
  const double bytes = all * static_cast<double>(size_of(dtype));
  return bytes <= most ? static_cast<std::int64_t>(bytes) : 0;
}

std::int64_t heads_of(const EncoderDecoderConfig& c, Side side) {
  return side == Side::encoder ? c.encoder_heads : c.decoder_heads;
}

std::int64_t dim_of_head(const EncoderDecoderConfig& c, Side side) {
  return side == Side::encoder ? c.dim_of_head() : c.dim_of_decoder_head();
}

std::int64_t mlp_width(const EncoderDecoderConfig& c, Side side) {
  return side == Side::encoder ? c.encoder_mlp_width : c.decoder_mlp_width;
}

/// Splits rows [total, parts * H * D] into parts [total, H, D].
std::vector<Tensor> heads_in(const Tensor& x, std::int64_t parts, std::int64_t heads, std::int64_t head_dim) {
  return x.reshape({x.size(0), parts * heads, head_dim})
      .split(std::vector<std::int64_t>(static_cast<std::size_t>(parts), heads), 1);
}

}  // namespace

PairLayer::PairLayer(const EncoderDecoderConfig& c, Side side, Dtype dtype)
    : norms_first(c.norms_first()), gated(c.gated), heads(heads_of(c, side)), head_dim(dim_of_head(c, side)),
      activation(c.activation), attention_norm(register_module("attention_norm", pair_norm(c, dtype))),
      qkv(register_module("qkv", pair_map(c, c.width, 3 * heads * head_dim, dtype))),
      out(register_module("out", pair_map(c, heads * head_dim, c.width, dtype))),
      cross_norm(side == Side::encoder ? std::nullopt
                                       : std::optional(register_module("cross_norm", pair_norm(c, dtype)))),
      cross_q(!cross_norm ? std::nullopt
                          : std::optional(register_module("cross_q", pair_map(c, c.width, heads * head_dim, dtype)))),
      cross_kv(!cross_norm
                   ? std::nullopt
                   : std::optional(register_module("cross_kv", pair_map(c, c.width, 2 * heads * head_dim, dtype)))),
      cross_out(!cross_norm
                    ? std::nullopt
                    : std::optional(register_module("cross_out", pair_map(c, heads * head_dim, c.width, dtype)))),
      mlp_norm(register_module("mlp_norm", pair_norm(c, dtype))),
      up(register_module("up", pair_map(c, c.width, (gated ? 2 : 1) * mlp_width(c, side), dtype))),
      down(register_module("down", pair_map(c, mlp_width(c, side), c.width, dtype))) {}

Tensor PairLayer::behind(const Tensor& x, const Tensor& y, const ModelNorm& norm, double dropped) const {
  const Tensor sum = x + (dropped > 0 ? dropout(y, dropped, true) : y);
  return norms_first ? sum : norm(sum);
}

Tensor PairLayer::attended(const Tensor& x, const Attend& attend, const Projections& project, double dropped) const {
  const std::vector<Tensor> parts = heads_in(project(qkv, before(x, attention_norm)), 3, heads, head_dim);
  return behind(x, project(out, attend(parts[0], parts[1], parts[2])), attention_norm, dropped);
}

Tensor PairLayer::cross_queries(const Tensor& x, const Projections& project) const {
  return project(*cross_q, before(x, *cross_norm)).reshape({x.size(0), heads, head_dim});
}

Tensor PairLayer::crossed(const Tensor& x, const std::function<Tensor(const Tensor&)>& attend,
                          const Projections& project, double dropped) const {
  return behind(x, project(*cross_out, attend(cross_queries(x, project))), *cross_norm, dropped);
}

Tensor PairLayer::mlp(const Tensor& x, const Projections& project, double dropped) const {
  Tensor y = project(up, before(x, mlp_norm));
  if (gated) {
    const std::vector<Tensor> halves = y.split({y.size(1) / 2, y.size(1) / 2}, 1);
    y = activated(halves[0], activation) * halves[1];
  } else {
    y = activated(y, activation);
  }
  return behind(x, project(down, y), mlp_norm, dropped);
}

PairStack::PairStack(const EncoderDecoderConfig& c, Side side, Dtype dtype)
    : learned_positions(is_of_bart(c)
                            ? std::optional(register_module("positions", table_of(c.positions + 2, c.width, dtype)))
                            : std::nullopt),
      sines(is_of_bart(c) || c.family == PairFamily::t5 ? Tensor() : sines_of(c).to(dtype)),
      embedding_norm(is_of_bart(c) ? std::optional(register_module("embedding_norm", pair_norm(c, dtype)))
                                   : std::nullopt),
      relative(c.family == PairFamily::t5
                   ? std::optional(register_module("relative", table_of(c.relative_buckets, heads_of(c, side), dtype)))
                   : std::nullopt),
      layers([&] {
        nn::ModuleList<PairLayer> list;
        const std::int64_t count = side == Side::encoder ? c.encoder_layers : c.decoder_layers;
        for (std::int64_t n = 0; n < count; ++n) list.push_back(PairLayer(c, side, dtype));
        return register_module("layers", list);
      }()),
      norm(c.norms_first() ? std::optional(register_module("norm", pair_norm(c, dtype))) : std::nullopt) {}

EncoderDecoder::Parts::Parts(const EncoderDecoderConfig& c, Dtype dtype)
    : dtype(dtype), embedding(c.width, c.vocab_size, /*with_bias=*/false, dtype, /*stored=*/false),
      decoder_embedding(c.shared_embedding ? std::nullopt
                                           : std::optional<ModelTable>(std::in_place, c.width, c.decoder_vocab_size,
                                                                       false, dtype, false)),
      encoder(c, Side::encoder, dtype), decoder(c, Side::decoder, dtype),
      head(c.tied_head ? std::nullopt
                       : std::optional<ModelLinear>(std::in_place, c.width, c.decoder_vocab_size, false, dtype, false)),
      head_bias(has_head_bias(c) ? zeros({c.decoder_vocab_size}, dtype) : Tensor()),
      embedding_scale(c.scaled_embedding ? std::optional(std::sqrt(static_cast<double>(c.width))) : std::nullopt),
      output_scale(c.scaled_output ? std::optional(1 / std::sqrt(static_cast<double>(c.width))) : std::nullopt),
      project(bytes_of_weights(c, dtype)) {}

Tensor EncoderDecoder::Parts::embedded(Side side, const Tensor& ids, const std::vector<std::int64_t>& rows,
                                       double dropped) const {
  const PairStack& stack = side == Side::encoder ? encoder : decoder;
  Tensor x = (side == Side::encoder ? embedding : target_embedding()).rows(ids);  // [total, C]
  if (embedding_scale) x = x * *embedding_scale;
  if (stack.learned_positions || stack.sines.defined()) {
    const Tensor at = tensor<std::int64_t>(rows);
    x = x + (stack.learned_positions ? (*stack.learned_positions)(at) : attn::embedding(at, stack.sines));
  }
  if (stack.embedding_norm) x = (*stack.embedding_norm)(x);
  return dropped > 0 ? dropout(x, dropped, true) : x;
}

}  // namespace attn
