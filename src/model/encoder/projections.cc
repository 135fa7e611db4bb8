// src/model/encoder/projections.cc: decides when an encoder's weights are packed, and joins products with activations.
#include "model/encoder/projections.h"

#include <attn/autograd.h>
#include <attn/encoder.h>
#include <attn/ops.h>

#include "model/encoder/activation.h"
#include "tensor/products.h"

#include <algorithm>
#include <optional>

namespace attn {
namespace {

using Activation = EncoderConfig::Activation;

/// Returns the activation as a product can apply it to its sums; nullopt for tanh, which it cannot.
std::optional<kernels::Activation> of_product(Activation activation) {
  switch (activation) {
    case Activation::gelu: return kernels::Activation::gelu_none;
    case Activation::gelu_tanh: return kernels::Activation::gelu_tanh;
    case Activation::relu: return kernels::Activation::relu;
    case Activation::silu: return kernels::Activation::silu;
    default: return std::nullopt;
  }
}

}  // namespace

Tensor EncoderProjections::operator()(const ModelLinear& layer, const Tensor& x, Activation activation) const {
  const auto fused = of_product(activation);
  if (!fused || grad_enabled() || layer.matrix) return activated((*this)(layer, x), activation);
  if (packed != nullptr) return packed->at(layer.weight.data())(x, layer.bias, *fused);
  return linear_activated(x, layer.weight, layer.bias, *fused);
}

Tensor EncoderProjections::operator()(const ModelLinear& layer, const Tensor& x) const {
  if (layer.matrix) return layer.matrix->linear(x, layer.bias);
  if (packed != nullptr) return packed->at(layer.weight.data())(x, layer.bias);
  return linear(x, layer.weight, layer.bias);
}

std::shared_ptr<const PackedLayers> LayerPacker::packed(std::span<const Tensor> weights, std::int64_t rows) const {
  constexpr std::int64_t most_unpacked_rows = 8;  // products of so few read the weights as they are
  constexpr std::int64_t most_bytes = std::int64_t{1} << 30;
  if (grad_enabled() || weights.empty() || !PackedLinear::takes(weights[0].dtype())) return nullptr;
  std::vector<std::uint64_t> versions;
  std::int64_t bytes = 0;
  for (const Tensor& weight : weights) {
    versions.push_back(weight.version());
    bytes += weight.numel() * static_cast<std::int64_t>(size_of(weight.dtype()));
  }
  if (bytes > most_bytes) return nullptr;
  // The lock may not be waited for: in a child process that was forked while another thread held it, it is never
  // released.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return nullptr;
  if (packed_ != nullptr && versions == versions_) return packed_;
  packed_.reset();
  if (rows <= most_unpacked_rows) return nullptr;
  PackedLayers layers;
  for (const Tensor& weight : weights) layers.emplace(weight.data(), weight);
  packed_ = std::make_shared<const PackedLayers>(std::move(layers));
  versions_ = std::move(versions);
  return packed_;
}

}  // namespace attn
