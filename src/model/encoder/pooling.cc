// src/model/encoder/pooling.cc: makes the vector of a text from its rows, as sentence-transformers' modules do.
#include <attn/ops.h>

#include "model/encoder/blocks.h"
#include "model/encoder/texts.h"

#include "runtime/format.h"

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

using Kind = EncoderPooling::Kind;

Tensor weighted_mean(const Tensor& rows, std::int64_t first) {
  const auto a = static_cast<double>(first), n = static_cast<double>(rows.size(0));
  const Tensor weights = arange(Scalar(first + 1), Scalar(first + 1 + rows.size(0)), 1, rows.dtype());
  return sum(rows * weights.unsqueeze(1), {0}) / (n * (2 * a + n + 1) / 2);  // the sum of a + 1 ... a + n
}

}  // namespace

Tensor pooled_rows(const Tensor& all, Kind kind, std::int64_t prompt) {
  const std::int64_t first = std::min(prompt, all.size(0)), n = all.size(0) - first;
  if (kind == Kind::cls) return all.select(0, 0);
  if (n == 0) return zeros({all.size(1)}, all.dtype());
  const Tensor rows = all.narrow(0, first, n);
  switch (kind) {
    case Kind::max: return max(rows, 0).first;
    case Kind::lasttoken: return rows.select(0, n - 1);
    case Kind::weightedmean: return weighted_mean(rows, first);
    case Kind::mean_sqrt_len: return sum(rows, {0}) / std::sqrt(static_cast<double>(n));
    default: return sum(rows, {0}) / static_cast<double>(n);
  }
}

std::int64_t TextEncoder::dim() const {
  return parts_->dense.empty() ? config.width * static_cast<std::int64_t>(pooling.kinds.size())
                               : parts_->dense.back().weight.size(0);
}

Tensor TextEncoder::pooled(const Tensor& hidden, const Tensor& cu_seqlens,
                           const std::vector<std::int64_t>& prompts) const {
  if (!hidden.defined() || hidden.dim() != 2 || hidden.size(1) != config.width)
    throw ShapeError(runtime::format("TextEncoder: hidden has shape {}; it must be [total, {}]",
                                     hidden.defined() ? to_string(hidden.sizes()) : "[]", config.width));
  const std::vector<std::int64_t> ends = ends_of_texts(cu_seqlens, hidden.size(0));
  const std::size_t texts = ends.size() - 1;
  if (!prompts.empty() && prompts.size() != texts)
    throw ValueError(runtime::format("TextEncoder: prompts has {} entries; it must have one for each of the {} texts",
                                     prompts.size(), texts));
  const Tensor wide = hidden.to(hidden.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32);
  if (texts == 0) return zeros({0, dim()}, wide.dtype());
  std::vector<Tensor> vectors;
  for (std::size_t n = 0; n < texts; ++n) {
    const Tensor rows = wide.narrow(0, ends[n], ends[n + 1] - ends[n]);
    const std::int64_t prompt = prompts.empty() || pooling.include_prompt ? 0 : prompts[n];
    std::vector<Tensor> kinds;
    for (const Kind kind : pooling.kinds) kinds.push_back(pooled_rows(rows, kind, prompt));
    vectors.push_back(kinds.size() == 1 ? kinds[0] : cat(kinds));
  }
  Tensor x = stack(vectors);
  for (const EncoderDense& dense : parts_->dense) {
    x = linear(x, dense.weight, dense.bias);
    if (dense.tanh) x = tanh(x);
  }
  return pooling.normalize ? x / maximum(norm(x, 2, {-1}, /*keepdim=*/true), full({1}, 1e-12, x.dtype())) : x;
}

}  // namespace attn
