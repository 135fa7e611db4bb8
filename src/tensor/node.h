// src/tensor/node.h: defines the tape: which operation made a tensor, what it saved, and how a gradient flows back
// through it.
#pragma once
#include "tensor/impl.h"

#include <list>
#include <span>

namespace attn {

/// A tensor that a node saved for the backward pass. A later change in place is detected when the tensor is used.
struct Saved {
  Tensor tensor;  // undefined: nothing saved
  std::uint64_t version = 0;
  // the history of the tensor when it was saved; null for a result of this node, because the two would hold each other
  std::shared_ptr<Node> node;
  int output = -1;  // which result of `node` it is

  Saved() = default;
  /// Saves a leaf that requires a gradient unchanged, and other tensors without their history: a later change in place
  /// may make `x` a result of the node that saves it.
  explicit Saved(const Tensor& x);
};

class Backward;
/// One gradient for each input of a node, undefined for "none". A gradient may have any shape to which the input was
/// broadcast, and any floating dtype. It may be the same tensor as the gradient of a result.
using Gradients = std::vector<Tensor>;
using Vjp = std::function<Gradients(const Backward& at)>;

/// Where the gradient of an input goes: to the node that made the input, to the leaf that the input is, or nowhere.
struct Edge {
  std::shared_ptr<Node> node;
  int output = 0;  // which result of the node
  Tensor leaf;
  Dims sizes;
  Dtype dtype = Dtype::f32;

  Edge() = default;
  explicit Edge(const Tensor& input);
  bool wanted() const { return node != nullptr || leaf.defined(); }
};

/// A recorded operation that leads to a result whose gradient is wanted.
struct Node {
  const char* name;        // torch's name, as print shows it: "MmBackward0"
  std::uint64_t sequence;  // counts from 1; a node is made after the nodes that made its inputs
  std::vector<Edge> edges;
  std::vector<Saved> saved;
  Vjp vjp;
  std::vector<std::pair<Dims, Dtype>> outputs;
  std::list<std::pair<int, std::weak_ptr<TensorImpl>>> retained;  // results whose gradient the user wants to keep
  bool freed = false;                                             // whether its saved tensors were freed

  explicit Node(const char* name);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();  // destroys a chain of any length without recursion
};

/// Makes x result number `output` of `node`. If the user asked to keep x's gradient (retain_grad), the new node keeps
/// it.
void set_history(TensorImpl& x, const std::shared_ptr<Node>& node, int output) noexcept;

/// Gives a view the new history of its base if the base was changed in place on the tape since the last call
/// (view_history.cc).
void follow_base(TensorImpl& view);
/// Returns the object that x points to, with its history up to date.
inline TensorImpl& current(const Tensor& x) {
  TensorImpl& impl = *x.impl();
  if (impl.base.defined()) follow_base(impl);
  return impl;
}

/// What a node sees while it runs in a backward pass: the gradients of its results, and its saved tensors.
class Backward {
 public:
  Backward(const std::shared_ptr<Node>& node, std::vector<Tensor> grads, std::vector<bool> needed);
  /// Returns the gradient of result i; undefined if no gradient reached it.
  const Tensor& grad(int i = 0) const { return grads_[static_cast<std::size_t>(i)]; }
  /// Returns the gradient of result i; zeros if no gradient reached it.
  Tensor grad_or_zeros(int i) const;
  /// Returns whether this pass needs the gradient of input i.
  bool needs(int i) const { return needed_[static_cast<std::size_t>(i)]; }
  std::size_t inputs() const { return needed_.size(); }
  /// Returns a copy of this object in which the only result has another gradient.
  Backward with_grad(Tensor grad) const { return {node_, {std::move(grad)}, needed_}; }
  /// Returns saved tensor i, with its history if the pass makes a graph. Throws ValueError if the tensor was changed in
  /// place.
  const Tensor& saved(int i) const;

 private:
  const std::shared_ptr<Node>& node_;
  std::vector<Tensor> grads_;
  std::vector<bool> needed_;
  mutable std::vector<Tensor> unpacked_;
};

}  // namespace attn
