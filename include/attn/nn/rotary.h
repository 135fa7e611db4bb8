// include/attn/nn/rotary.h: rotary position embedding: queries and keys turned by angles that grow with their position.
#pragma once
#include <attn/nn/module.h>

#include <cstdint>
#include <optional>

namespace attn::nn {

/// Llama 3's way to longer contexts: frequencies with wavelengths above original_context / low_frequency are divided by
/// `factor`, those below original_context / high_frequency stay, a line between the two joins them.
struct RotaryScaling {
  double factor = 8;
  double low_frequency = 1;
  double high_frequency = 4;
  std::int64_t original_context = 8192;
  friend bool operator==(const RotaryScaling&, const RotaryScaling&) = default;
};

struct RotaryEmbeddingOptions {
  double theta = 10000;
  std::optional<RotaryScaling> scaling = std::nullopt;
};

/// Pair (x_i, x_{i + D/2}) of a row at position p is turned by the angle p f_i, f_i = theta^(-2i/D): Llama's pairs
/// ("rotate half"), not those of neighbours.
///
/// Shapes   x [B, H, T, D], positions i64 [T], or [B, T] -> [B, H, T, D]
/// Dtypes   f32, f64, bf16, f16. Frequencies and angles are those of transformers: rounded to f32 in any case
/// Errors   ValueError unless dim is even and at least 2, theta above 0 and finite, scaling above 0, frequencies finite
///          in f32; ShapeError
/// Gradient x: turned back by the same angles
/// Source   Su 2021 (2104.09864)
class ATTN_API RotaryEmbedding : public Module {
 public:
  explicit RotaryEmbedding(std::int64_t dim, const RotaryEmbeddingOptions& options = {});
  /// The tables cos and sin [.., T, D/2] of positions [.., T], in f32 or f64.
  struct Tables {
    Tensor cos, sin;
  };
  Tables tables(const Tensor& positions, Dtype dtype = Dtype::f32) const;
  Tensor forward(const Tensor& x, const Tensor& positions) const;
  Tensor operator()(const Tensor& x, const Tensor& positions) const { return forward(x, positions); }
  const std::int64_t dim;
  const Tensor frequencies;  ///< f32 [D/2]
};

}  // namespace attn::nn
