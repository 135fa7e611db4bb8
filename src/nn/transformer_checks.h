// src/nn/transformer_checks.h: checks the arguments of the transformer's layers, under the names that they have there.
#pragma once
#include <attn/tensor.h>

#include <string>

namespace attn::nn {

/// The sizes of one call's rows. Unbatched rows have N = 1.
struct LayerRows {
  bool batched = false;
  std::int64_t batch = 0, rows = 0;
};

/// Returns the sizes of x; throws unless it has rank 2 or 3, d_model features and the parameters' dtype.
LayerRows check_rows(const std::string& who, const char* name, const Tensor& x, const Tensor& weight, bool batch_first);

struct LayerMask {
  const char* name;
  const Tensor& mask;
};

/// Throws unless each mask that is given has its shape and a dtype that attention takes, and a causal hint has a mask.
void check_layer_masks(const std::string& who, const LayerMask& mask, const LayerMask& padding, bool is_causal,
                       const LayerRows& q, const LayerRows& k, std::int64_t heads, Dtype dtype);

}  // namespace attn::nn
