// include/attn/nn/init.h: first values of parameters, number for number as torch.nn.init draws them.
#pragma once
#include <attn/random.h>

namespace attn::nn::init {

// All write in place, whether or not the tensor requires a gradient, and return the tensor. Bounds are computed in
// double and rounded once to the tensor's type. `generator` null: the global one, under its lock. Fans: fan_in =
// size(1) * the product of the sizes after it, fan_out = size(0) * the same product; ShapeError below rank 2.

ATTN_API Tensor uniform_(Tensor x, double low = 0, double high = 1, Generator* generator = nullptr);
ATTN_API Tensor normal_(Tensor x, double mean = 0, double std = 1, Generator* generator = nullptr);
ATTN_API Tensor constant_(Tensor x, Scalar value);
ATTN_API Tensor zeros_(Tensor x);
ATTN_API Tensor ones_(Tensor x);

/// U(-a, a), a = sqrt(3) * gain * sqrt(2 / (fan_in + fan_out)). Source: Glorot 2010.
ATTN_API Tensor xavier_uniform_(Tensor x, double gain = 1, Generator* generator = nullptr);
/// N(0, gain^2 * 2 / (fan_in + fan_out)). Source: Glorot 2010.
ATTN_API Tensor xavier_normal_(Tensor x, double gain = 1, Generator* generator = nullptr);

enum class FanMode { fan_in, fan_out };
enum class Nonlinearity { linear, sigmoid, tanh, relu, leaky_relu, selu };
/// The gain torch recommends: 1, 1, 5/3, sqrt(2), sqrt(2 / (1 + slope^2)), 3/4. `slope` counts for leaky_relu alone.
ATTN_API double calculate_gain(Nonlinearity nonlinearity, double slope = 0.01);

struct KaimingOptions {
  double a = 0;  ///< slope of leaky_relu below 0
  FanMode mode = FanMode::fan_in;
  Nonlinearity nonlinearity = Nonlinearity::leaky_relu;
  Generator* generator = nullptr;
};
/// U(-b, b), b = sqrt(3) * gain / sqrt(fan). Source: He 2015 (1502.01852).
ATTN_API Tensor kaiming_uniform_(Tensor x, const KaimingOptions& options = {});
/// N(0, gain^2 / fan). Source: He 2015 (1502.01852).
ATTN_API Tensor kaiming_normal_(Tensor x, const KaimingOptions& options = {});

}  // namespace attn::nn::init
