// include/attn/nn/module.h: defines the base of all modules: named parameters, buffers and submodules, and the training
// switch.
#pragma once
#include <attn/tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace attn::nn {

/// Names and tensors in torch's order: the parameters of a module, its buffers, then its submodules, each in the order
/// of registration.
using StateDict = std::vector<std::pair<std::string, Tensor>>;

/// The base of all modules.
///  A module is a handle, as a tensor is: copies share parameters, submodules and the training switch, so modules are
/// held and passed by value, without pointers or owners. Parameters are `const Tensor` members that are also
/// registered: their values change (by an optimiser or load_state_dict), but a member always refers to the registered
/// tensor, so that forward() reads what is registered. There are no virtual functions: containers store callables.
///
///   struct Block : nn::Module {
///     const nn::Linear up = register_module("up", nn::Linear(4, 16));
///     const Tensor gain = register_parameter("gain", ones({16}));
///     Tensor forward(const Tensor& x) const { return up(x) * gain; }
///   };
///  Thread safety: forward() of one module may run in several threads; the caller must order train, eval and
/// load_state_dict.
class ATTN_API Module {
 public:
  /// Turns training mode on or off here and in all submodules; dropout depends on it.
  void train(bool on = true) const;
  void eval() const { train(false); }
  bool is_training() const;

  std::vector<Tensor> parameters() const;
  /// Names are "heads.0.w_query" and so on.
  StateDict named_parameters() const;
  StateDict named_buffers() const;

  /// Returns parameters and buffers, detached; they share memory with the module.
  StateDict state_dict() const;
  /// Copies values into this module's parameters and buffers, converted to their dtype. strict = false ignores keys
  /// that are missing or unexpected; shapes must always match.
  /// Errors   ValueError, one line, names every missing, unexpected, repeated and misshapen key; then nothing was
  ///          changed.
  void load_state_dict(const StateDict& dict, bool strict = true) const;

 protected:
  Module();
  Module(const Module&) = default;
  Module& operator=(const Module&) = delete;
  ~Module() = default;

  // Each returns its argument, for the member that stores it. An undefined tensor means "none" and is not listed.
  // ValueError when the name is empty, contains a dot or is taken.
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
