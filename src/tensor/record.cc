// src/tensor/record.cc: who made a tensor, kept only where a gradient is wanted.
#include "tensor/record.h"

#include <attn/autograd.h>
#include <attn/ops.h>

#include <algorithm>

namespace attn {
namespace {

thread_local bool recording = true;

std::shared_ptr<Node> make_node(const char* name, const std::vector<Tensor>& results, Vjp vjp) {
  auto node = std::make_shared<Node>(name);
  node->vjp = std::move(vjp);
  for (const Tensor& result : results)
    result.defined() ? node->outputs.emplace_back(result.sizes(), result.dtype()) : node->outputs.emplace_back(Dims(), Dtype::f32);
  return node;
}

/// A result is kept without its history: with it, it and its node would hold each other.
Saved keep(const Tensor& x, const std::vector<Tensor>& results) {
  const auto found = std::find_if(results.begin(), results.end(), [&](const Tensor& result) { return x.defined() && x.impl() == result.impl(); });
  if (found == results.end()) return Saved(x);
  Saved saved(x.detach());
  saved.output = static_cast<int>(found - results.begin());
  return saved;
}

/// A tensor whose gradient the user asked to see, changed in place: it is the gradient of the new value that is meant.
void move_retained(Node& before, int output, TensorImpl& impl) {
  const auto is_it = [&](const auto& kept) { return kept.first == output && kept.second.lock().get() == &impl; };
  const auto found = std::find_if(before.retained.begin(), before.retained.end(), is_it);
  if (found == before.retained.end()) return;
  impl.node->retained.emplace_back(impl.output, found->second);
  before.retained.erase(found);
}

void begin_history(const std::shared_ptr<Node>& node, const std::vector<Tensor>& results) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined() || !is_floating(results[i].dtype())) continue;
    TensorImpl& impl = *results[i].impl();
    const std::shared_ptr<Node> before = std::exchange(impl.node, node);  // of a tensor changed in place
    const int output = std::exchange(impl.output, static_cast<int>(i));
    impl.requires_grad = true;
    if (before) move_retained(*before, output, impl);
  }
}

}  // namespace

bool grad_enabled() { return recording; }
NoGrad::NoGrad() : before_(std::exchange(recording, false)) {}
NoGrad::~NoGrad() { recording = before_; }
EnableGrad::EnableGrad() : before_(std::exchange(recording, true)) {}
EnableGrad::~EnableGrad() { recording = before_; }

void record_wanted(const char* name, const Tensor& result, std::initializer_list<RecordedInput> inputs, Vjp vjp) {
  if (!recording || !is_floating(result.dtype())) return;
  const std::vector<Tensor> results = {result};
  const auto node = make_node(name, results, std::move(vjp));
  for (const RecordedInput& input : inputs) {
    node->edges.emplace_back(*input.x);
    const bool wanted = node->edges.back().wanted();
    for (const Tensor* x : input.saved) node->saved.push_back(wanted ? keep(*x, results) : Saved());
  }
  begin_history(node, results);
}

void record(const Operation& operation, const std::vector<Tensor>& results, Vjp vjp) {
  if (!recording || !wants_grad(operation.inputs)) return;
  const auto node = make_node(operation.name, results, std::move(vjp));
  for (const Tensor& input : operation.inputs) node->edges.emplace_back(input);
  for (const Tensor& x : operation.saved) node->saved.push_back(keep(x, results));
  begin_history(node, results);
}

Gradients first_order_only(const char* name, Gradients gradients, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> results;
  for (const Tensor& gradient : gradients)
    if (gradient.defined()) results.push_back(gradient);
  record({name, inputs, {}}, results, [name](const Backward&) -> Gradients {
    throw ValueError("backward: " + std::string(name) + " is the gradient of an operation that has no second derivative");
  });
  return gradients;
}

bool Tensor::requires_grad() const { return impl_ && impl_->requires_grad; }

Tensor& Tensor::requires_grad_(bool value) {
  if (value && !is_floating(dtype()))
    throw DtypeError("requires_grad_: the tensor is " + std::string(name_of(dtype())) + "; only floating types have gradients");
  if (!value && impl_->node)
    throw ValueError("requires_grad_: the tensor is the result of an operation; use detach() for one that requires no gradient");
  impl_->requires_grad = value;
  return *this;
}

bool Tensor::is_leaf() const { return !impl_ || !impl_->node; }
std::string Tensor::grad_fn() const { return is_leaf() ? "" : impl_->node->name; }
Tensor Tensor::grad() const { return impl_ && impl_->grad ? Tensor(impl_->grad) : Tensor(); }

void Tensor::set_grad(const Tensor& grad) const {
  if (grad.defined() && !(grad.sizes() == sizes()))
    throw ShapeError("set_grad: grad has shape " + attn::to_string(grad.sizes()) + "; it must be that of the tensor, " + attn::to_string(sizes()));
  if (grad.defined() && grad.dtype() != dtype())
    throw DtypeError("set_grad: grad is " + std::string(name_of(grad.dtype())) + "; it must be " + std::string(name_of(dtype())));
  impl_->grad = grad.impl_;
}

void Tensor::retain_grad() const {
  if (!requires_grad()) throw ValueError("retain_grad: the tensor does not require a gradient");
  if (impl_->node) impl_->node->retained.emplace_back(impl_->output, impl_);
}

}  // namespace attn
