// src/nn/rotary.cc: implements rotary embedding: the cos and sin tables of given positions, and the rotation.
#include <attn/nn/rotary.h>
#include <attn/ops.h>

#include "nn/rotary_frequencies.h"

#include "runtime/format.h"

namespace attn::nn {
namespace {

std::int64_t checked_dim(std::int64_t dim) {
  if (dim < 2 || dim % 2 != 0)
    throw ValueError("RotaryEmbedding: dim is " + std::to_string(dim) + "; it must be even and at least 2");
  return dim;
}

const RotaryEmbeddingOptions& checked(std::int64_t dim, const RotaryEmbeddingOptions& options) {
  check_rotary("RotaryEmbedding", dim / 2, options);
  return options;
}

/// Puts the first elements of all pairs before the second ones, or back.
Tensor transposed_pairs(const Tensor& x, bool into_halves) {
  Dims sizes = x.sizes();
  const std::int64_t pairs = sizes[x.dim() - 1] / 2;
  sizes[x.dim() - 1] = into_halves ? pairs : 2;
  sizes.push_back(into_halves ? 2 : pairs);
  return x.reshape(sizes).transpose(-1, -2).reshape(x.sizes());
}

}  // namespace

RotaryEmbedding::RotaryEmbedding(std::int64_t dim, const RotaryEmbeddingOptions& options)
    : dim(checked_dim(dim)), options(checked(dim, options)), frequencies(rotary_frequencies(dim, options, 0)) {}

RotaryEmbedding::Tables RotaryEmbedding::tables(const Tensor& positions, Dtype dtype, std::int64_t tokens) const {
  const auto& scaling = options.scaling;
  if (tokens == 0 && scaling && positions.numel() > 0) tokens = static_cast<std::int64_t>(max(positions).item()) + 1;
  const bool own = scaling && !scaling->same(0, tokens);
  const Tensor all = own ? rotary_frequencies(dim, options, tokens) : frequencies;
  const auto angles_of = [&](const Tensor& at, const Tensor& by) { return at.to(Dtype::f32).unsqueeze(-1) * by; };
  Tensor angles;
  if (options.sections.empty()) {
    angles = angles_of(positions, all);
  } else {
    const auto count = static_cast<std::int64_t>(options.sections.size());
    if (positions.dim() < 1 || positions.size(0) != count)
      throw ShapeError(
          runtime::format("RotaryEmbedding: positions have shape {}; the first size must be the number of "
                          "sections, {}",
                          to_string(positions.sizes()), count));
    std::vector<Tensor> parts;
    std::int64_t first = 0;
    for (std::int64_t section = 0; section < count; ++section) {
      const std::int64_t pairs = options.sections[static_cast<std::size_t>(section)];
      parts.push_back(angles_of(positions[section], all.narrow(0, first, pairs)));
      first += pairs;
    }
    angles = cat(parts, -1);
  }
  angles = angles.to(dtype);
  const double factor = scaling ? scaling->table_factor() : 1;
  if (factor == 1) return {cos(angles), sin(angles)};
  return {cos(angles) * factor, sin(angles) * factor};
}

Tensor RotaryEmbedding::rotated(const Tensor& x, const Tables& tables) const {
  if (x.size(-1) > dim) return cat({rotated(x.narrow(-1, 0, dim), tables), x.narrow(-1, dim, x.size(-1) - dim)}, -1);
  if (!options.neighbours) return rotary(x, tables.cos, tables.sin);
  return transposed_pairs(rotary(transposed_pairs(x, /*into_halves=*/true), tables.cos, tables.sin),
                          /*into_halves=*/false);
}

Tensor RotaryEmbedding::forward(const Tensor& x, const Tensor& positions) const {
  const int more = options.sections.empty() ? 0 : 1;
  if (x.dim() != 4 || x.size(-1) < dim || positions.dim() < 1 + more || positions.dim() > 2 + more)
    throw ShapeError("RotaryEmbedding: x has shape " + to_string(x.sizes()) + ", positions " +
                     to_string(positions.sizes()) + "; they must be [B, H, T, " + std::to_string(dim) +
                     (more ? " or more] and [S, T] or [S, B, T]" : "] and [T] or [B, T]"));
  Tables table = tables(positions, x.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32);
  if (positions.dim() == 2 + more) table = {table.cos.unsqueeze(1), table.sin.unsqueeze(1)};
  return rotated(x, table);
}

}  // namespace attn::nn
