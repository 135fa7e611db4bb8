// src/nn/rotary.cc: implements rotary embedding: computes the frequencies, the cos and sin tables of given positions,
// and the rotation.
#include <attn/nn/rotary.h>
#include <attn/ops.h>

#include "runtime/floating_point.h"

#include "runtime/format.h"

#include <cmath>
#include <numbers>

namespace attn::nn {
namespace {

std::int64_t checked_dim(std::int64_t dim) {
  if (dim < 2 || dim % 2 != 0)
    throw ValueError("RotaryEmbedding: dim is " + std::to_string(dim) + "; it must be even and at least 2");
  return dim;
}

RotaryEmbeddingOptions checked(const RotaryEmbeddingOptions& options) {
  if (!(options.theta > 0) || !std::isfinite(options.theta))
    throw ValueError(runtime::format("RotaryEmbedding: theta is {}; it must be above 0, and finite", options.theta));
  if (const auto& s = options.scaling;
      s && !(s->factor > 0 && s->low_frequency > 0 && s->high_frequency >= s->low_frequency &&
             s->original_context > 0 && std::isfinite(s->factor) && std::isfinite(s->high_frequency)))
    throw ValueError(runtime::format(
        "RotaryEmbedding: scaling has factor {}, low_frequency {}, high_frequency {}, original_context {}; "
        "they must be above 0, and high_frequency no less than low_frequency",
        s->factor, s->low_frequency, s->high_frequency, s->original_context));
  return options;
}

/// Scales frequency f as Llama 3 does, each step in f32.
float scaled(float f, const RotaryScaling& s) {
  const float context = static_cast<float>(s.original_context), wavelength = 2 * std::numbers::pi_v<float> / f;
  const float low = static_cast<float>(s.low_frequency), high = static_cast<float>(s.high_frequency),
              factor = static_cast<float>(s.factor);
  if (wavelength < context / high) return f;
  if (wavelength > context / low) return f / factor;
  const float stay = (context / wavelength - low) / (high - low);
  return (1 - stay) * f / factor + stay * f;
}

Tensor frequencies_of(std::int64_t dim, const RotaryEmbeddingOptions& options) {
  const runtime::DefaultFloatingPoint floating_point;
  const Tensor result = empty({dim / 2});
  for (std::int64_t i = 0; i < dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    const float f = 1.0f / static_cast<float>(std::pow(options.theta, static_cast<double>(exponent)));
    const float turns = options.scaling ? scaled(f, *options.scaling) : f;
    if (!std::isfinite(turns))
      throw ValueError(runtime::format(
          "RotaryEmbedding: theta is {}{}; frequency {} is {} in f32, it must be finite", options.theta,
          options.scaling ? runtime::format(", scaling's factor {}", options.scaling->factor) : "", i, turns));
    result.data<float>()[i] = turns;
  }
  return result;
}

}  // namespace

RotaryEmbedding::RotaryEmbedding(std::int64_t dim, const RotaryEmbeddingOptions& options)
    : dim(checked_dim(dim)), frequencies(frequencies_of(dim, checked(options))) {}

RotaryEmbedding::Tables RotaryEmbedding::tables(const Tensor& positions, Dtype dtype) const {
  const Tensor angles = (positions.to(Dtype::f32).unsqueeze(-1) * frequencies).to(dtype);
  return {cos(angles), sin(angles)};
}

Tensor RotaryEmbedding::forward(const Tensor& x, const Tensor& positions) const {
  if (x.dim() != 4 || x.size(-1) != dim || positions.dim() < 1 || positions.dim() > 2)
    throw ShapeError("RotaryEmbedding: x has shape " + to_string(x.sizes()) + ", positions " +
                     to_string(positions.sizes()) + "; they must be [B, H, T, " + std::to_string(dim) +
                     "] and [T] or [B, T]");
  Tables table = tables(positions, x.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32);
  if (positions.dim() == 2) table = {table.cos.unsqueeze(1), table.sin.unsqueeze(1)};
  return rotary(x, table.cos, table.sin);
}

}  // namespace attn::nn
