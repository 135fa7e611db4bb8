// src/model/flat_gradients.h: keeps the gradients of all parameters of one dtype in one buffer.
#pragma once
#include <attn/ops.h>

#include "model/part_tree.h"

#include <vector>

namespace attn {

/// Makes each parameter's grad() a view into the buffer of its dtype, in the order of the parameters. The backward pass
/// adds into this buffer. A sum over machines (all-reduce) then takes a few arrays instead of hundreds of tensors.
class FlatGradients {
 public:
  explicit FlatGradients(const std::vector<Tensor>& parameters);
  void zero() const;
  /// Returns one buffer for each dtype, in the order in which the dtypes first occur among the parameters.
  const std::vector<Tensor>& buffers() const { return buffers_; }
  /// Returns where a parameter's gradient is in the buffer of its dtype; nothing for another tensor.
  Span elements_of(const Tensor& parameter) const;

 private:
  std::vector<Tensor> buffers_;
};

}  // namespace attn
