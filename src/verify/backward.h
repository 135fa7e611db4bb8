// src/verify/backward.h: computes the gradients of a case with one kernel, on the library's threads.
#pragma once
#include "attention/backward.h"
#include "verify/attended.h"

namespace attn::cases {

/// Holds a checked call and what its forward pass saved. The library's best kernel runs that pass, whichever kernel
/// runs the backward pass.
class Differentiated {
 public:
  explicit Differentiated(const Inputs& in);
  /// From now on relative products are made by their definition.
  void define_products(const kernels::Reference& build);
  /// Runs the backward pass with the given options on the incoming gradient of the case.
  FusedGradients backward(AttentionBackward options) const;
  const Call& call() const { return attended_.call; }
  const SavedAttention& saved() const { return saved_; }

 private:
  Attended attended_;
  Tensor doutput_;
  SavedAttention saved_;
};

/// Returns dq, dk, dv and, if the case has them, dsinks, dw of an additive score, and the gradients of bias terms and
/// of looked-up tensors. `plan` null: the best kernel. `dlogsumexp`: an incoming gradient of the logsumexp, in addition
/// to the case's incoming gradient. `build`: whose definition makes relative products; null: the fused code.
Results gradients_by(const BackwardPlan* plan, const Inputs& in, const Tensor& dlogsumexp = {},
                     const kernels::Reference* build = nullptr);

}  // namespace attn::cases
