// src/tensor/node.h: the tape: which operation made a tensor, what it kept, and how a gradient goes back through it.
#pragma once
#include "tensor/impl.h"

#include <list>
#include <span>

namespace attn {

/// A tensor kept for the backward pass as it was: a change in place since then is found out when it is asked for.
struct Saved {
  Tensor tensor;  // undefined: nothing kept
  std::uint64_t version = 0;
  std::shared_ptr<Node> node;  // its history, as it was; none for a result of the node itself, which would hold itself
  int output = -1;             // which result of that node it is

  Saved() = default;
  /// A leaf that requires a gradient is kept as it is, the others without their history: a later change in place may
  /// make `x` a result of what it is saved for.
  explicit Saved(const Tensor& x);
};

class Backward;
/// The gradients of the inputs, one each, undefined for "none": of any shape that broadcast the input, of any floating
/// dtype. They may be the gradients of the results themselves.
using Gradients = std::vector<Tensor>;
using Vjp = std::function<Gradients(const Backward& at)>;

/// Where the gradient of an input goes: to the node that made it, into the leaf it is, or nowhere.
struct Edge {
  std::shared_ptr<Node> node;
  int output = 0;  // which of the node's results
  Tensor leaf;
  Dims sizes;
  Dtype dtype = Dtype::f32;

  Edge() = default;
  explicit Edge(const Tensor& input);
  bool wanted() const { return node != nullptr || leaf.defined(); }
};

/// One operation on the way to a result that wants a gradient.
struct Node {
  const char* name;        // torch's: "MmBackward0"; print shows it
  std::uint64_t sequence;  // from 1; a node is made after all that its inputs come from
  std::vector<Edge> edges;
  std::vector<Saved> saved;
  Vjp vjp;
  std::vector<std::pair<Dims, Dtype>> outputs;
  std::list<std::pair<int, std::weak_ptr<TensorImpl>>> retained;  // results whose gradient the user asked to see
  bool freed = false;                                             // what it had saved is gone

  explicit Node(const char* name);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();  // a chain of any length is let go without recursion
};

/// x is result `output` of `node` from now on; that its gradient is to be kept goes along.
void set_history(TensorImpl& x, const std::shared_ptr<Node>& node, int output) noexcept;

/// A view whose base was changed in place on the tape since it was last asked takes up the base's new history
/// (view_history.cc).
void follow_base(TensorImpl& view);
/// What x points to, its history up to date.
inline TensorImpl& current(const Tensor& x) {
  TensorImpl& impl = *x.impl();
  if (impl.base.defined()) follow_base(impl);
  return impl;
}

/// What a node sees when its turn has come in a backward pass.
class Backward {
 public:
  Backward(const std::shared_ptr<Node>& node, std::vector<Tensor> grads, std::vector<bool> needed);
  /// The gradient of result i; undefined when nothing flowed there.
  const Tensor& grad(int i = 0) const { return grads_[static_cast<std::size_t>(i)]; }
  /// The same, zeros instead of undefined.
  Tensor grad_or_zeros(int i) const;
  /// Whether the gradient of input i is wanted by this pass.
  bool needs(int i) const { return needed_[static_cast<std::size_t>(i)]; }
  std::size_t inputs() const { return needed_.size(); }
  /// The same turn with another gradient of the one result.
  Backward with_grad(Tensor grad) const { return {node_, {std::move(grad)}, needed_}; }
  /// Tensor i of those saved, with its history when the pass makes a graph. ValueError when it was changed in place.
  const Tensor& saved(int i) const;

 private:
  const std::shared_ptr<Node>& node_;
  std::vector<Tensor> grads_;
  std::vector<bool> needed_;
  mutable std::vector<Tensor> unpacked_;
};

}  // namespace attn
