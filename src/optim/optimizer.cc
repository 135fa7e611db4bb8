// src/optim/optimizer.cc: what optimisers share: parameters, what is kept for each, state dicts.
#include <attn/ops.h>
#include <attn/optim.h>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace attn::optim {

Optimizer::Optimizer(std::vector<Tensor> parameters, std::vector<std::string> buffer_names)
    : parameters_(std::move(parameters)), buffer_names_(std::move(buffer_names)), states_(parameters_.size()) {
  std::set<const TensorImpl*> seen;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& x = parameters_[i];
    if (!x.requires_grad() || !x.is_leaf()) throw ValueError(fmt::format("Optimizer: parameter {} must be a leaf that requires a gradient", i));
    if (!seen.insert(x.impl()).second) throw ValueError(fmt::format("Optimizer: parameter {} is given twice; it may be in one group only", i));
    states_[i].buffers.resize(buffer_names_.size());
  }
}

void Optimizer::zero_grad() const {
  for (const Tensor& x : parameters_) x.set_grad({});
}

std::optional<Optimizer::Step> Optimizer::begin_step(std::size_t i, bool halves) {
  const Tensor& parameter = parameters_[i];
  State& state = states_[i];
  if (!parameter.grad().defined()) return std::nullopt;
  ++state.step;
  Tensor values = parameter.detach().contiguous();
  if (parameter.dtype() == Dtype::bf16 || parameter.dtype() == Dtype::f16) {
    if (!state.master.defined() || state.master_version != parameter.version()) state.master = values.to(Dtype::f32);
    values = state.master;
    if (halves && parameter.is_contiguous()) return Step{state, values, parameter.grad().detach().contiguous(), parameter.detach()};
  }
  return Step{state, values, parameter.grad().detach().to(values.dtype()).contiguous()};
}

void Optimizer::end_step(std::size_t i, const Step& step) {
  const Tensor& parameter = parameters_[i];
  if (step.half.defined() || step.values.data() == parameter.data())
    parameter.bump_version();
  else
    parameter.copy_(step.values);
  step.state.master_version = parameter.version();
}

StateDict Optimizer::state_dict() const {
  StateDict dict;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const State& state = states_[i];
    if (state.step == 0) continue;
    dict.emplace_back(fmt::format("state.{}.step", i), full({}, state.step, Dtype::i64));
    for (std::size_t b = 0; b < buffer_names_.size(); ++b)
      if (state.buffers[b].defined()) dict.emplace_back(fmt::format("state.{}.{}", i, buffer_names_[b]), state.buffers[b].clone());
    if (state.master.defined()) dict.emplace_back(fmt::format("state.{}.master", i), state.master.clone());
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
    wrong += fmt::format("; {} has shape {}, it must be {}", name, to_string(found.mapped().sizes()), to_string(sizes));
    return {};
  };
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const Tensor& x = parameters_[i];
    const Dtype kept = x.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
    State& state = loaded[i];
    if (const Tensor step = take(fmt::format("state.{}.step", i), {}, Dtype::i64); step.defined()) state.step = step.item_int();
    if (state.step < 0) wrong += fmt::format("; state.{}.step is {}", i, state.step);
    for (const std::string& name : buffer_names_) state.buffers.push_back(take(fmt::format("state.{}.{}", i, name), x.sizes(), kept));
    state.master = take(fmt::format("state.{}.master", i), x.sizes(), kept);
    state.master_version = x.version();
    const bool holds = state.master.defined() || std::any_of(state.buffers.begin(), state.buffers.end(), [](const Tensor& b) { return b.defined(); });
    if (state.step == 0 && holds) wrong += fmt::format("; state.{}.step is missing", i);
  }
  for (const auto& [name, value] : given) wrong += fmt::format("; {} is unexpected", name);
  if (!wrong.empty()) throw ValueError("load_state_dict: " + wrong.substr(2));
  states_ = std::move(loaded);
}

}  // namespace attn::optim
