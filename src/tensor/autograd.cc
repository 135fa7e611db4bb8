// src/tensor/autograd.cc: runs the backward pass: nodes run from the last made to the first, and the gradients of a
// tensor with several uses are added.
#include <attn/autograd.h>
#include <attn/ops.h>

#include "runtime/floating_point.h"
#include "tensor/leaf_by_leaf.h"
#include "tensor/record.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace attn {
namespace {

/// Sums `gradient` over the dims along which `sizes` was broadcast.
Tensor sum_to(const char* name, const Tensor& gradient, const Dims& sizes) {
  const int added = gradient.dim() - sizes.size();
  Dims summed;
  bool fits = added >= 0;
  for (int d = 0; fits && d < gradient.dim(); ++d) {
    if (d < added || (sizes[d - added] == 1 && gradient.size(d) != 1)) summed.push_back(d);
    else fits = gradient.size(d) == sizes[d - added];
  }
  if (!fits)
    throw ShapeError("backward: " + std::string(name) + " gave a gradient of shape " + to_string(gradient.sizes()) +
                     " for an input of shape " + to_string(sizes) + "; the input must broadcast to it");
  return summed.empty() ? gradient : sum(gradient, summed, /*keepdim=*/true).reshape(sizes);
}

/// Returns whether x is the only handle to its memory.
bool is_exclusive(const Tensor& x) { return x.use_count() == 1 && x.impl()->storage.use_count() == 1; }

/// Adds `gradient` to `total`. An undefined `total` counts as zero.
void accumulate(Tensor& total, Tensor gradient) {
  if (!total.defined()) total = std::move(gradient);
  else if (!grad_enabled() && is_exclusive(total) && total.is_contiguous()) total.add_(gradient);
  else total = total + gradient;
}

/// Adds the gradient to x.grad(), in place if there is one and nothing is recorded. Does nothing if x no longer
/// requires a gradient.
void accumulate_grad(const Tensor& x, Tensor gradient) {
  if (!x.requires_grad()) return;
  if (!x.grad().defined()) {
    x.set_grad(is_exclusive(gradient) && gradient.is_contiguous() ? gradient : gradient.clone());
  } else if (grad_enabled()) {
    x.set_grad(x.grad() + gradient);
  } else {
    x.grad().add_(gradient);
  }
}

/// A tensor whose gradient the caller wants: a result of a node, or a leaf.
struct Target {
  const Node* node;  // null for a leaf
  int output;
  Tensor x;
  Tensor gradient;
};

class Pass {
 public:
  Pass(const std::vector<Tensor>& outputs, bool retain_graph) : retain_graph_(retain_graph) {
    for (const Tensor& output : outputs)
      if (const auto& node = current(output).node) roots_.push_back(node);
  }

  /// Restricts the pass to the nodes between the outputs and `targets`.
  void aim_at(const std::vector<Tensor>& targets) {
    aimed_ = true;
    for (const Tensor& x : targets) targets_.push_back({current(x).node.get(), x.impl()->output, x, {}});
    mark_needed();
  }

  void run(const std::vector<Tensor>& outputs, std::vector<Tensor> grads) {
    run(outputs, std::move(grads), [](std::uint64_t) {});
  }
  /// Calls `ran` with the sequence of each node that has run. No node made later runs from then on.
  template <typename Ran>
  void run(const std::vector<Tensor>& outputs, std::vector<Tensor> grads, const Ran& ran) {
    for (std::size_t i = 0; i < outputs.size(); ++i) send(Edge(outputs[i]), std::move(grads[i]));
    while (!waiting_.empty()) {
      Waiting next = std::move(waiting_.extract(std::prev(waiting_.end())).mapped());
      const std::uint64_t sequence = next.node->sequence;
      run_node(std::move(next));
      ran(sequence);
    }
  }

  std::vector<Target>& targets() { return targets_; }
  /// Returns the leaves with their gradients, in the order in which they first received one.
  std::vector<std::pair<Tensor, Tensor>>& leaves() { return leaves_; }
  std::vector<std::pair<Tensor, Tensor>>& retained() { return retained_; }
  /// Returns a leaf's gradient, undefined if none has reached it.
  Tensor take(const Tensor& leaf) {
    const auto found = leaf_index_.find(leaf.impl());
    return found == leaf_index_.end() ? Tensor() : std::move(leaves_[found->second].second);
  }
  /// Returns all nodes that the outputs depend on, from the first made to the last.
  std::map<std::uint64_t, const Node*> reached() const {
    std::map<std::uint64_t, const Node*> nodes;
    std::vector<const Node*> next;
    const auto reach = [&](const Node* node) {
      if (node != nullptr && nodes.emplace(node->sequence, node).second) next.push_back(node);
    };
    for (const auto& root : roots_) reach(root.get());
    while (!next.empty()) {
      const Node* node = next.back();
      next.pop_back();
      for (const Edge& edge : node->edges) reach(edge.node.get());
    }
    return nodes;
  }

 private:
  struct Waiting {
    std::shared_ptr<Node> node;
    std::vector<Tensor> grads;
  };

  bool is_target(const Edge& edge) const {
    return std::any_of(targets_.begin(), targets_.end(), [&](const Target& target) {
      return edge.node ? target.node == edge.node.get() && target.output == edge.output
                       : edge.leaf.impl() == target.x.impl();
    });
  }
  bool is_aimed_at(const TensorImpl* x) const {
    return std::any_of(targets_.begin(), targets_.end(), [&](const Target& target) { return target.x.impl() == x; });
  }
  bool needs(const Edge& edge) const {
    if (!aimed_ || !edge.wanted()) return edge.wanted();
    return is_target(edge) || (edge.node && needed_.count(edge.node.get()) != 0);
  }

  /// Marks the nodes through which a gradient flows to a target.
  void mark_needed() {
    for (const auto& [sequence, node] : reached())
      if (std::any_of(node->edges.begin(), node->edges.end(), [&](const Edge& edge) { return needs(edge); }))
        needed_.insert(node);
  }

  void send(const Edge& edge, Tensor gradient) {
    if (edge.node) {
      Waiting& waiting = waiting_[edge.node->sequence];
      if (!waiting.node) {
        waiting.node = edge.node;
        waiting.grads.resize(edge.node->outputs.size());
      }
      accumulate(waiting.grads[static_cast<std::size_t>(edge.output)], std::move(gradient));
      return;
    }
    const auto [found, is_new] = leaf_index_.emplace(edge.leaf.impl(), leaves_.size());
    if (is_new) leaves_.emplace_back(edge.leaf, Tensor());
    accumulate(leaves_[found->second].second, std::move(gradient));
  }

  void run_node(Waiting waiting) {
    Node& node = *waiting.node;
    for (Target& target : targets_)
      if (target.node == &node) target.gradient = waiting.grads[static_cast<std::size_t>(target.output)];
    for (const auto& [output, result] : node.retained)
      if (const Tensor& gradient = waiting.grads[static_cast<std::size_t>(output)]; gradient.defined())
        if (const auto impl = result.lock(); impl && !is_aimed_at(impl.get()))
          retained_.emplace_back(Tensor(impl), gradient);
    if (aimed_ && needed_.count(&node) == 0) return;
    if (node.freed)
      throw ValueError("backward: " + std::string(node.name) +
                       " was run by an earlier pass and what it had saved is freed; give that pass retain_graph");
    if (!node.vjp) throw ValueError("backward: " + std::string(node.name) + " has no gradient");

    std::vector<bool> needed;
    for (const Edge& edge : node.edges) needed.push_back(needs(edge));
    Gradients gradients = node.vjp(Backward(waiting.node, std::move(waiting.grads), needed));
    if (!retain_graph_) free_saved(node);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!needed[i] || !gradients[i].defined()) continue;
      const Edge& edge = node.edges[i];
      Tensor gradient = std::move(gradients[i]);
      if (!(gradient.sizes() == edge.sizes)) gradient = sum_to(node.name, gradient, edge.sizes);
      send(edge, gradient.dtype() == edge.dtype ? std::move(gradient) : gradient.to(edge.dtype));
    }
  }

  /// Frees the saved tensors of a node that ran. A node that saved nothing can run again.
  static void free_saved(Node& node) {
    if (std::none_of(node.saved.begin(), node.saved.end(), [](const Saved& kept) { return kept.tensor.defined(); }))
      return;
    node.saved.clear();
    node.vjp = nullptr;
    node.freed = true;
  }

  const bool retain_graph_;
  bool aimed_ = false;
  std::vector<std::shared_ptr<Node>> roots_;
  std::vector<Target> targets_;
  std::unordered_set<const Node*> needed_;
  // Ordered by sequence. The last made node runs next, because all nodes that use its results have run.
  std::map<std::uint64_t, Waiting> waiting_;
  std::vector<std::pair<Tensor, Tensor>> leaves_, retained_;
  std::unordered_map<const TensorImpl*, std::size_t> leaf_index_;
};

/// Returns the gradients that a pass starts with, one for each output.
std::vector<Tensor> seeds(const char* function, const std::vector<Tensor>& outputs, const std::vector<Tensor>& grads) {
  if (!grads.empty() && grads.size() != outputs.size())
    throw ValueError(std::string(function) + ": " + std::to_string(grads.size()) + " gradients for " +
                     std::to_string(outputs.size()) + " outputs; they must be as many");
  std::vector<Tensor> result;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& output = outputs[i];
    if (!output.requires_grad())
      throw ValueError(std::string(function) + ": output " + std::to_string(i) +
                       " does not require a gradient; no operation on a tensor that does made it");
    Tensor grad = grads.empty() ? Tensor() : grads[i];
    if (!grad.defined()) {
      if (output.numel() != 1)
        throw ValueError(std::string(function) + ": output " + std::to_string(i) + " has shape " +
                         to_string(output.sizes()) + "; without a gradient for it, it must have one element");
      grad = ones(output.sizes(), output.dtype());
    }
    if (!(grad.sizes() == output.sizes()))
      throw ShapeError(std::string(function) + ": the gradient of output " + std::to_string(i) + " has shape " +
                       to_string(grad.sizes()) + "; it must be " + to_string(output.sizes()));
    result.push_back(grad.to(output.dtype()));
  }
  return result;
}

/// Runs `work` with recording on the tape switched on or off.
template <typename F>
void with_tape(bool on, F&& work) {
  if (on) {
    const EnableGrad guard;
    work();
  } else {
    const NoGrad guard;
    work();
  }
}

}  // namespace

void backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& grads, const BackwardOptions& options) {
  const runtime::DefaultFloatingPoint floating_point;
  for (const Tensor& x : options.inputs)
    if (!x.requires_grad())
      throw ValueError("backward: an input of shape " + to_string(x.sizes()) + " does not require a gradient");
  std::vector<Tensor> starts = seeds("backward", outputs, grads);
  with_tape(options.create_graph, [&] {
    Pass pass(outputs, options.retain_graph.value_or(options.create_graph));
    if (!options.inputs.empty()) pass.aim_at(options.inputs);
    pass.run(outputs, std::move(starts));
    std::unordered_set<const TensorImpl*> added;  // an input that is named twice gets its gradient once
    for (Target& target : pass.targets())
      if (target.node != nullptr && target.gradient.defined() && added.insert(target.x.impl()).second)
        accumulate_grad(target.x, std::move(target.gradient));
    for (auto& [x, gradient] : pass.retained()) accumulate_grad(x, std::move(gradient));
    for (auto& [leaf, gradient] : pass.leaves()) accumulate_grad(leaf, std::move(gradient));
  });
}

void backward_leaf_by_leaf(const Tensor& output, const Tensor& grad, const std::function<void(const Tensor&)>& whole) {
  const runtime::DefaultFloatingPoint floating_point;
  std::vector<Tensor> starts = seeds("backward", {output}, {grad});
  const NoGrad guard;
  Pass pass({output}, /*retain_graph=*/false);
  // Of the nodes that use a leaf, the first made runs last.
  std::unordered_set<const TensorImpl*> seen;
  std::map<std::uint64_t, std::vector<Tensor>> used_last;
  for (const auto& [sequence, node] : pass.reached())
    for (const Edge& edge : node->edges)
      if (edge.leaf.defined() && seen.insert(edge.leaf.impl()).second) used_last[sequence].push_back(edge.leaf);
  pass.run({output}, std::move(starts), [&](std::uint64_t sequence) {
    while (!used_last.empty() && std::prev(used_last.end())->first >= sequence) {
      const std::vector<Tensor> leaves = std::move(used_last.extract(std::prev(used_last.end())).mapped());
      for (const Tensor& leaf : leaves) {
        if (Tensor gradient = pass.take(leaf); gradient.defined()) accumulate_grad(leaf, std::move(gradient));
        whole(leaf);
      }
    }
  });
}

void backward(const Tensor& output, const Tensor& grad, const BackwardOptions& options) {
  backward(std::vector<Tensor>{output}, {grad}, options);
}
void Tensor::backward(const Tensor& grad) const { attn::backward(*this, grad); }

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const GradOptions& options) {
  const runtime::DefaultFloatingPoint floating_point;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].defined()) throw ValueError("grad: input " + std::to_string(i) + " is undefined");
  std::vector<Tensor> starts = seeds("grad", outputs, options.grad_outputs);
  std::vector<Tensor> result;
  with_tape(options.create_graph, [&] {
    Pass pass(outputs, options.retain_graph.value_or(options.create_graph));
    pass.aim_at(inputs);
    pass.run(outputs, std::move(starts));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensor gradient = pass.targets()[i].gradient;
      for (const auto& [leaf, its] : pass.leaves())
        if (leaf.impl() == inputs[i].impl()) gradient = its;
      if (!gradient.defined() && !options.allow_unused)
        throw ValueError("grad: no output comes from input " + std::to_string(i) + " of shape " +
                         to_string(inputs[i].sizes()) + "; allow_unused gives an undefined gradient then");
      result.push_back(gradient);
    }
  });
  return result;
}

Tensor grad(const Tensor& output, const Tensor& input, const GradOptions& options) {
  return grad(std::vector<Tensor>{output}, {input}, options).front();
}

}  // namespace attn
