// src/model/projections.cc: decides which weights get a packed copy, and after how many calls.
#include "model/projections.h"

#include <attn/autograd.h>
#include <attn/ops.h>

namespace attn {
namespace {

// the kernels' limit: for up to this many rows, loading the weights dominates the time
constexpr std::int64_t latency_bound_rows = 8;
constexpr int calls_to_pack = 32;

std::int64_t bytes_of(const Tensor& x) { return x.numel() * static_cast<std::int64_t>(size_of(x.dtype())); }

}  // namespace

Tensor Projections::operator()(const Tensor& x, const Tensor& weight, const Tensor& bias) const {
  if (!grad_enabled() && x.dtype() == weight.dtype() && x.numel() > 0)
    if (const auto packed = this->packed(weight, x.numel() / x.size(-1))) return (*packed)(x, bias);
  return linear(x, weight, bias);
}

std::optional<PackedLinear> Projections::packed(const Tensor& weight, std::int64_t rows) const {
  if (!PackedLinear::takes(weight.dtype())) return std::nullopt;
  // The lock may not be waited for: in a child process that was forked while another thread held it, it is never
  // released.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return std::nullopt;
  Met& met = met_[weight.data()];
  if (met.version != weight.version()) {
    if (met.packed) left_ += bytes_of(weight);
    met = Met();
    met.version = weight.version();
  }
  if (!met.packed && rows <= latency_bound_rows && ++met.calls >= calls_to_pack && bytes_of(weight) <= left_) {
    met.packed.emplace(weight);
    left_ -= bytes_of(weight);
  }
  return met.packed;
}

}  // namespace attn
