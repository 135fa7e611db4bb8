// include/attn/nn/rotary.h: rotates queries and keys by angles proportional to their position (rotary position
// embedding).
#pragma once
#include <attn/nn/module.h>

#include <cstdint>
#include <optional>

namespace attn::nn {

/// Llama 3's scaling for longer contexts: frequencies with wavelengths above original_context / low_frequency are
/// divided by `factor`; those with wavelengths below original_context / high_frequency stay; in between the frequency
/// is interpolated linearly.
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

/// Rotates the pair (x_i, x_{i + D/2}) of a row at position p by the angle p f_i, f_i = theta^(-2i/D). These are
/// Llama's pairs ("rotate half"), not adjacent elements.
///
/// Shapes   x [B, H, T, D], positions i64 [T], or [B, T] -> [B, H, T, D]
/// Dtypes   f32, f64, bf16, f16. Frequencies and angles are those of transformers, always rounded to f32
/// Errors   ValueError unless dim is even and at least 2, theta above 0 and finite, scaling above 0 and high_frequency
///          at least low_frequency, frequencies finite in f32; ShapeError
/// Gradient of x: rotated back by the same angles
/// Source   Su 2021 (2104.09864)
class ATTN_API RotaryEmbedding : public Module {
 public:
  explicit RotaryEmbedding(std::int64_t dim, const RotaryEmbeddingOptions& options = {});
  /// Returns cos and sin [.., T, D/2] of positions [.., T], in f32 or f64.
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
