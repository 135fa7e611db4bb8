// src/nn/init.cc: sets the initial values of parameters; computes bounds in torch's order of operations.
#include <attn/nn/init.h>

#include "runtime/floating_point.h"

#include "runtime/enum_value.h"
#include "runtime/format.h"

#include <cmath>

namespace attn::nn::init {
namespace {

struct Fans {
  double in, out;
};

Fans fans(const char* function, const Tensor& x) {
  if (x.dim() < 2)
    throw ShapeError(std::string(function) + ": the tensor has shape " + to_string(x.sizes()) +
                     "; fans need rank 2 or more");
  std::int64_t field = 1;
  for (int d = 2; d < x.dim(); ++d) field *= x.size(d);
  return {static_cast<double>(x.size(1) * field), static_cast<double>(x.size(0) * field)};
}

/// Returns `spread`. If x has elements, throws ValueError unless `spread` is finite and at least 0.
double checked(const char* function, const Tensor& x, double spread) {
  if (x.numel() > 0 && !(spread >= 0 && std::isfinite(spread)))
    throw ValueError(runtime::format("{}: the deviation is {}; it must be 0 or more, and finite", function, spread));
  return spread;
}

double kaiming_std(const char* function, const Tensor& x, const KaimingOptions& options) {
  const runtime::DefaultFloatingPoint floating_point;
  runtime::check_enum(options.mode, FanMode::fan_out, "{}: mode", function);
  const Fans fan = fans(function, x);
  const double gain = calculate_gain(options.nonlinearity, options.a);
  return checked(function, x, gain / std::sqrt(options.mode == FanMode::fan_in ? fan.in : fan.out));
}

double xavier_std(const char* function, const Tensor& x, double gain) {
  const runtime::DefaultFloatingPoint floating_point;
  const Fans fan = fans(function, x);
  return checked(function, x, gain * std::sqrt(2.0 / (fan.in + fan.out)));
}

}  // namespace

double calculate_gain(Nonlinearity nonlinearity, double slope) {
  runtime::check_enum(nonlinearity, Nonlinearity::selu, "calculate_gain: nonlinearity");
  switch (nonlinearity) {
    case Nonlinearity::tanh: return 5.0 / 3.0;
    case Nonlinearity::relu: return std::sqrt(2.0);
    case Nonlinearity::leaky_relu: return std::sqrt(2.0 / (1.0 + slope * slope));
    case Nonlinearity::selu: return 3.0 / 4.0;
    default: return 1.0;
  }
}

Tensor uniform_(Tensor x, double low, double high, Generator* generator) {
  if (!(low <= high && std::isfinite(high - low)))
    throw ValueError(
        runtime::format("uniform_: low is {}, high is {}; they must be finite, low at most high", low, high));
  generator ? attn::uniform_(x.detach(), low, high, *generator) : attn::uniform_(x.detach(), low, high);
  return x;
}

Tensor normal_(Tensor x, double mean, double std, Generator* generator) {
  checked("normal_", x, std);
  if (!std::isfinite(mean)) throw ValueError(runtime::format("normal_: mean is {}; it must be finite", mean));
  generator ? attn::normal_(x.detach(), mean, std, *generator) : attn::normal_(x.detach(), mean, std);
  return x;
}

Tensor constant_(Tensor x, Scalar value) {
  x.detach().fill_(value);
  return x;
}

Tensor zeros_(Tensor x) { return constant_(std::move(x), 0); }
Tensor ones_(Tensor x) { return constant_(std::move(x), 1); }

// The functions below draw nothing for a tensor without elements, because its bounds could be a division by 0.
Tensor xavier_uniform_(Tensor x, double gain, Generator* generator) {
  const double a = std::sqrt(3.0) * xavier_std("xavier_uniform_", x, gain);
  return x.numel() == 0 ? x : uniform_(x, -a, a, generator);
}

Tensor xavier_normal_(Tensor x, double gain, Generator* generator) {
  const double std = xavier_std("xavier_normal_", x, gain);
  return x.numel() == 0 ? x : normal_(x, 0, std, generator);
}

Tensor kaiming_uniform_(Tensor x, const KaimingOptions& options) {
  const double bound = std::sqrt(3.0) * kaiming_std("kaiming_uniform_", x, options);
  return x.numel() == 0 ? x : uniform_(x, -bound, bound, options.generator);
}

Tensor kaiming_normal_(Tensor x, const KaimingOptions& options) {
  const double std = kaiming_std("kaiming_normal_", x, options);
  return x.numel() == 0 ? x : normal_(x, 0, std, options.generator);
}

}  // namespace attn::nn::init
