// src/ranks/shared_steps.h: the steps of a training that ranks share: each computes some parts of the batch and keeps
// the optimiser's state of its buckets of the weights (ZeRO, stage 1).
#pragma once
#include "model/train_internal.h"
#include "ranks/exchange.h"

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>

namespace attn {

class ShardedSteps final : public SharedSteps {
 public:
  /// Collective. The state must be equal at all ranks; `optimizer` is used at rank 0: what a resumed training has.
  ShardedSteps(Trainer::State& state, const Ranks& ranks, const optim::StateDict& optimizer);

  std::pair<double, double> gradients(std::int64_t step, const std::vector<std::int64_t>& batch) override;
  void update(double lr) override;
  double exchange_seconds() const override { return exchange_seconds_; }
  double hidden_seconds() const override { return hidden_seconds_; }
  std::vector<double> validation(std::int64_t batches, const std::function<double(std::int64_t)>& loss) override;
  optim::StateDict optimizer_state() const override;
  void write(const std::function<void()>& write) const override;

 private:
  /// This rank's elements of a parameter in one bucket.
  struct Shard {
    std::size_t parameter;
    std::int64_t begin, count;
    Tensor values;  // a view
  };
  class Overlap;
  /// Calls f(parameter, first element, number of elements, where they are in the span) for each parameter in a span of
  /// the flat array of all parameters.
  template <typename F>
  void each_in(const Span& span, const F& f) const;
  /// The same for all buckets of a rank, in their order; the last number is where the elements are in the flat array.
  template <typename F>
  void each_of(int rank, const F& f) const;
  void compute(std::int64_t step, const std::vector<std::int64_t>& batch, std::string& losses);
  std::string block_squares() const;
  double norm_of(const std::vector<std::string>& squares) const;
  std::vector<std::size_t> numbers_of_shards() const;
  void scatter(const optim::StateDict& whole);
  using NamedTensors = std::unordered_map<std::string, Tensor>;
  enum class Move { to_whole, to_shards };
  /// Copies the optimiser's state between the complete tensors at rank 0 and the shards of every rank.
  void move_state(const NamedTensors& wholes, const NamedTensors& shards, Move move) const;

  Trainer::State& state_;
  const Ranks ranks_;
  std::vector<std::int64_t> first_;  // where each parameter begins in the flat array, then its end
  const Buckets buckets_;
  std::vector<Shard> shards_;
  std::vector<std::size_t> numbers_;     // each parameter's index in the state of a single process's optimiser
  std::unique_ptr<optim::AdamW> adamw_;  // of the shards; null if there are none
  std::unique_ptr<OrderedSum> sum_;
  std::unique_ptr<Spread> spread_;
  double exchange_seconds_ = 0, hidden_seconds_ = 0;
};

/// Compares the training of every rank, weights too, and lets them share it from its next step on. Collective.
void share_training(Trainer::State& state, const Ranks& ranks);

template <typename F>
void ShardedSteps::each_in(const Span& span, const F& f) const {
  auto i = static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), span.begin) - first_.begin()) - 1;
  for (std::int64_t at = span.begin; at < span.end; at = first_[++i]) {
    const std::int64_t end = std::min(span.end, first_[i + 1]);
    if (at < end) f(i, at - first_[i], end - at, at - span.begin);
  }
}

template <typename F>
void ShardedSteps::each_of(int rank, const F& f) const {
  for (std::int64_t round = 0; round < buckets_.rounds(); ++round) {
    const Span bucket = buckets_.bucket(rank, round);
    each_in(bucket, [&](std::size_t i, std::int64_t begin, std::int64_t count, std::int64_t at) {
      f(i, begin, count, bucket.begin + at);
    });
  }
}

}  // namespace attn
