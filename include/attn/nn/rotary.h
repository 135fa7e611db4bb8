// include/attn/nn/rotary.h: rotates queries and keys by angles proportional to their position (rotary position
// embedding).
#pragma once
#include <attn/nn/module.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace attn::nn {

/// A scaling of the frequencies for texts longer than those of the training, as transformers computes it (its
/// rope_type). A kind uses the fields that its line names.
struct ATTN_API RotaryScaling {
  enum class Kind {
    llama3,    ///< factor, low_frequency, high_frequency, original_context: frequencies with wavelengths above
               ///< original_context / low_frequency are divided by `factor`; those with wavelengths below
               ///< original_context / high_frequency stay; in between the frequency is interpolated linearly
    linear,    ///< factor: all frequencies are divided by it
    dynamic,   ///< factor, original_context: in a text of n > original_context tokens theta is multiplied by
               ///< (factor n / original_context - (factor - 1))^(D / (D - 2)) (NTK)
    yarn,      ///< factor, original_context, beta_fast, beta_slow, truncate: frequencies that turn less than beta_slow
               ///< times within original_context are divided by `factor`, those that turn more than beta_fast times
               ///< stay, the ones between are interpolated. Source: Peng 2023 (2309.00071)
    longrope,  ///< short_factors, long_factors, original_context: each frequency is divided by its factor, in texts of
               ///< more than original_context tokens by its long one. Source: Ding 2024 (2402.13753)
  };
  double factor = 8;
  double low_frequency = 1;
  double high_frequency = 4;
  std::int64_t original_context = 8192;
  Kind kind = Kind::llama3;
  /// yarn, longrope: cos and sin are multiplied by it. 0: with yarn 0.1 ln(factor) + 1, with longrope
  /// sqrt(1 + ln(factor) / ln(original_context)); 1 for a factor of at most 1.
  double attention_factor = 0;
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;  ///< whether the bounds of the interpolation are rounded to whole frequencies
  std::vector<double> short_factors = {}, long_factors = {};  ///< one for each frequency

  /// Returns the factor of cos and sin; 1 for the kinds that have none.
  double table_factor() const;
  /// Returns whether texts of `a` and of `b` tokens have the same frequencies.
  bool same(std::int64_t a, std::int64_t b) const;
  friend bool operator==(const RotaryScaling&, const RotaryScaling&) = default;
};

struct RotaryEmbeddingOptions {
  double theta = 10000;
  std::optional<RotaryScaling> scaling = std::nullopt;
  /// Pairs are neighbours, (x_2i, x_{2i + 1}), instead of elements of two halves, (x_i, x_{i + dim/2}).
  bool neighbours = false;
  /// A token has several positions (of time, height and width), and this many frequencies turn with each of them, in
  /// this order (M-RoPE, Qwen 2-VL's mrope_section). Empty: one position.
  std::vector<std::int64_t> sections = {};
  /// Each section has its own frequencies, theta^(-i / n) for its n frequencies, instead of a part of one list: the two
  /// axes of a picture.
  bool axial = false;
};

/// Rotates the pairs of a row at position p by the angles p f_i, f_i = theta^(-2i / dim): (x_i, x_{i + dim/2}), Llama's
/// pairs ("rotate half"), or neighbours. If dim is less than D, elements from `dim` on stay as they are.
///
/// Shapes   x [B, H, T, D], positions i64 [T], or [B, T] -> [B, H, T, D]; with S sections positions [S, T], [S, B, T]
/// Dtypes   f32, f64, bf16, f16. Frequencies and angles are those of transformers, always rounded to f32
/// Errors   ValueError unless dim is even and at least 2, theta above 0 and finite, the fields of the scaling's kind
///          above 0 and its factors as many as frequencies, sections the number of frequencies, frequencies finite in
///          f32; ShapeError
/// Gradient of x: rotated back by the same angles
/// Source   Su 2021 (2104.09864)
class ATTN_API RotaryEmbedding : public Module {
 public:
  /// `dim`: how many elements of a row are rotated.
  explicit RotaryEmbedding(std::int64_t dim, const RotaryEmbeddingOptions& options = {});
  /// Returns cos and sin [.., T, dim/2] of positions [.., T], in f32 or f64. `tokens`: those of the text, which decide
  /// the frequencies of some scalings; 0: one more than the greatest position.
  struct Tables {
    Tensor cos, sin;
  };
  Tables tables(const Tensor& positions, Dtype dtype = Dtype::f32, std::int64_t tokens = 0) const;
  /// Rotates x [.., D] by tables that broadcast to [.., dim/2].
  Tensor rotated(const Tensor& x, const Tables& tables) const;
  Tensor forward(const Tensor& x, const Tensor& positions) const;
  Tensor operator()(const Tensor& x, const Tensor& positions) const { return forward(x, positions); }
  const std::int64_t dim;
  const RotaryEmbeddingOptions options;
  const Tensor frequencies;  ///< f32 [dim/2], those of short texts
};

}  // namespace attn::nn
