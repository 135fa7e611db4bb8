// include/attn/nn/module.h: what every module is: named parameters, buffers and submodules, and whether it trains.
#pragma once
#include <attn/tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace attn::nn {

/// Names and tensors, in torch's order: the parameters of a module, its buffers, then its submodules, each as
/// registered.
using StateDict = std::vector<std::pair<std::string, Tensor>>;

/// The base of all modules.
///  A module is a handle, as a tensor is: a copy shares parameters, submodules and the training switch, so modules are
/// held by value, passed by value and put into containers without pointers or owners. Parameters are `const Tensor`
/// members beside their registration: their values change (an optimiser, load_state_dict), their identity never does.
/// So what is registered and what forward() reads cannot come apart, and there is no virtual function: containers keep
/// callables.
///
///   struct Block : nn::Module {
///     const nn::Linear up = register_module("up", nn::Linear(4, 16));
///     const Tensor gain = register_parameter("gain", ones({16}));
///     Tensor forward(const Tensor& x) const { return up(x) * gain; }
///   };
///  Thread safety: forward() of one module may run in several threads; train, eval and load_state_dict need the
/// caller's order.
class ATTN_API Module {
 public:
  /// Turns training on or off here and in all submodules: dropout looks at it.
  void train(bool on = true) const;
  void eval() const { train(false); }
  bool is_training() const;

  std::vector<Tensor> parameters() const;
  /// "heads.0.w_query" and so on.
  StateDict named_parameters() const;
  StateDict named_buffers() const;

  /// Parameters and buffers, detached; they share memory with the module.
  StateDict state_dict() const;
  /// Copies values (converted to the dtype here) into this module's parameters and buffers.
  /// strict = false leaves out keys that are missing or unexpected; shapes must always match.
  /// Errors   ValueError, one line that names every missing, unexpected, repeated and misshapen key; nothing was
  ///          changed then.
  void load_state_dict(const StateDict& dict, bool strict = true) const;

 protected:
  Module();
  Module(const Module&) = default;
  Module& operator=(const Module&) = delete;
  ~Module() = default;

  // Each returns what it was given, for the member that keeps it. An undefined tensor is "none" and is not listed.
  // ValueError when the name is empty, holds a dot or is taken.
  Tensor register_parameter(const std::string& name, Tensor value);  // turns requires_grad on
  Tensor register_buffer(const std::string& name, Tensor value);
  template <typename M>
  M register_module(const std::string& name, const M& module) {
    add_module(name, module);
    return module;
  }

 private:
  struct State;
  void add_module(const std::string& name, const Module& module);
  std::shared_ptr<State> state_;
};

}  // namespace attn::nn
