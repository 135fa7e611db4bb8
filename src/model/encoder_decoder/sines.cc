// src/model/encoder_decoder/sines.cc: computes the table of sine and cosine positions, with the roundings of
// transformers.
#include "model/encoder_decoder/sines.h"

#include <attn/ops.h>

#include <cmath>

namespace attn {
namespace {

/// Vaswani 2017 in f64.
Tensor sines_in_f64(std::int64_t rows, std::int64_t width) {
  // of an odd width the last sine has no cosine
  const std::int64_t sines = (width + 1) / 2, cosines = width / 2;
  const Tensor exponents = arange(0, sines).to(Dtype::f64) * (-2 * std::log(10000.0) / static_cast<double>(width));
  const Tensor angles = arange(0, rows).to(Dtype::f64).unsqueeze(1) * exp(exponents).unsqueeze(0);
  return cat({sin(angles), cos(angles).narrow(1, 0, cosines)}, 1).to(Dtype::f32);
}

/// tensor2tensor's in f32.
Tensor sines_in_f32(std::int64_t rows, std::int64_t width, std::int64_t padding) {
  const std::int64_t half = width / 2;
  const double step = -std::log(10000.0) / static_cast<double>(half - 1);
  const Tensor frequencies = exp(arange(0, half).to(Dtype::f32) * step);
  const Tensor angles = arange(padding, padding + rows).to(Dtype::f32).unsqueeze(1) * frequencies.unsqueeze(0);
  std::vector<Tensor> parts = {sin(angles), cos(angles)};
  if (width % 2 == 1) parts.push_back(zeros({rows, 1}));
  const Tensor table = cat(parts, 1);
  table.select(0, 0).fill_(0);
  return table;
}

}  // namespace

Tensor sines_of(const EncoderDecoderConfig& c) {
  if (c.family != EncoderDecoderConfig::Family::m2m_100) return sines_in_f64(c.positions, c.width);
  return sines_in_f32(1 + c.positions, c.width, c.padding_id);
}

}  // namespace attn
