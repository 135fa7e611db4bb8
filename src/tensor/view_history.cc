// src/tensor/view_history.cc: computes gradients of views from the positions of their elements in the base, after the
// base or a view of it was changed in place.
#include <attn/ops.h>

#include "runtime/fork.h"
#include "tensor/build.h"
#include "tensor/record.h"

#include <algorithm>
#include <mutex>

namespace attn {
namespace {

/// Which elements of a base a view shows, whatever other views lie between the two. Positions count elements in the
/// base's memory.
struct Window {
  Dims base_sizes, base_strides;
  Dims sizes, strides;
  std::int64_t first = 0;   // first element of the view, counted from the base's first
  std::int64_t lowest = 0;  // lowest position of the base; not 0 if a stride is negative
  std::int64_t extent = 0;  // number of positions of the base

  explicit Window(const TensorImpl& view)
      : base_sizes(view.base.sizes()), base_strides(view.base.strides()), sizes(view.sizes), strides(view.strides) {
    if (base_sizes.product() == 0) return;
    const auto bytes = static_cast<const char*>(view.data) - static_cast<const char*>(view.base.data());
    first = bytes / static_cast<std::int64_t>(size_of(view.dtype));
    std::int64_t highest = 0;
    for (int d = 0; d < base_sizes.size(); ++d) {
      const std::int64_t reach = (base_sizes[d] - 1) * base_strides[d];
      (reach < 0 ? lowest : highest) += reach;
    }
    extent = highest - lowest + 1;
  }
  /// Allocates zeros with the layout of the base.
  Tensor like_base(Dtype dtype) const {
    const Tensor memory = zeros({extent}, dtype);
    return make_view(memory, advance(memory, -lowest), base_sizes, base_strides);
  }
  /// Returns the same view of `laid_out`, which has the layout of the base.
  Tensor shown_of(const Tensor& laid_out) const {
    return make_view(laid_out, sizes.product() == 0 ? laid_out.data() : advance(laid_out, first), sizes, strides);
  }
};

Tensor in_base(const Tensor& values, const Window& window);

/// Returns the elements of x that the view shows; x has the base's sizes.
Tensor shown(const Tensor& x, const Window& window) {
  Tensor laid_out = x.detach();
  if (!(x.strides() == window.base_strides)) {
    laid_out = window.like_base(x.dtype());
    copy_values(laid_out, x);
  }
  return record("AsStridedBackward0", window.shown_of(laid_out),
                wrt(x, [window](auto& dy) { return in_base(dy, window); }));
}

/// Returns zeros of the base's sizes with `values` at the view's elements. If an expanded view shows an element several
/// times, its values are added.
Tensor in_base(const Tensor& values, const Window& window) {
  Dims repeated;
  for (int d = 0; d < window.sizes.size(); ++d)
    if (window.strides[d] == 0 && window.sizes[d] != 1) repeated.push_back(d);
  Tensor added = values.detach();
  if (!repeated.empty()) added = sum(widen(added), repeated, /*keepdim=*/true);
  Window once = window;
  for (const std::int64_t d : repeated) once.sizes[static_cast<int>(d)] = 1;
  const Tensor result = window.like_base(added.dtype());
  if (values.numel() != 0) copy_values(once.shown_of(result), added);
  return record("AsStridedBackwardBackward0", result, wrt(values, [window](auto& dy) { return shown(dy, window); }));
}

/// Returns x with `values` at the view's elements.
Tensor replaced(const Tensor& x, const Tensor& values, const Window& window) {
  const Tensor result = window.like_base(x.dtype());
  copy_values(result, x);
  copy_values(window.shown_of(result), values);
  const auto wrt_x = [window, dtype = values.dtype()](auto& dy) {
    return replaced(dy, zeros(window.sizes, dtype), window);
  };
  return record("CopySlicesBackward0", result, wrt(x, wrt_x),
                wrt(values, [window](auto& dy) { return shown(dy, window); }));
}

// locked by threads that read one view whose history is older than that of its base
constinit std::mutex several_readers;
const runtime::FreeInChild<several_readers> readers_of_child;

}  // namespace

Vjp change_of_base(const Tensor& view, Vjp change) {
  return [window = Window(*view.impl()), change = std::move(change)](const Backward& at) {
    Gradients gradients = change(at.with_grad(shown(at.grad(), window)));
    if (at.needs(0)) gradients[0] = replaced(at.grad(), gradients[0], window);
    return gradients;
  };
}

std::shared_ptr<Node> view_node(const TensorImpl& view, const std::shared_ptr<Node>& base_node, int output) {
  const auto node = std::make_shared<Node>("AsStridedBackward0");
  node->vjp = [window = Window(view)](const Backward& at) { return Gradients{in_base(at.grad(), window)}; };
  node->outputs.emplace_back(view.sizes, view.dtype);
  Edge& edge = node->edges.emplace_back();
  edge.node = base_node;
  edge.output = output;
  edge.sizes = view.base.sizes();
  edge.dtype = view.base.dtype();
  return node;
}

void set_view_history(TensorImpl& view, const std::shared_ptr<Node>& node, std::uint64_t sequence) noexcept {
  set_history(view, node, 0);
  view.seen.store(sequence, std::memory_order_release);
}

void follow_base(TensorImpl& view) {
  const Node* last = view.base.impl()->node.get();
  if (last == nullptr || last->sequence == view.seen.load(std::memory_order_acquire)) return;
  const std::lock_guard guard(several_readers);
  const std::uint64_t sequence = last->sequence;
  if (sequence == view.seen.load(std::memory_order_relaxed)) return;
  set_view_history(view, view_node(view, view.base.impl()->node, view.base.impl()->output), sequence);
}

}  // namespace attn
