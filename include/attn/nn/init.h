// include/attn/nn/init.h: draws initial values of parameters, the same numbers as torch.nn.init.
#pragma once
#include <attn/random.h>

namespace attn::nn::init {

// All functions write in place, whether or not the tensor requires a gradient, and return the tensor. Bounds are
// computed in double and rounded once to the tensor's type. `generator` null: the global generator, under its lock.
// fan_in is size(1) times the product of the later sizes, fan_out is size(0) times the same product; ShapeError for
// rank 0 and 1.

ATTN_API Tensor uniform_(Tensor x, double low = 0, double high = 1, Generator* generator = nullptr);
ATTN_API Tensor normal_(Tensor x, double mean = 0, double std = 1, Generator* generator = nullptr);
ATTN_API Tensor constant_(Tensor x, Scalar value);
ATTN_API Tensor zeros_(Tensor x);
ATTN_API Tensor ones_(Tensor x);

/// Draws U(-a, a), a = sqrt(3) * gain * sqrt(2 / (fan_in + fan_out)). Source: Glorot 2010.
ATTN_API Tensor xavier_uniform_(Tensor x, double gain = 1, Generator* generator = nullptr);
/// Draws N(0, gain^2 * 2 / (fan_in + fan_out)). Source: Glorot 2010.
ATTN_API Tensor xavier_normal_(Tensor x, double gain = 1, Generator* generator = nullptr);

enum class FanMode { fan_in, fan_out };
enum class Nonlinearity { linear, sigmoid, tanh, relu, leaky_relu, selu };
/// Returns the gain that torch recommends: 1, 1, 5/3, sqrt(2), sqrt(2 / (1 + slope^2)), 3/4. Only leaky_relu uses
/// `slope`.
ATTN_API double calculate_gain(Nonlinearity nonlinearity, double slope = 0.01);

struct KaimingOptions {
  double a = 0;  ///< slope of leaky_relu for x < 0
  FanMode mode = FanMode::fan_in;
  Nonlinearity nonlinearity = Nonlinearity::leaky_relu;
  Generator* generator = nullptr;
};
/// Draws U(-b, b), b = sqrt(3) * gain / sqrt(fan). Source: He 2015 (1502.01852).
ATTN_API Tensor kaiming_uniform_(Tensor x, const KaimingOptions& options = {});
/// Draws N(0, gain^2 / fan). Source: He 2015 (1502.01852).
ATTN_API Tensor kaiming_normal_(Tensor x, const KaimingOptions& options = {});

}  // namespace attn::nn::init
