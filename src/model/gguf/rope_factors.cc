// src/model/gguf/rope_factors.cc: finds the scaling of rotary frequencies: of keys, or of tables of factors.
#include "model/gguf/model.h"

#include <attn/error.h>
#include <attn/ops.h>

#include "runtime/format.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
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

using Scaling = nn::RotaryScaling;

/// Throws a ValueError unless the table has a factor for each frequency.
void check_size(const GgufFile& file, const GgufFile::Entry& entry, std::int64_t dim) {
  if (!(entry.sizes == Dims({dim / 2})))
    throw ValueError(runtime::format("{}: {} is {}; it must be {}", file.name(), entry.name, to_string(entry.sizes),
                                     to_string(Dims({dim / 2}))));
}

/// Returns the scaling of a type that the keys name.
std::optional<Scaling> scaling_of_keys(const GgufFile& file, const std::string& prefix) {
  // Older files have the linear scale under a key of its own.
  if (const std::string key = prefix + "rope.scale_linear"; file.number(key, 1) != 1) file.refuse(key, "it must be 1");
  const std::string key = prefix + "rope.scaling.", type = file.text(key + "type", "none");
  const double factor = file.number(key + "factor", type == "none" ? 1 : 0);
  if (type == "none" || factor == 1) return std::nullopt;
  Scaling scaling{.factor = factor, .kind = Scaling::Kind::linear};
  if (type == "linear") return scaling;
  if (type != "yarn")
    file.refuse(key + "type", "attn reads none, linear, yarn, and the factors of Llama 3 and Phi-3 in tables");
  scaling.kind = Scaling::Kind::yarn;
  scaling.original_context = file.integer(key + "original_context_length");
  scaling.beta_fast = file.number(key + "yarn_beta_fast", scaling.beta_fast);
  scaling.beta_slow = file.number(key + "yarn_beta_slow", scaling.beta_slow);
  for (const auto& [fixed, usual] : {std::pair("yarn_ext_factor", 1.0), {"yarn_log_multiplier", 0.0}})
    if (file.number(key + fixed, usual) != usual) file.refuse(key + fixed, runtime::format("it must be {}", usual));
  double attention = 1;
  for (const char* one : {"attn_factor", "yarn_attn_factor"}) attention *= file.number(key + one, 1);
  if (attention != 1) scaling.attention_factor = attention * scaling.table_factor();
  return scaling;
}

/// Returns one of Phi-3's tables.
std::vector<double> table_of(const GgufFile& file, const char* name, std::int64_t dim) {
  const GgufFile::Entry* const entry = file.find(name);
  if (entry == nullptr) throw ValueError(runtime::format("{}: {} is missing", file.name(), name));
  check_size(file, *entry, dim);
  const Tensor table = file.tensor(name);
  std::vector<double> result;
  for (std::int64_t i = 0; i < dim / 2; ++i)  // what the decimals of config.json gave
    result.push_back(std::strtod(runtime::format("{}", table.data<float>()[i]).c_str(), nullptr));
  return result;
}

std::optional<Scaling> longrope(const GgufFile& file, const std::string& prefix, std::int64_t dim,
                                std::int64_t context) {
  Scaling scaling{.original_context = file.integer(prefix + "rope.scaling.original_context_length", context),
                  .kind = Scaling::Kind::longrope,
                  .short_factors = table_of(file, factor_tables[1], dim),
                  .long_factors = table_of(file, factor_tables[2], dim)};
  scaling.factor = static_cast<double>(context) / static_cast<double>(scaling.original_context);
  // said in f32: what transformers computes is left out
  const double said = file.number(prefix + "rope.scaling.attn_factor", 1), usual = scaling.table_factor();
  if (std::abs(said - usual) > 1e-6 * usual) scaling.attention_factor = said;
  return scaling;
}

/// Returns Llama 3's scaling for the factors of the table.
std::optional<Scaling> llama3(const GgufFile& file, const GgufFile::Entry& entry, std::int64_t dim, double theta) {
  const std::vector<double> lengths = wavelengths(dim, theta);
  check_size(file, entry, dim);
  const Tensor table = file.tensor(entry.name);
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

}  // namespace

Tensor factors_of(const nn::RotaryScaling& scaling, std::int64_t dim, double theta) {
  Tensor result = empty({dim / 2});
  const std::vector<double> lengths = wavelengths(dim, theta);
  for (std::size_t i = 0; i < lengths.size(); ++i)
    result.data<float>()[i] = static_cast<float>(factor_of(lengths[i], scaling));
  return result;
}

std::optional<nn::RotaryScaling> scaling_of(const GgufFile& file, const std::string& prefix, std::int64_t dim,
                                            double theta, std::int64_t context) {
  const GgufFile::Entry* const entry = file.find(factor_tables[0]);
  if (file.find(factor_tables[1]) != nullptr || file.find(factor_tables[2]) != nullptr)
    return longrope(file, prefix, dim, context);
  if (const auto scaling = scaling_of_keys(file, prefix); scaling || entry == nullptr) return scaling;
  return llama3(file, *entry, dim, theta);
}

}  // namespace attn::gguf
