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

}  // namespace attn
