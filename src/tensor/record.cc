// src/tensor/record.cc: records which operation made a tensor, if a gradient is wanted.
#include "tensor/record.h"

#include "tensor/defined.h"
#include "tensor/overlap.h"

#include <attn/autograd.h>
#include <attn/ops.h>

#include <algorithm>
#include <cstdlib>

namespace attn {
namespace {

thread_local bool recording = true;

std::shared_ptr<Node> make_node(const char* name, const std::vector<Tensor>& results, Vjp vjp) {
  auto node = std::make_shared<Node>(name);
  node->vjp = std::move(vjp);
  for (const Tensor& result : results)
    result.defined() ? node->outputs.emplace_back(result.sizes(), result.dtype())
                     : node->outputs.emplace_back(Dims(), Dtype::f32);
  return node;
}

// the stride and the size of each dim, in descending order of strides
using Steps = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Returns whether two elements whose indices are the same before dim n can be `distance` apart. Each stride must
/// exceed the reach of the later dims.
bool reaches(const Steps& steps, std::size_t n, std::int64_t distance) {
  if (n == steps.size()) return distance == 0;
  const auto [stride, size] = steps[n];
  const std::int64_t below = distance / stride - (distance % stride < 0 ? 1 : 0);
  const auto by = [&, s = stride, most = size](std::int64_t count) {
    return std::abs(count) < most && reaches(steps, n + 1, distance - count * s);
  };
  return by(below) || by(below + 1);
}

/// Returns whether x and y, which have the same storage, share an element; returns true if that is too hard to decide.
bool meet(const Tensor& x, const Tensor& y) {
  if (x.data() == y.data()) return x.numel() > 0 && y.numel() > 0;
  if (!overlaps(x, y)) return false;
  const std::int64_t bytes = static_cast<const char*>(y.data()) - static_cast<const char*>(x.data()),
                     element = static_cast<std::int64_t>(size_of(x.dtype()));
  if (x.dtype() != y.dtype() || !(x.strides() == y.strides()) || bytes % element != 0 || overlaps_itself(x) ||
      overlaps_itself(y))
    return true;
  Steps steps;
  for (int d = 0; d < x.dim(); ++d)
    if (const std::int64_t size = std::max(x.size(d), y.size(d)); size > 1 && x.stride(d) != 0)
      steps.emplace_back(std::abs(x.stride(d)), size);
  std::sort(steps.rbegin(), steps.rend());
  std::int64_t reach = 0;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (step->first <= reach) return true;
    reach += step->first * (step->second - 1);
  }
  return reaches(steps, 0, bytes / element);
}

/// Saves x. A result is saved without its history, because the result and its node would hold each other. If the result
/// was written over x, as `out`, x is saved with an older version: its values are lost, and a backward pass that needs
/// them throws.
Saved keep(const Tensor& x, const std::vector<Tensor>& results, bool in_place) {
  const auto found = std::find_if(results.begin(), results.end(),
                                  [&](const Tensor& result) { return x.defined() && x.impl() == result.impl(); });
  if (found == results.end()) {
    Saved saved(x);
    const auto is_written = [&](const Tensor& result) {
      return result.defined() && result.impl()->storage == x.impl()->storage && meet(x, result);
    };
    if (x.defined() && !in_place && std::any_of(results.begin(), results.end(), is_written)) --saved.version;
    return saved;
  }
  Saved saved(x.detach());
  saved.output = static_cast<int>(found - results.begin());
  return saved;
}

const Tensor& tensor_of(const Tensor& x) { return x; }
const Tensor& tensor_of(const RecordedInput& input) { return *input.x; }
/// Some results are views of memory that the operation itself allocated, for example a product whose dim of size 1 was
/// squeezed. This removes the base of such a result, so that a change in place finds its history in the result and not
/// in memory that nothing else refers to.
template <typename Inputs>
void leave_own_memory(const Tensor& result, const Inputs& inputs) {
  if (!result.defined() || !result.impl()->base.defined()) return;
  const TensorImpl* base = result.impl()->base.impl();
  for (const auto& input : inputs) {
    const Tensor& x = tensor_of(input);
    if (x.defined() && (x.impl() == base || x.impl()->base.impl() == base)) return;
  }
  result.impl()->base = {};
}

/// Returns the request to keep the gradient (retain_grad) of `impl`, result `output` of `node`, or the end of the list.
auto retained_in(Node& node, int output, const TensorImpl& impl) noexcept {
  return std::find_if(node.retained.begin(), node.retained.end(),
                      [&](const auto& kept) { return kept.first == output && kept.second.lock().get() == &impl; });
}

/// After a change in place, moves a request to keep a gradient (retain_grad) to the new node, because the user means
/// the gradient of the new value.
void move_retained(Node& before, int output, TensorImpl& impl) noexcept {
  const auto found = retained_in(before, output, impl);
  if (found == before.retained.end()) return;
  found->first = impl.output;
  impl.node->retained.splice(impl.node->retained.end(), before.retained, found);
}

void begin_history(const std::shared_ptr<Node>& node, const std::vector<Tensor>& results) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined() || !is_floating(results[i].dtype())) continue;
    set_history(*results[i].impl(), node, static_cast<int>(i));
  }
}

}  // namespace

void set_history(TensorImpl& x, const std::shared_ptr<Node>& node, int output) noexcept {
  // a tensor that is changed in place has an old history
  const std::shared_ptr<Node> before = std::exchange(x.node, node);
  const int output_before = std::exchange(x.output, output);
  x.requires_grad = true;
  if (before) move_retained(*before, output_before, x);
}

bool grad_enabled() { return recording; }
NoGrad::NoGrad() : before_(std::exchange(recording, false)) {}
NoGrad::~NoGrad() { recording = before_; }
EnableGrad::EnableGrad() : before_(std::exchange(recording, true)) {}
EnableGrad::~EnableGrad() { recording = before_; }

History history_wanted(const char* name, const Tensor& result, std::initializer_list<RecordedInput> inputs, Vjp vjp) {
  if (!recording || !is_floating(result.dtype())) return {};
  leave_own_memory(result, inputs);
  const bool in_place = inputs.begin()->x->impl() == result.impl(),
             changes_base = in_place && result.impl()->base.defined();
  const std::vector<Tensor> results = {changes_base ? result.impl()->base : result};
  const auto node = changes_base ? make_node("CopySlices", results, change_of_base(result, std::move(vjp)))
                                 : make_node(name, results, std::move(vjp));
  for (const RecordedInput& input : inputs) {
    node->edges.emplace_back(changes_base && &input == inputs.begin() ? results.front() : *input.x);
    const bool wanted = node->edges.back().wanted();
    for (const Tensor* x : input.saved) node->saved.push_back(wanted ? keep(*x, results, in_place) : Saved());
  }
  return {node, changes_base ? view_node(*result.impl(), node, 0) : nullptr};
}

void record_wanted(const char* name, const Tensor& result, std::initializer_list<RecordedInput> inputs, Vjp vjp) {
  history_wanted(name, result, inputs, std::move(vjp)).begin(result);
}

void History::begin(const Tensor& result) const noexcept {
  if (!node) return;
  TensorImpl& impl = *result.impl();
  set_history(of_view ? *impl.base.impl() : impl, node, 0);
  if (of_view) set_view_history(impl, of_view, node->sequence);
}

const Tensor& History::changed(const Tensor& x) const noexcept {
  x.impl()->storage->version.fetch_add(1, std::memory_order_relaxed);
  begin(x);
  return x;
}

void record(const Operation& operation, const std::vector<Tensor>& results, Vjp vjp) {
  if (!recording || !wants_grad(operation.inputs)) return;
  for (const Tensor& result : results) leave_own_memory(result, operation.inputs);
  const auto node = make_node(operation.name, results, std::move(vjp));
  for (const Tensor& input : operation.inputs) node->edges.emplace_back(input);
  for (const Tensor& x : operation.saved) node->saved.push_back(keep(x, results, /*in_place=*/false));
  begin_history(node, results);
}

void mark_view(const Tensor& view, const Tensor& x) {
  TensorImpl& impl = *view.impl();
  impl.frozen = !recording;
  if (!recording) return;  // the base would keep x's history alive as long as the view lives
  impl.base = x.impl()->base.defined() ? x.impl()->base : x;
  if (const Node* node = impl.base.impl()->node.get()) impl.seen.store(node->sequence, std::memory_order_relaxed);
}

bool Tensor::requires_grad() const { return wants_grad(*this); }

Tensor& Tensor::requires_grad_(bool value) {
  if (value && !is_floating(dtype()))
    throw DtypeError("requires_grad_: the tensor is " + std::string(name_of(dtype())) +
                     "; only floating types have gradients");
  const bool leaf = is_leaf();
  if (!value && !leaf)
    throw ValueError(
        "requires_grad_: the tensor is the result of an operation; use detach() for one that requires no gradient");
  // a view that becomes a leaf leaves its base's history
  if (value && leaf && impl_->base.defined()) {
    impl_->base.impl()->has_leaf_view = true;
    impl_->base = {};
  }
  impl_->requires_grad = value;
  return *this;
}

bool Tensor::is_leaf() const { return !impl_ || !current(*this).node; }
std::string Tensor::grad_fn() const { return is_leaf() ? "" : impl_->node->name; }
Tensor Tensor::grad() const { return impl_ && impl_->grad ? Tensor(impl_->grad) : Tensor(); }

void Tensor::set_grad(const Tensor& grad) const {
  check_defined("set_grad", "the tensor", *this);
  if (grad.defined() && !(grad.sizes() == sizes()))
    throw ShapeError("set_grad: grad has shape " + attn::to_string(grad.sizes()) + "; it must be that of the tensor, " +
                     attn::to_string(sizes()));
  if (grad.defined() && grad.dtype() != dtype())
    throw DtypeError("set_grad: grad is " + std::string(name_of(grad.dtype())) + "; it must be " +
                     std::string(name_of(dtype())));
  if (grad.defined() && overlaps_itself(grad))
    throw ValueError("set_grad: shape " + attn::to_string(grad.sizes()) + " with strides " +
                     attn::to_string(grad.strides()) +
                     " has several elements in one place, and later passes add to it; give a clone()");
  impl_->grad = grad.impl_;
}

void Tensor::retain_grad() const {
  if (!requires_grad()) throw ValueError("retain_grad: the tensor does not require a gradient");
  Node* node = impl_->node.get();
  if (node != nullptr && retained_in(*node, impl_->output, *impl_) == node->retained.end())
    node->retained.emplace_back(impl_->output, impl_);
}

}  // namespace attn
