// src/model/flat_gradients.h: the gradients of all parameters of one dtype side by side in one buffer.
#pragma once
#include <attn/ops.h>

#include <vector>

namespace attn {

/// Each parameter's grad() is a view into the buffer of its dtype, in the order of the parameters, so that a backward
/// pass adds into it, and what is to be summed over machines is a few arrays instead of hundreds of tensors.
class FlatGradients {
 public:
  explicit FlatGradients(const std::vector<Tensor>& parameters);
  void zero() const;
  /// One a dtype, in the order in which the parameters first have them.
  const std::vector<Tensor>& buffers() const { return buffers_; }

 private:
  std::vector<Tensor> buffers_;
};

}  // namespace attn
