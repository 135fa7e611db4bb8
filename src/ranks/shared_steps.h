// src/ranks/shared_steps.h: the steps of a training that ranks share: each computes some parts of the batch and keeps
// the optimiser's state of a piece of the weights (ZeRO, stage 1).
#pragma once
#include "model/train_internal.h"
#include "ranks/exchange.h"

#include <memory>

namespace attn {

class ShardedSteps final : public SharedSteps {
 public:
  /// Collective. The state must be equal at all ranks; `optimizer` is used at rank 0: what a resumed training has.
  ShardedSteps(Trainer::State& state, const Ranks& ranks, const optim::StateDict& optimizer);

  std::pair<double, double> gradients(std::int64_t step, const std::vector<std::int64_t>& starts) override;
  void update(double lr) override;
  double exchange_seconds() const override { return exchange_seconds_; }
  std::vector<double> validation(std::int64_t batches, const std::function<double(std::int64_t)>& loss) override;
  optim::StateDict optimizer_state() const override;
  void write(const std::function<void()>& write) const override;

 private:
  /// Calls f(parameter, first element, number of elements, where they are in the span) for each parameter in a span of
  /// the flat array of all parameters.
  template <typename F>
  void each_in(const Span& span, const F& f) const;
  std::string block_squares() const;
  double norm_of(const std::string& squares) const;
  void scatter(const optim::StateDict& whole);

  Trainer::State& state_;
  const Ranks ranks_;
  std::vector<std::int64_t> first_;  // where each parameter begins in the flat array, then its end
  const Pieces pieces_;
  std::vector<Tensor> shards_;           // this rank's elements of each parameter, a view; undefined where it has none
  std::vector<std::size_t> numbers_;     // of each parameter in a whole optimiser's state
  std::unique_ptr<optim::AdamW> adamw_;  // of the shards; null if there are none
  std::unique_ptr<OrderedSum> sum_;
  std::unique_ptr<Spread> spread_;
  double exchange_seconds_ = 0;
};

}  // namespace attn
