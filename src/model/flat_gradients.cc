// src/model/flat_gradients.cc: stores gradients as views of one buffer for each dtype.
#include "model/flat_gradients.h"

#include <algorithm>

namespace attn {

FlatGradients::FlatGradients(const std::vector<Tensor>& parameters) {
  std::vector<Dtype> dtypes;
  for (const Tensor& x : parameters)
    if (std::find(dtypes.begin(), dtypes.end(), x.dtype()) == dtypes.end()) dtypes.push_back(x.dtype());
  for (const Dtype dtype : dtypes) {
    std::int64_t total = 0, at = 0;
    for (const Tensor& x : parameters) total += x.dtype() == dtype ? x.numel() : 0;
    buffers_.push_back(zeros({total}, dtype));
    for (const Tensor& x : parameters) {
      if (x.dtype() != dtype) continue;
      x.set_grad(buffers_.back().narrow(0, at, x.numel()).view(x.sizes()));
      at += x.numel();
    }
  }
}

void FlatGradients::zero() const {
  for (const Tensor& buffer : buffers_) buffer.zero_();
}

Span FlatGradients::elements_of(const Tensor& parameter) const {
  const Tensor gradient = parameter.grad();
  if (gradient.defined())
    for (const Tensor& buffer : buffers_) {
      const auto* first = static_cast<const char*>(buffer.data());
      const auto* data = static_cast<const char*>(gradient.data());
      const auto size = static_cast<std::int64_t>(size_of(buffer.dtype()));
      if (const std::int64_t at = (data - first) / size; data >= first && at < buffer.numel())
        return {at, at + gradient.numel()};
    }
  return {0, 0};
}

}  // namespace attn
