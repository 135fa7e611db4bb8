// src/tensor/node.cc: implements the nodes of the tape: their edges, their saved tensors, and their destruction without
// recursion.
#include "tensor/node.h"

#include <attn/autograd.h>
#include <attn/ops.h>

#include <atomic>
#include <utility>

namespace attn {
namespace {

/// The list of nodes that a running destructor of this thread has still to destroy, linked by the node of their first
/// edge; null if no destructor runs. Nothing is allocated, because a destructor may run when memory is exhausted.
thread_local std::shared_ptr<Node>* letting_go = nullptr;

/// Moves the node to the list if this is its last reference, and continues with the node of its first edge. A node with
/// other references, or without edges, only loses this reference.
void let_go(std::shared_ptr<Node> node) noexcept {
  while (node != nullptr && node.use_count() == 1 && !node->edges.empty()) {
    // Copying and dropping the handle writes the reference count, which makes the writes visible that other threads
    // made before they released the node.
    std::shared_ptr<Node>(node).reset();
    std::shared_ptr<Node> next = std::exchange(node->edges.front().node, std::move(*letting_go));
    *letting_go = std::move(node);
    node = std::move(next);
  }
}

void let_go_of_all(Node& node) noexcept {
  for (Saved& kept : node.saved) let_go(std::move(kept.node));
  for (Edge& edge : node.edges) let_go(std::move(edge.node));
  node.saved.clear();
  node.edges.clear();
  node.vjp = nullptr;
}

}  // namespace

Edge::Edge(const Tensor& input) {
  if (!input.defined()) return;
  sizes = input.sizes();
  dtype = input.dtype();
  const TensorImpl& impl = current(input);
  if (!impl.requires_grad) return;
  node = impl.node;
  output = impl.output;
  if (!node) leaf = input;
}

Saved::Saved(const Tensor& x) {
  if (!x.defined()) return;
  const TensorImpl& impl = current(x);
  const bool is_leaf = impl.requires_grad && !impl.node;
  tensor = is_leaf ? x : x.detach();
  version = x.version();
  if (!impl.node) return;
  node = impl.node;
  output = impl.output;
}

Node::Node(const char* name) : name(name) {
  static std::atomic<std::uint64_t> made{1};
  sequence = made.fetch_add(1, std::memory_order_relaxed);
}

Node::~Node() {
  // The edges of a node hold further nodes. The first destructor of a chain destroys them one by one; the destructors
  // that it calls only add their nodes to the list.
  std::shared_ptr<Node> waiting;
  const bool outermost = letting_go == nullptr;
  if (outermost) letting_go = &waiting;
  let_go_of_all(*this);
  if (!outermost) return;
  while (waiting != nullptr) {
    const std::shared_ptr<Node> node = std::move(waiting);
    waiting = std::move(node->edges.front().node);
    let_go_of_all(*node);
  }
  letting_go = nullptr;
}

Backward::Backward(const std::shared_ptr<Node>& node, std::vector<Tensor> grads, std::vector<bool> needed)
    : node_(node), grads_(std::move(grads)), needed_(std::move(needed)), unpacked_(node->saved.size()) {}

Tensor Backward::grad_or_zeros(int i) const {
  if (grad(i).defined()) return grad(i);
  const auto& [sizes, dtype] = node_->outputs[static_cast<std::size_t>(i)];
  return zeros(sizes, dtype);
}

const Tensor& Backward::saved(int i) const {
  const Saved& kept = node_->saved[static_cast<std::size_t>(i)];
  if (!kept.tensor.defined()) return kept.tensor;
  if (kept.tensor.version() != kept.version)
    throw ValueError("backward: " + std::string(node_->name) + " saved a tensor of shape " +
                     to_string(kept.tensor.sizes()) + " at version " + std::to_string(kept.version) +
                     "; it was changed in place and is at version " + std::to_string(kept.tensor.version()) +
                     "; change a clone() instead");
  if (kept.output < 0 || !grad_enabled()) return kept.tensor;
  Tensor& result = unpacked_[static_cast<std::size_t>(i)];
  if (!result.defined()) {
    result = kept.tensor.detach();
    result.impl()->requires_grad = true;
    result.impl()->node = kept.node ? kept.node : node_;
    result.impl()->output = kept.output;
  }
  return result;
}

}  // namespace attn
