// src/optim/optimizer.cc: implements what all optimisers share: the parameters, the state of each parameter, state
// dicts.
#include <attn/ops.h>
#include <attn/optim.h>

#include "tensor/build.h"

#include "runtime/format.h"

#include <algorithm>
#include <map>
#include <set>

namespace attn::optim {
namespace {

// Stands for "version unknown": the f32 master copy must still be filled or compared with its parameter.
constexpr std::uint64_t no_version = ~std::uint64_t{0};

bool is_half(const Tensor& x) { return x.dtype() == Dtype::bf16 || x.dtype() == Dtype::f16; }

/// Temporary memory for the values (or gradients) of parameters that cannot be updated in place. Parameters are updated
/// one after another and share it, so it is as large as the largest of them needs.
class Shared {
 public:
  void hold(Tensor& of_step, const Dims& sizes, Dtype dtype) {
    users_.push_back({&of_step, sizes, dtype});
    bytes_ = std::max(bytes_, sizes.product() * static_cast<std::int64_t>(size_of(dtype)));
  }
  void allocate() {
    if (users_.empty()) return;
    const Tensor memory = empty({bytes_ / 8 + 1}, Dtype::f64);
    for (const auto& [of_step, sizes, dtype] : users_) {
      *of_step = make_view(memory, memory.data(), sizes, contiguous_strides(sizes));
      of_step->impl()->dtype = dtype;
    }
  }

 private:
  struct User {
    Tensor* of_step;
    Dims sizes;
    Dtype dtype;
  };
  std::vector<User> users_;
  std::int64_t bytes_ = 0;
};

}  // namespace

Optimizer::Optimizer(std::vector<Tensor> parameters, std::vector<std::string> buffer_names, std::size_t always)
    : parameters_(std::move(parameters)), buffer_names_(std::move(buffer_names)), always_(always),
      states_(parameters_.size()) {
  if (parameters_.empty())
    throw ValueError(
        "Optimizer: there are no parameters; a module has those that register_parameter and register_module have seen");
  std::set<const TensorImpl*> seen;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& x = parameters_[i];
    if (!x.requires_grad() || !x.is_leaf())
      throw ValueError(runtime::format("Optimizer: parameter {} must be a leaf that requires a gradient", i));
    if (!seen.insert(x.impl()).second)
      throw ValueError(runtime::format("Optimizer: parameter {} is given twice; it may be in one group only", i));
    states_[i].buffers.resize(buffer_names_.size());
  }
}

void Optimizer::zero_grad() const {
  for (const Tensor& x : parameters_) x.set_grad({});
}

std::vector<Optimizer::Step> Optimizer::prepare_steps(bool halves) const {
  std::vector<Step> steps;
  steps.reserve(parameters_.size());  // must not reallocate, because Shared holds pointers into the steps
  Shared values, gradients;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i];
    const Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    Step& step = steps.emplace_back(Step{i, states_[i], {}, {}});
    ++step.next.step;
    const bool half = is_half(parameter);
    if (half && !step.next.master.defined()) {
      step.next.master = empty(parameter.sizes(), Dtype::f32);
      step.next.master_version = no_version;
    } else if (half && step.next.master_version != parameter.version() &&
               same_bits(step.next.master.to(parameter.dtype()), parameter)) {
      // The parameter was written but has the same values, for example if a checkpoint's weights are loaded after its
      // optimiser.
      step.next.master_version = parameter.version();
    }
    if (half) step.values = step.next.master;
    else if (parameter.is_contiguous()) step.values = parameter.detach();
    else values.hold(step.values, parameter.sizes(), parameter.dtype());
    if (!parameter.is_contiguous()) check_in_place("Optimizer", parameter);
    if (half && halves && parameter.is_contiguous()) step.half = parameter.detach();
    const Dtype dtype = half && !step.half.defined() ? Dtype::f32 : parameter.dtype();
    if (gradient.dtype() == dtype && gradient.is_contiguous()) step.gradient = gradient.detach();
    else gradients.hold(step.gradient, gradient.sizes(), dtype);
  }
  values.allocate();
  gradients.allocate();
  return steps;
}

void Optimizer::begin_step(const Step& step) const {
  const Tensor& parameter = parameters_[step.parameter];
  const bool is_current = step.next.master.defined() ? step.next.master_version == parameter.version()
                                                     : step.values.data() == parameter.data();
  if (!is_current) copy_values(step.values, parameter);
  if (const Tensor gradient = parameter.grad(); gradient.data() != step.gradient.data())
    copy_values(step.gradient, gradient);
}

void Optimizer::end_step(Step& step) {
  const Tensor& parameter = parameters_[step.parameter];
  if (!step.half.defined() && step.values.data() != parameter.data()) copy_values(parameter, step.values);
  parameter.bump_version();
  step.next.master_version = parameter.version();
  states_[step.parameter] = std::move(step.next);
}

StateDict Optimizer::state_dict() const {
  StateDict dict;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const State& state = states_[i];
    if (state.step == 0) continue;
    dict.emplace_back(runtime::format("state.{}.step", i), full({}, state.step, Dtype::i64));
    for (std::size_t b = 0; b < buffer_names_.size(); ++b)
      if (state.buffers[b].defined())
        dict.emplace_back(runtime::format("state.{}.{}", i, buffer_names_[b]), state.buffers[b].clone());
    if (state.master.defined()) dict.emplace_back(runtime::format("state.{}.master", i), state.master.clone());
  }
  return dict;
}

void Optimizer::load_state_dict(const StateDict& dict) {
  std::map<std::string, Tensor> given(dict.begin(), dict.end());
  std::vector<State> loaded(states_.size());
  std::string wrong;
  const auto take = [&](const std::string& name, const Dims& sizes, Dtype dtype) -> Tensor {
    const auto found = given.extract(name);
    if (!found) return {};
    if (found.mapped().sizes() == sizes) return found.mapped().detach().to(dtype).clone();
    wrong +=
        runtime::format("; {} has shape {}, it must be {}", name, to_string(found.mapped().sizes()), to_string(sizes));
    return {};
  };
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const Tensor& x = parameters_[i];
    const Dtype kept = x.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
    State& state = loaded[i];
    if (const Tensor step = take(runtime::format("state.{}.step", i), {}, Dtype::i64); step.defined())
      state.step = step.item_int();
    if (state.step < 0) wrong += runtime::format("; state.{}.step is {}", i, state.step);
    for (std::size_t b = 0; b < buffer_names_.size(); ++b) {
      const std::string name = runtime::format("state.{}.{}", i, buffer_names_[b]);
      if (state.step != 0 && b < always_ && !given.contains(name)) wrong += runtime::format("; {} is missing", name);
      state.buffers.push_back(take(name, x.sizes(), kept));
    }
    Tensor master = take(runtime::format("state.{}.master", i), x.sizes(), kept);
    const bool holds = master.defined() || std::any_of(state.buffers.begin(), state.buffers.end(),
                                                       [](const Tensor& b) { return b.defined(); });
    if (is_half(x)) state.master = std::move(master);  // a parameter of another dtype needs no master copy
    state.master_version = no_version;
    if (state.step == 0 && holds) wrong += runtime::format("; state.{}.step is missing", i);
  }
  for (const auto& [name, value] : given) wrong += runtime::format("; {} is unexpected", name);
  if (!wrong.empty()) throw ValueError("load_state_dict: " + wrong.substr(2));
  states_ = std::move(loaded);
}

}  // namespace attn::optim
