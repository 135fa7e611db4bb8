// src/nn/layers.cc: implements linear layers, embeddings, norms and dropout.
#include <attn/nn/init.h>
#include <attn/nn/layers.h>
#include <attn/random.h>

#include "runtime/format.h"

#include "tensor/record.h"

#include <cmath>

namespace attn::nn {
namespace {

Tensor linear_bias(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options) {
  if (!options.bias) return {};
  if (!options.draw) return zeros({out_features}, options.dtype);
  const double bound = in_features > 0 ? 1.0 / std::sqrt(static_cast<double>(in_features)) : 0.0;
  return init::uniform_(empty({out_features}, options.dtype), -bound, bound);
}

Tensor linear_weight(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options) {
  if (!options.draw) return zeros({out_features, in_features}, options.dtype);
  return init::kaiming_uniform_(empty({out_features, in_features}, options.dtype), {.a = std::sqrt(5.0)});
}

std::optional<std::int64_t> padding_row(std::int64_t rows, const std::optional<std::int64_t>& padding_idx) {
  if (!padding_idx || rows < 0) return std::nullopt;  // a negative number of rows: allocating the table throws next
  if (*padding_idx < -rows || *padding_idx >= rows)
    throw ValueError("Embedding: padding_idx is " + std::to_string(*padding_idx) + "; it must be from " +
                     std::to_string(-rows) + " to " + std::to_string(rows - 1));
  return *padding_idx < 0 ? *padding_idx + rows : *padding_idx;
}

Tensor embedding_table(std::int64_t rows, std::int64_t columns, const std::optional<std::int64_t>& padding,
                       const EmbeddingOptions& options) {
  if (!options.draw) return zeros({rows, columns}, options.dtype);
  Tensor table = init::normal_(empty({rows, columns}, options.dtype));
  if (padding) table.select(0, *padding).zero_();
  return table;
}

}  // namespace

Linear::Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options)
    : in_features(in_features), out_features(out_features),
      weight(register_parameter("weight", linear_weight(in_features, out_features, options))),
      bias(register_parameter("bias", linear_bias(in_features, out_features, options))) {}

Tensor Linear::forward(const Tensor& x) const { return linear(x, weight, bias); }

Embedding::Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim, const EmbeddingOptions& options)
    : num_embeddings(num_embeddings), embedding_dim(embedding_dim),
      padding_idx(padding_row(num_embeddings, options.padding_idx)),
      weight(register_parameter("weight", embedding_table(num_embeddings, embedding_dim, padding_idx, options))) {}

Tensor Embedding::forward(const Tensor& index) const {
  if (!padding_idx) return embedding(index, weight);
  // `table` shares the weight's memory; its gradient is that of the weight with the row of padding_idx set to 0.
  const Tensor table = record("EmbeddingPaddingBackward0", weight.detach(), wrt(weight, [row = *padding_idx](auto& dy) {
                                return masked_fill(dy, eq(arange(dy.size(0)).unsqueeze(1), row), 0);
                              }));
  return embedding(index, table);
}

LayerNorm::LayerNorm(const Dims& normalized_shape, const LayerNormOptions& options)
    : normalized_shape(normalized_shape), eps(options.eps),
      weight(
          register_parameter("weight", options.elementwise_affine ? ones(normalized_shape, options.dtype) : Tensor())),
      bias(register_parameter(
          "bias", options.elementwise_affine && options.bias ? zeros(normalized_shape, options.dtype) : Tensor())) {}

Tensor LayerNorm::forward(const Tensor& x) const { return layer_norm(x, normalized_shape, weight, bias, eps); }

RMSNorm::RMSNorm(const Dims& normalized_shape, const RMSNormOptions& options)
    : normalized_shape(normalized_shape), eps(options.eps),
      weight(register_parameter("weight",
                                options.elementwise_affine ? ones(normalized_shape, options.dtype) : Tensor())) {}

Tensor RMSNorm::forward(const Tensor& x) const { return rms_norm(x, normalized_shape, weight, eps); }

Dropout::Dropout(double p) : p(p) {
  if (!(p >= 0 && p <= 1)) throw ValueError(runtime::format("Dropout: p is {}; it must be from 0 to 1", p));
}

Tensor Dropout::forward(const Tensor& x) const { return dropout(x, p, is_training()); }

}  // namespace attn::nn
