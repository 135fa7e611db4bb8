// src/nn/module.cc: implements the parameters, buffers and submodules of a module: registering, listing, saving,
// loading.
#include <attn/nn/module.h>

#include <functional>
#include <map>
#include <set>

namespace attn::nn {

struct Module::State {
  bool training = true;
  StateDict parameters, buffers;
  std::vector<std::pair<std::string, std::shared_ptr<State>>> modules;

  void check_name(const std::string& name) const {
    if (name.empty() || name.find('.') != std::string::npos)
      throw ValueError("register: the name \"" + name + "\" must not be empty or hold a dot");
    const auto taken = [&](const auto& entries) {
      for (const auto& entry : entries)
        if (entry.first == name) return true;
      return false;
    };
    if (taken(parameters) || taken(buffers) || taken(modules))
      throw ValueError("register: the name \"" + name + "\" is taken");
  }

  /// Calls visit(prefix, state) for this module and all of its submodules, in the order in which they were registered.
  void walk(const std::string& prefix, const std::function<void(const std::string&, State&)>& visit) {
    visit(prefix, *this);
    for (const auto& [name, module] : modules) module->walk(prefix + name + ".", visit);
  }

  /// Sets the training mode here and in all submodules. It does not allocate, because destructors call it.
  void train(bool on) {
    training = on;
    for (const auto& [name, module] : modules) module->train(on);
  }
};

namespace {

/// Returns "; label: a, b", or an empty text if there are no keys.
std::string listed(const char* label, const std::vector<std::string>& keys) {
  std::string text;
  for (const std::string& key : keys) text += (text.empty() ? "" : ", ") + key;
  return text.empty() ? text : "; " + std::string(label) + ": " + text;
}

/// Returns one line that says why `dict` does not fit `own`; empty if it fits.
std::string misfit(const StateDict& own, const StateDict& dict, bool strict) {
  std::map<std::string, Tensor> given;
  std::vector<std::string> missing, unexpected, repeated, misshapen;
  for (const auto& [name, value] : dict)
    if (!given.emplace(name, value).second) repeated.push_back(name);
  std::set<std::string> known;
  for (const auto& [name, value] : own) {
    known.insert(name);
    const auto found = given.find(name);
    if (found == given.end()) {
      if (strict) missing.push_back(name);
    } else if (!found->second.defined()) {
      misshapen.push_back(name + " is undefined, not " + to_string(value.sizes()));
    } else if (!(found->second.sizes() == value.sizes())) {
      misshapen.push_back(name + " is " + to_string(found->second.sizes()) + ", not " + to_string(value.sizes()));
    }
  }
  for (const auto& [name, value] : dict)
    if (strict && !known.contains(name)) unexpected.push_back(name);
  const std::string text = listed("missing", missing) + listed("unexpected", unexpected) +
                           listed("repeated", repeated) + listed("wrong shape", misshapen);
  return text.empty() ? text : "load_state_dict: the state does not fit" + text;
}

}  // namespace

Module::Module() : state_(std::make_shared<State>()) {}

Tensor Module::register_parameter(const std::string& name, Tensor value) {
  state_->check_name(name);
  if (!value.defined()) return value;
  value.requires_grad_();
  state_->parameters.emplace_back(name, value);
  return value;
}

Tensor Module::register_buffer(const std::string& name, Tensor value) {
  state_->check_name(name);
  if (value.defined()) state_->buffers.emplace_back(name, value);
  return value;
}

void Module::add_module(const std::string& name, const Module& module) {
  state_->check_name(name);
  module.state_->walk("", [&](const std::string&, State& state) {
    if (&state == state_.get())
      throw ValueError("register: \"" + name + "\" holds the module that it is to be part of");
  });
  state_->modules.emplace_back(name, module.state_);
}

void Module::train(bool on) const { state_->train(on); }

bool Module::is_training() const { return state_->training; }

StateDict Module::named_parameters() const {
  StateDict result;
  state_->walk("", [&](const std::string& prefix, State& state) {
    for (const auto& [name, value] : state.parameters) result.emplace_back(prefix + name, value);
  });
  return result;
}

StateDict Module::named_buffers() const {
  StateDict result;
  state_->walk("", [&](const std::string& prefix, State& state) {
    for (const auto& [name, value] : state.buffers) result.emplace_back(prefix + name, value);
  });
  return result;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> result;
  for (auto& [name, value] : named_parameters()) result.push_back(value);
  return result;
}

StateDict Module::state_dict() const {
  StateDict result;
  state_->walk("", [&](const std::string& prefix, State& state) {
    for (const StateDict* entries : {&state.parameters, &state.buffers})
      for (const auto& [name, value] : *entries) result.emplace_back(prefix + name, value.detach());
  });
  return result;
}

void Module::load_state_dict(const StateDict& dict, bool strict) const {
  const StateDict own = state_dict();
  const std::string wrong = misfit(own, dict, strict);
  if (!wrong.empty()) throw ValueError(wrong);
  std::map<std::string, Tensor> given(dict.begin(), dict.end());
  for (const auto& [name, value] : own)
    if (const auto found = given.find(name); found != given.end()) value.copy_(found->second.detach());
}

}  // namespace attn::nn
