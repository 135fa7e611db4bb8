// src/model/gguf/rope_factors.cc: finds the scaling of rotary frequencies that rope_freqs.weight stands for.
#include "model/gguf/model.h"

#include <attn/error.h>
#include <attn/ops.h>

#include "runtime/format.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace attn::gguf {
namespace {

/// Returns the wavelengths of the frequencies.
std::vector<double> wavelengths(std::int64_t head_dim, double theta) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < head_dim / 2; ++i)
    result.push_back(2 * std::numbers::pi *
                     std::pow(theta, static_cast<double>(2 * i) / static_cast<double>(head_dim)));
  return result;
}

/// Returns the factor by which a frequency is divided.
double factor_of(double wavelength, const nn::RotaryScaling& s) {
  const auto context = static_cast<double>(s.original_context);
  if (wavelength < context / s.high_frequency) return 1;
  if (wavelength > context / s.low_frequency) return s.factor;
  const double stay = (context / wavelength - s.low_frequency) / (s.high_frequency - s.low_frequency);
  return 1 / ((1 - stay) / s.factor + stay);
}

/// Returns whether the scaling gives these factors, which were computed and stored in f32.
bool gives(const nn::RotaryScaling& scaling, const std::vector<double>& lengths, const float* factors) {
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if (!(std::abs(factor_of(lengths[i], scaling) - factors[i]) <= 1e-5 * factors[i])) return false;
  return true;
}

}  // namespace

Tensor factors_of(const nn::RotaryScaling& scaling, std::int64_t head_dim, double theta) {
  Tensor result = empty({head_dim / 2});
  const std::vector<double> lengths = wavelengths(head_dim, theta);
  for (std::size_t i = 0; i < lengths.size(); ++i)
    result.data<float>()[i] = static_cast<float>(factor_of(lengths[i], scaling));
  return result;
}

std::optional<nn::RotaryScaling> scaling_of(const GgufFile& file, std::int64_t head_dim, double theta) {
  const GgufFile::Entry* const entry = file.find("rope_freqs.weight");
  if (entry == nullptr) return std::nullopt;
  const std::vector<double> lengths = wavelengths(head_dim, theta);
  if (!(entry->sizes == Dims({head_dim / 2})))
    throw ValueError(runtime::format("{}: rope_freqs.weight is {}; it must be {}", file.name(), to_string(entry->sizes),
                                     to_string(Dims({head_dim / 2}))));
  const Tensor table = file.tensor(entry->name);
  const float* const factors = table.data<float>();
  const float greatest = *std::max_element(factors, factors + lengths.size());
  if (std::all_of(factors, factors + lengths.size(), [](float x) { return x == 1; })) return std::nullopt;
  // The factors determine the context's length only together with the two bounds, which all of Llama 3's models share.
  for (std::int64_t context = std::int64_t{1} << 30; context > 1; context /= 2) {
    const nn::RotaryScaling scaling{
        .factor = greatest, .low_frequency = 1, .high_frequency = 4, .original_context = context};
    if (gives(scaling, lengths, factors)) return scaling;
  }
  throw ValueError(runtime::format(
      "{}: rope_freqs.weight holds other factors than Llama 3's scaling with bounds of 1 and 4 and a power of two as "
      "the original context; attn reads no others",
      file.name()));
}

}  // namespace attn::gguf
