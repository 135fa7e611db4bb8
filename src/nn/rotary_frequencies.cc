// src/nn/rotary_frequencies.cc: computes the frequencies of rotary embedding, with the scalings for long texts. Steps
// that transformers computes in f32 are in f32 here, those of Python's numbers in f64.
#include "nn/rotary_frequencies.h"

#include <attn/ops.h>

#include "runtime/floating_point.h"
#include "runtime/format.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

namespace attn::nn {
namespace {

using Kind = RotaryScaling::Kind;

bool is_above_0(double x) { return x > 0 && std::isfinite(x); }

void check_scaling(const std::string& who, std::int64_t pairs, const RotaryScaling& s) {
  if (s.kind < Kind::llama3 || s.kind > Kind::longrope)
    throw ValueError(
        runtime::format("{} has kind {}; the enumeration has no such value", who, static_cast<int>(s.kind)));
  if (!(is_above_0(s.factor) && is_above_0(s.low_frequency) && is_above_0(s.high_frequency) &&
        s.high_frequency >= s.low_frequency && s.original_context > 0))
    throw ValueError(
        runtime::format("{} has factor {}, low_frequency {}, high_frequency {}, original_context {}; "
                        "they must be above 0, and high_frequency no less than low_frequency",
                        who, s.factor, s.low_frequency, s.high_frequency, s.original_context));
  if (!(is_above_0(s.beta_fast) && is_above_0(s.beta_slow) && s.attention_factor >= 0 &&
        std::isfinite(s.attention_factor)))
    throw ValueError(
        runtime::format("{} has beta_fast {}, beta_slow {}, attention_factor {}; the first two must be "
                        "above 0, the last must not be negative",
                        who, s.beta_fast, s.beta_slow, s.attention_factor));
  if (s.kind == Kind::dynamic && !(pairs > 1 && s.factor >= 1))
    throw ValueError(
        runtime::format("{} is dynamic with factor {} for {}; it needs a factor of at least 1, and two "
                        "frequencies",
                        who, s.factor, pairs == 1 ? "one frequency" : "several frequencies"));
  if (s.kind != Kind::longrope) return;
  if (s.original_context < 2)
    throw ValueError(runtime::format("{} has original_context {}; it must be at least 2", who, s.original_context));
  for (const auto& [name, factors] :
       {std::pair("short_factors", &s.short_factors), std::pair("long_factors", &s.long_factors)}) {
    if (static_cast<std::int64_t>(factors->size()) != pairs)
      throw ValueError(runtime::format("{} has {} {}; it must have one for each of the {} frequencies", who,
                                       factors->size(), name, pairs));
    for (const double factor : *factors)
      if (!is_above_0(factor))
        throw ValueError(runtime::format("{} has {} in {}; each must be above 0", who, factor, name));
  }
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

/// The frequencies, counted in pairs, between which YaRN interpolates.
struct Range {
  double low, high;
};

Range yarn_range(std::int64_t dim, double theta, const RotaryScaling& s) {
  const auto pair_with = [&](double rotations) {
    return static_cast<double>(dim) *
           std::log(static_cast<double>(s.original_context) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  Range range{pair_with(s.beta_fast), pair_with(s.beta_slow)};
  if (s.truncate) range = {std::floor(range.low), std::ceil(range.high)};
  range = {std::max(range.low, 0.0), std::min(range.high, static_cast<double>(dim - 1))};
  if (range.low == range.high) range.high += 0.001;
  return range;
}

/// power: theta^(2i / dim), in f32.
float yarn(std::int64_t i, float power, const Range& range, double factor) {
  const float at = (static_cast<float>(i) - static_cast<float>(range.low)) / static_cast<float>(range.high - range.low),
              stay = 1 - std::clamp(at, 0.0f, 1.0f);
  return 1 / (static_cast<float>(factor) * power) * (1 - stay) + 1 / power * stay;
}

}  // namespace

double RotaryScaling::table_factor() const {
  if (kind != Kind::yarn && kind != Kind::longrope) return 1;
  if (attention_factor != 0) return attention_factor;
  if (factor <= 1) return 1;
  return kind == Kind::yarn ? 0.1 * std::log(factor) + 1
                            : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original_context)));
}

bool RotaryScaling::same(std::int64_t a, std::int64_t b) const {
  if (kind == Kind::longrope) return (a > original_context) == (b > original_context);
  return kind != Kind::dynamic || std::max(a, original_context) == std::max(b, original_context);
}

void check_rotary(const char* who, std::int64_t pairs, const RotaryEmbeddingOptions& options) {
  if (!is_above_0(options.theta))
    throw ValueError(runtime::format("{}: theta is {}; it must be above 0, and finite", who, options.theta));
  if (options.scaling) check_scaling(runtime::format("{}: scaling", who), pairs, *options.scaling);
  const auto& sections = options.sections;
  const bool all_above_0 =
      std::all_of(sections.begin(), sections.end(), [&](std::int64_t n) { return n > 0 && n <= pairs; });
  if (!sections.empty() &&
      (!all_above_0 || std::accumulate(sections.begin(), sections.end(), std::int64_t{0}) != pairs))
    throw ValueError(runtime::format("{}: sections are {}; each must be above 0, and their sum dim / 2, {}", who,
                                     to_string(Dims(sections)), pairs));
  if (options.axial && (sections.empty() || options.scaling))
    throw ValueError(runtime::format("{}: axial needs sections, and no scaling", who));
}

Tensor rotary_frequencies(std::int64_t dim, const RotaryEmbeddingOptions& options, std::int64_t tokens) {
  const runtime::DefaultFloatingPoint floating_point;
  const Tensor result = empty({dim / 2});
  const RotaryScaling* const s = options.scaling ? &*options.scaling : nullptr;
  double theta = options.theta;
  if (s && s->kind == Kind::dynamic && tokens > s->original_context)
    theta *=
        std::pow(s->factor * static_cast<double>(tokens) / static_cast<double>(s->original_context) - (s->factor - 1),
                 static_cast<double>(dim) / static_cast<double>(dim - 2));
  const Range range = s && s->kind == Kind::yarn ? yarn_range(dim, theta, *s) : Range{};
  std::int64_t section = 0, first = 0;  // with axial: the section of frequency i, and its first frequency
  for (std::int64_t i = 0; i < dim / 2; ++i) {
    std::int64_t at = i, whole = dim;
    if (options.axial) {
      if (i - first == options.sections[static_cast<std::size_t>(section)]) first = i, ++section;
      at = i - first, whole = 2 * options.sections[static_cast<std::size_t>(section)];
    }
    const float exponent = static_cast<float>(2 * at) / static_cast<float>(whole);
    const auto power = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    float f = 1.0f / power;
    if (s && s->kind == Kind::llama3) f = scaled(f, *s);
    if (s && s->kind == Kind::linear) f /= static_cast<float>(s->factor);
    if (s && s->kind == Kind::yarn) f = yarn(i, power, range, s->factor);
    if (s && s->kind == Kind::longrope) {
      const auto& factors = tokens > s->original_context ? s->long_factors : s->short_factors;
      f = 1.0f / (static_cast<float>(factors[static_cast<std::size_t>(i)]) * power);
    }
    if (!std::isfinite(f))
      throw ValueError(runtime::format("RotaryEmbedding: theta is {}{}; frequency {} is {} in f32, it must be finite",
                                       options.theta, s ? runtime::format(", scaling's factor {}", s->factor) : "", i,
                                       f));
    result.data<float>()[i] = f;
  }
  return result;
}

}  // namespace attn::nn
