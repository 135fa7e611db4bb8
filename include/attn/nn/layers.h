// include/attn/nn/layers.h: defines the layers around attention: linear maps, embeddings, norms, dropout, activations.
#pragma once
#include <attn/nn/module.h>
#include <attn/ops.h>

#include <optional>

namespace attn::nn {

struct LinearOptions {
  bool bias = true;
  Dtype dtype = Dtype::f32;
  bool draw = true;  ///< false: the parameters start as zeros, because they are set or loaded later
};

/// Computes y = x W^T + b.
///
/// Shapes   x [.., in_features] -> [.., out_features]; weight [out_features, in_features], bias [out_features]
/// Dtypes   f32, f64, bf16, f16, the same for x and the parameters
/// Draws    weight: kaiming_uniform_(a = sqrt(5)); then bias: U(-1/sqrt(in_features), 1/sqrt(in_features))
/// Errors   ShapeError when x's last dim is not in_features
/// Source   torch.nn.Linear
class ATTN_API Linear : public Module {
 public:
  Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options = {});
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return forward(x); }
  const std::int64_t in_features, out_features;
  const Tensor weight, bias;
};

struct EmbeddingOptions {
  /// This row is zeros and gets no gradient; a negative index counts from the end.
  std::optional<std::int64_t> padding_idx = std::nullopt;
  Dtype dtype = Dtype::f32;
  bool draw = true;  ///< false: the table starts as zeros, because it is set or loaded later
};

/// Selects rows of a table: y[..] = weight[index[..]].
///
/// Shapes   index [..] (i64 or i32) -> [.., embedding_dim]; weight [num_embeddings, embedding_dim]
/// Draws    weight: N(0, 1), the padding row too, which is then set to 0
/// Errors   ValueError for an index out of range, or a padding_idx outside the table
/// Source   torch.nn.Embedding
class ATTN_API Embedding : public Module {
 public:
  Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim, const EmbeddingOptions& options = {});
  Tensor forward(const Tensor& index) const;
  Tensor operator()(const Tensor& index) const { return forward(index); }
  const std::int64_t num_embeddings, embedding_dim;
  const std::optional<std::int64_t> padding_idx;  ///< counted from 0
  const Tensor weight;
};

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;
  bool bias = true;
  Dtype dtype = Dtype::f32;
};

/// Computes y = (x - mean) / sqrt(var + eps) * weight + bias over the last dims, with the biased variance.
///
/// Shapes   x [.., normalized_shape..] -> the same; weight, bias normalized_shape (ones and zeros, nothing is drawn)
/// Errors   ShapeError when x does not end in normalized_shape
/// Source   Ba 2016 (1607.06450); torch.nn.LayerNorm
class ATTN_API LayerNorm : public Module {
 public:
  explicit LayerNorm(const Dims& normalized_shape, const LayerNormOptions& options = {});
  explicit LayerNorm(std::int64_t width, const LayerNormOptions& given = {}) : LayerNorm(Dims(width), given) {}
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return forward(x); }
  const Dims normalized_shape;
  const double eps;
  const Tensor weight, bias;
};

struct RMSNormOptions {
  std::optional<double> eps = std::nullopt;  ///< default: the machine epsilon of x's dtype (of f32 for half floats)
  bool elementwise_affine = true;
  Dtype dtype = Dtype::f32;
};

/// Computes y = x / sqrt(mean x^2 + eps) * weight over the last dims.
///
/// Shapes   x [.., normalized_shape..] -> the same; weight normalized_shape (ones, nothing is drawn)
/// Errors   ShapeError when x does not end in normalized_shape
/// Source   Zhang 2019 (1910.07467); torch.nn.RMSNorm
class ATTN_API RMSNorm : public Module {
 public:
  explicit RMSNorm(const Dims& normalized_shape, const RMSNormOptions& options = {});
  explicit RMSNorm(std::int64_t width, const RMSNormOptions& given = {}) : RMSNorm(Dims(width), given) {}
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return forward(x); }
  const Dims normalized_shape;
  const std::optional<double> eps;
  const Tensor weight;
};

/// In training computes x * keep / (1 - p), with keep drawn from the global generator as torch does; otherwise returns
/// x.
///
/// Errors   ValueError unless 0 <= p <= 1
/// Source   Srivastava 2014; torch.nn.Dropout
class ATTN_API Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5);
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return forward(x); }
  const double p;
};

/// Computes x/2 (1 + erf(x / sqrt 2)), or its tanh form. Source: Hendrycks 2016 (1606.08415).
class ATTN_API GELU : public Module {
 public:
  explicit GELU(GeluApproximate form = GeluApproximate::none) : approximate(form) {}
  Tensor forward(const Tensor& x) const { return gelu(x, approximate); }
  Tensor operator()(const Tensor& x) const { return forward(x); }
  const GeluApproximate approximate;
};

/// Computes max(x, 0).
class ATTN_API ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) const { return relu(x); }
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

/// Computes tanh(x).
class ATTN_API Tanh : public Module {
 public:
  Tensor forward(const Tensor& x) const { return tanh(x); }
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

}  // namespace attn::nn
