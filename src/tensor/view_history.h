// src/tensor/view_history.h: a view and the tensor whose memory it shows have one history: the base's, seen through the
// view.
#pragma once
#include "tensor/record.h"

namespace attn {

/// The gradient of a change of `view` in place, as one of its base: `change` gives those of the view's old values and
/// of the other inputs; what the view does not show keeps its gradient.
Vjp change_of_base(const Tensor& view, Vjp change);

/// What makes `view` of its base, whose history is result `output` of `base_node` by then.
std::shared_ptr<Node> view_node(const TensorImpl& view, const std::shared_ptr<Node>& base_node, int output);
/// `node`, which view_node made for the base's node of that sequence, is the history of `view` from now on.
void set_view_history(TensorImpl& view, const std::shared_ptr<Node>& node, std::uint64_t sequence) noexcept;

}  // namespace attn
