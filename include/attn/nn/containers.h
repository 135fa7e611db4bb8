// include/attn/nn/containers.h: calls modules one after another (Sequential), and holds lists of modules (ModuleList).
#pragma once
#include <attn/nn/module.h>

#include <functional>

namespace attn::nn {

/// Computes y = m_n(... m_1(m_0(x))); the modules are named "0", "1", ... Source: torch.nn.Sequential.
///
///   nn::Sequential mlp(nn::Linear(4, 16), nn::GELU(), nn::Linear(16, 4));
class ATTN_API Sequential : public Module {
 public:
  template <typename... M>
  explicit Sequential(const M&... modules) {
    (push_back(modules), ...);
  }
  /// Appends a module that takes one tensor and returns one.
  template <typename M>
  void push_back(const M& module) {
    register_module(std::to_string(size()), module);
    steps_->push_back([module](const Tensor& x) { return module(x); });
  }
  std::int64_t size() const { return static_cast<std::int64_t>(steps_->size()); }
  Tensor forward(const Tensor& x) const {
    Tensor y = x;
    for (const auto& step : *steps_) y = step(y);
    return y;
  }
  Tensor operator()(const Tensor& x) const { return forward(x); }

 private:
  // const: moving copies the handle, as in every module
  const std::shared_ptr<std::vector<std::function<Tensor(const Tensor&)>>> steps_ =
      std::make_shared<std::vector<std::function<Tensor(const Tensor&)>>>();
};

/// A list of modules of one type, named "0", "1", ...; the owner calls them. Source: torch.nn.ModuleList.
template <typename M>
class ModuleList : public Module {
 public:
  ModuleList() = default;
  void push_back(const M& module) {
    register_module(std::to_string(size()), module);
    modules_->push_back(module);
  }
  std::int64_t size() const { return static_cast<std::int64_t>(modules_->size()); }
  /// Throws ValueError unless 0 <= index < size().
  const M& operator[](std::int64_t index) const {
    if (index < 0 || index >= size())
      throw ValueError("ModuleList: index " + std::to_string(index) + " must be from 0 to " +
                       std::to_string(size() - 1));
    return (*modules_)[static_cast<std::size_t>(index)];
  }
  auto begin() const { return modules_->cbegin(); }
  auto end() const { return modules_->cend(); }

 private:
  const std::shared_ptr<std::vector<M>> modules_ = std::make_shared<std::vector<M>>();
};

}  // namespace attn::nn
