// src/model/encoder/projections.h: multiplies by the weights of an encoder's layers, which are packed once.
#pragma once
#include <attn/encoder.h>

#include "model/blocks.h"

#include "kernels/reference.h"
#include "tensor/packed_linear.h"

#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>

namespace attn {

/// Copies of weights as the kernels read them, by the weight's memory.
using PackedLayers = std::unordered_map<const void*, PackedLinear>;

/// Computes the linear layers of one call, with the same bits with and without packed copies.
struct EncoderProjections {
  std::shared_ptr<const PackedLayers> packed;  // null: there are none
  /// Computes activation(linear(x, weight, bias)).
  Tensor operator()(const ModelLinear& layer, const Tensor& x, EncoderConfig::Activation activation) const;
  Tensor operator()(const ModelLinear& layer, const Tensor& x) const;
};

/// Packs the weights of an encoder's layers when they are first used with more than 8 rows: without copies each
/// product packs them, which is a twentieth of the time of 4,096 rows, and more of fewer. A changed weight is
/// recognised by its version.
///
/// Threads   any number at once
class LayerPacker {
 public:
  /// Returns copies of all of these weights for a call with `rows` rows; null if they take more than 1 GiB, have a
  /// dtype that is not packed, or are not worth packing for its number of rows.
  std::shared_ptr<const PackedLayers> packed(std::span<const Tensor> weights, std::int64_t rows) const;

 private:
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const PackedLayers> packed_;
  mutable std::vector<std::uint64_t> versions_;  // of the weights that were packed
};

}  // namespace attn
