// src/verify/backward.h: the gradients of a case by one kernel, in the caller's thread or the library's.
#pragma once
#include "attention/backward.h"
#include "verify/attended.h"

namespace attn::cases {

/// A checked call with what its forward pass left. That is the library's: its bits are those of every kernel.
class Differentiated {
 public:
  explicit Differentiated(const Inputs& in);
  /// As options say, for the incoming gradient of the case.
  FusedGradients backward(AttentionBackward options) const;

 private:
  Attended attended_;
  Tensor doutput_;
  SavedAttention saved_;
};

/// dq, dk, dv, dsinks, dw of an additive score and those of the bias terms; `plan` null: the best kernel. `dlogsumexp`:
/// what comes in beside the case's.
Results gradients_by(const BackwardPlan* plan, const Inputs& in, const Tensor& dlogsumexp = {});

}  // namespace attn::cases
