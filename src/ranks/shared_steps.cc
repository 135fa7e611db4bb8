// src/ranks/shared_steps.cc: gradients are added at the owner of each bucket, which clips and updates it; the new
// weights are sent to all ranks.
#include "ranks/shared_steps.h"

#include <attn/autograd.h>
#include <attn/ops.h>

#include "kernels/rows/target.h"
#include "ranks/messages.h"
#include "runtime/between_parts.h"
#include "tensor/blocks.h"
#include "tensor/rows.h"

#include "runtime/format.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

namespace attn {
namespace {

constexpr std::int64_t block = 4096;  // of the sums of docs/numerics.md section 5.2

/// Adds the seconds of its scope to a number.
class Timed {
 public:
  explicit Timed(double& seconds) : seconds_(seconds) {}
  ~Timed() { seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  const Clock::time_point begin_ = Clock::now();
};

std::vector<std::int64_t> firsts_of(const std::vector<Tensor>& parameters) {
  std::vector<std::int64_t> firsts{0};
  for (const Tensor& x : parameters) firsts.push_back(firsts.back() + x.numel());
  return firsts;
}

/// Cuts the flat array at whole blocks of a parameter, so that each block's sum of squares has one owner.
Buckets buckets_of(const std::vector<std::int64_t>& firsts, int ranks) {
  return Buckets(firsts.back(), ranks, [&](std::int64_t wanted) {
    const std::int64_t first = *std::prev(std::upper_bound(firsts.begin(), firsts.end(), wanted));
    return first + (wanted - first) / block * block;
  });
}

/// Returns each parameter's index in the optimiser's state: matrices first, then the others.
std::vector<std::size_t> numbers_of(const std::vector<Tensor>& parameters) {
  std::vector<std::size_t> numbers(parameters.size());
  std::size_t next = 0;
  for (const bool matrices : {true, false})
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if ((parameters[i].dim() >= 2) == matrices) numbers[i] = next++;
  return numbers;
}

}  // namespace

ShardedSteps::ShardedSteps(Trainer::State& state, const Ranks& ranks, const optim::StateDict& optimizer)
    : state_(state), ranks_(ranks), first_(firsts_of(state.parameters)), buckets_(buckets_of(first_, ranks.size())),
      numbers_(numbers_of(state.parameters)) {
  std::exception_ptr failure;
  try {
    const Tensor& gradients = state_.gradients.buffers().front();
    std::vector<Tensor> wholes, values;
    each_of(ranks_.rank(), [&](std::size_t i, std::int64_t begin, std::int64_t count, std::int64_t at) {
      Tensor shard = state_.parameters[i].detach().view({-1}).narrow(0, begin, count).detach();
      shard.requires_grad_();
      shard.set_grad(gradients.narrow(0, at, count));
      wholes.push_back(state_.parameters[i]), values.push_back(shard);
      shards_.push_back({i, begin, count, std::move(shard)});
    });
    if (auto groups = groups_of(wholes, values, state_.options); !groups.empty())
      adamw_ = std::make_unique<optim::AdamW>(std::move(groups));
    sum_ = std::make_unique<OrderedSum>(ranks_, state_.options.part_count(), state_.options.dtype, buckets_);
    spread_ = std::make_unique<Spread>(ranks_, buckets_, size_of(state_.options.dtype));
  } catch (...) { failure = std::current_exception(); }
  ranks_.agree(failure);
  if (state_.step > 0) scatter(optimizer);
}

std::vector<std::size_t> ShardedSteps::numbers_of_shards() const {
  std::vector<Tensor> wholes;
  for (const Shard& shard : shards_) wholes.push_back(state_.parameters[shard.parameter]);
  return numbers_of(wholes);
}

// --- a step --------------------------------------------------------------------------------------------------------

/// While it exists, this thread exchanges gradients between the parts of its parallel calls.
class ShardedSteps::Overlap {
 public:
  explicit Overlap(ShardedSteps& steps) : steps_(steps), between_(&Overlap::look, this) {}
  ~Overlap() { count(Clock::now()); }
  Overlap(const Overlap&) = delete;
  Overlap& operator=(const Overlap&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  static void look(void* context) noexcept {
    Overlap& self = *static_cast<Overlap*>(context);
    // a call of MPI takes about a microsecond, and a link of 10 GB/s moves a bucket in 50
    constexpr std::chrono::microseconds interval{100};
    const Clock::time_point now = Clock::now();
    if (now - self.last_ < interval) return;
    self.count(now);
    self.steps_.sum_->advance();
    self.sending_ = self.steps_.sum_->is_sending();
  }
  void count(Clock::time_point now) {
    if (sending_) steps_.hidden_seconds_ += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

  ShardedSteps& steps_;
  Clock::time_point last_ = Clock::now();
  bool sending_ = false;
  const runtime::BetweenParts between_;
};

/// Computes this rank's parts. Gradients that are final are sent while the last part's backward pass still runs.
void ShardedSteps::compute(std::int64_t step, const std::vector<std::int64_t>& batch, std::string& losses) {
  const std::int64_t parts = state_.options.part_count();
  const Overlap overlap(*this);
  PartGradients gradients(state_.source(), step, batch);
  const std::vector<Span> nodes = OrderedSum::nodes(parts, ranks_.rank(), ranks_.size());
  for (std::size_t n = 0; n + 1 < nodes.size(); ++n) {
    sum_->give(n, gradients.sum(nodes[n], /*in_buffer=*/false));
    sum_->send_from(n, 0);
  }
  const std::size_t last = nodes.size() - 1;
  std::vector<bool> final(state_.parameters.size());
  std::size_t left = final.size();  // the parameters from this one on are final
  gradients.sum(nodes[last], {.begins = [&](const Tensor& values) { sum_->give(last, values); },
                              .elements_are_final =
                                  [&](const Span& elements) {
                                    each_in(elements, [&](std::size_t i, std::int64_t, std::int64_t, std::int64_t) {
                                      final[i] = true;
                                    });
                                    while (left > 0 && final[left - 1]) --left;
                                    sum_->send_from(last, first_[left]);
                                  }});
  sum_->send_from(last, 0);
  const Span rows = gradients.rows_of(share_of(parts, ranks_.rank(), ranks_.size()));
  losses.assign(reinterpret_cast<const char*>(gradients.losses().data<float>() + rows.begin),
                static_cast<std::size_t>(rows.size()) * sizeof(float));
}

std::pair<double, double> ShardedSteps::gradients(std::int64_t step, const std::vector<std::int64_t>& batch) {
  std::exception_ptr failure;
  std::string losses;
  sum_->start(state_.gradients.buffers().front().data());
  try {
    compute(step, batch, losses);
  } catch (...) { failure = std::current_exception(); }
  const Timed exchange(exchange_seconds_);
  sum_->finish(failure != nullptr);  // others already send, and wait
  ranks_.agree(failure);

  // Losses of the rows and sums of squares of the blocks, of all ranks: 4 bytes a token and a kilobyte of gradients.
  const std::size_t bytes_of_losses = losses.size();
  const auto all = ranks_.gather(std::string(reinterpret_cast<const char*>(&bytes_of_losses), sizeof bytes_of_losses) +
                                 losses + block_squares());
  std::vector<std::string> squares;
  std::string rows;
  for (const std::string& each : all) {
    std::size_t bytes = 0;
    std::memcpy(&bytes, each.data(), sizeof bytes);
    rows.append(each, sizeof bytes, bytes);
    squares.push_back(each.substr(sizeof bytes + bytes));
  }
  const Tensor of_rows = empty({static_cast<std::int64_t>(rows.size() / sizeof(float))});
  std::memcpy(of_rows.data(), rows.data(), rows.size());
  const double norm = norm_of(squares);
  return {mean_loss(of_rows), norm};
}

/// Returns the sum of squares of each block of this rank's gradients, f32.
std::string ShardedSteps::block_squares() const {
  const Tensor& gradients = state_.gradients.buffers().front();
  std::string squares;
  each_of(ranks_.rank(), [&](std::size_t, std::int64_t, std::int64_t count, std::int64_t at) {
    for (std::int64_t i = 0; i < count; i += block) {
      const std::int64_t n = std::min(block, count - i);
      alignas(64) float wide[block];
      read_block(
          gradients.dtype(),
          static_cast<const char*>(gradients.data()) + static_cast<std::size_t>(at + i) * size_of(gradients.dtype()),
          static_cast<std::int64_t>(size_of(gradients.dtype())), wide, n);
      float sum = 0;
      kernels::row_kernels().row(kernels::RowOp::sum_of_squares, kernels::Element::f32, wide, 1, &sum, 1, n);
      squares.append(reinterpret_cast<const char*>(&sum), sizeof sum);
    }
  });
  return squares;
}

/// Returns the norm of all gradients with the bits of clip_grad_norm_, and clips this rank's as it does. `squares`: of
/// each rank.
double ShardedSteps::norm_of(const std::vector<std::string>& squares) const {
  const NoGrad guard;
  std::vector<JoinedSums<float>> sums(state_.parameters.size());
  std::vector<const char*> next;
  for (const std::string& each : squares) next.push_back(each.data());
  for (std::int64_t round = 0; round < buckets_.rounds(); ++round)  // the elements ascend
    for (int rank = 0; rank < ranks_.size(); ++rank)
      each_in(buckets_.bucket(rank, round), [&](std::size_t i, std::int64_t, std::int64_t count, std::int64_t) {
        const char*& from = next[static_cast<std::size_t>(rank)];
        for (std::int64_t at = 0; at < count; at += block, from += sizeof(float)) {
          float sum;
          std::memcpy(&sum, from, sizeof sum);
          sums[i].add(sum);
        }
      });
  const Tensor norms = empty({static_cast<std::int64_t>(sums.size())});
  for (std::size_t i = 0; i < sums.size(); ++i) norms.data<float>()[i] = canonical_nan(std::sqrt(sums[i].total()));
  const Tensor total = norm(norms, 2.0);
  const double clip = state_.options.clip;
  if (clip > 0) {
    const Tensor factor = minimum(clip / (total + 1e-6), ones({}, total.dtype()));
    if (factor.item() != 1)
      for (const Shard& shard : shards_) shard.values.grad().mul_(factor);
  }
  return total.item();
}

void ShardedSteps::update(double lr) {
  std::exception_ptr failure;
  try {
    if (adamw_) {
      for (auto& group : adamw_->groups) group.options.lr = lr;
      adamw_->step();
    }
  } catch (...) { failure = std::current_exception(); }
  const Timed exchange(exchange_seconds_);
  ranks_.agree(failure);
  const std::size_t element = size_of(state_.options.dtype);
  const auto weights = [&](std::size_t i, std::int64_t begin) {
    return static_cast<char*>(state_.parameters[i].data()) + static_cast<std::size_t>(begin) * element;
  };
  spread_->run(
      [&](const Span& bucket, void* to) {
        each_in(bucket, [&](std::size_t i, std::int64_t begin, std::int64_t count, std::int64_t at) {
          std::memcpy(static_cast<char*>(to) + static_cast<std::size_t>(at) * element, weights(i, begin),
                      static_cast<std::size_t>(count) * element);
        });
      },
      [&](const Span& bucket, const void* from) {
        each_in(bucket, [&](std::size_t i, std::int64_t begin, std::int64_t count, std::int64_t at) {
          std::memcpy(weights(i, begin), static_cast<const char*>(from) + static_cast<std::size_t>(at) * element,
                      static_cast<std::size_t>(count) * element);
        });
      });
  for (const Tensor& x : state_.parameters) x.bump_version();
}

std::vector<double> ShardedSteps::validation(std::int64_t batches, const std::function<double(std::int64_t)>& loss) {
  std::exception_ptr failure;
  std::vector<double> mine;
  try {
    for (std::int64_t i = ranks_.rank(); i < batches; i += ranks_.size()) mine.push_back(loss(i));
  } catch (...) { failure = std::current_exception(); }
  ranks_.agree(failure);
  const auto all = ranks_.gather({reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(double)});
  std::vector<double> losses(static_cast<std::size_t>(batches));
  const auto ranks = static_cast<std::size_t>(ranks_.size());
  for (std::size_t i = 0; i < losses.size(); ++i)
    std::memcpy(&losses[i], all[i % ranks].data() + i / ranks * sizeof(double), sizeof(double));
  return losses;
}

void ShardedSteps::write(const std::function<void()>& write) const {
  std::exception_ptr failure;
  try {
    if (ranks_.rank() == 0) write();
  } catch (...) { failure = std::current_exception(); }
  ranks_.agree(failure);
}

}  // namespace attn
