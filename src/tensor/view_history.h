// src/tensor/view_history.h: a view and the tensor whose memory it shows have one history: the base's, seen through the view.
#pragma once
#include "tensor/record.h"

namespace attn {

/// The gradient of a change of `view` in place, as one of its base: `change` gives those of the view's old values and of the other
/// inputs; what the view does not show keeps its gradient.
Vjp change_of_base(const Tensor& view, Vjp change);

}  // namespace attn
