// src/ranks/shared_steps.cc: gradients are added at the owner of each piece, which clips and updates it; the new
// weights go to everybody.
#include "ranks/shared_steps.h"

#include <attn/autograd.h>
#include <attn/ops.h>

#include "kernels/rows/target.h"
#include "ranks/messages.h"
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
Pieces pieces_of(const std::vector<std::int64_t>& firsts, int ranks) {
  std::vector<std::int64_t> cuts;
  for (int r = 0; r < ranks; ++r) {
    const std::int64_t wanted = firsts.back() * r / ranks;
    const std::int64_t first = *std::prev(std::upper_bound(firsts.begin(), firsts.end(), wanted));
    cuts.push_back(first + (wanted - first) / block * block);
  }
  cuts.push_back(firsts.back());
  return Pieces(std::move(cuts));
}

/// Returns the number of each share in the state of an optimiser of those that are defined; matrices come first.
std::vector<std::size_t> numbers_of(const std::vector<Tensor>& parameters, const std::vector<Tensor>& shares) {
  std::vector<std::size_t> numbers(parameters.size());
  std::size_t next = 0;
  for (const bool matrices : {true, false})
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (shares[i].defined() && (parameters[i].dim() >= 2) == matrices) numbers[i] = next++;
  return numbers;
}

std::vector<const char*> buffers_of(Dtype dtype) {
  return dtype == Dtype::f32 ? std::vector<const char*>{"exp_avg", "exp_avg_sq"}
                             : std::vector<const char*>{"exp_avg", "exp_avg_sq", "master"};
}

std::string name_in_state(std::size_t number, const char* what) { return runtime::format("state.{}.{}", number, what); }

const Tensor& find(const optim::StateDict& dict, const std::string& name) {
  const auto found = std::find_if(dict.begin(), dict.end(), [&](const auto& each) { return each.first == name; });
  if (found == dict.end()) throw ValueError("Trainer: the optimiser's state has no " + name);
  return found->second;
}

}  // namespace

template <typename F>
void ShardedSteps::each_in(const Span& span, const F& f) const {
  auto i = static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), span.begin) - first_.begin()) - 1;
  for (std::int64_t at = span.begin; at < span.end; at = first_[++i]) {
    const std::int64_t end = std::min(span.end, first_[i + 1]);
    if (at < end) f(i, at - first_[i], end - at, at - span.begin);
  }
}

ShardedSteps::ShardedSteps(Trainer::State& state, const Ranks& ranks, const optim::StateDict& optimizer)
    : state_(state), ranks_(ranks), first_(firsts_of(state.parameters)), pieces_(pieces_of(first_, ranks.size())),
      shards_(state.parameters.size()), numbers_(numbers_of(state.parameters, state.parameters)) {
  std::exception_ptr failure;
  try {
    const Tensor& gradients = state_.gradients.buffers().front();
    const Span mine = pieces_.of(ranks_.rank());
    each_in(mine, [&](std::size_t i, std::int64_t begin, std::int64_t count, std::int64_t at) {
      shards_[i] = state_.parameters[i].detach().view({-1}).narrow(0, begin, count).detach();
      shards_[i].requires_grad_();
      shards_[i].set_grad(gradients.narrow(0, mine.begin + at, count));
    });
    if (auto groups = groups_of(state_.parameters, shards_, state_.options); !groups.empty())
      adamw_ = std::make_unique<optim::AdamW>(std::move(groups));
    sum_ = std::make_unique<OrderedSum>(ranks_, state_.options.part_count(), state_.options.dtype, pieces_);
    spread_ = std::make_unique<Spread>(ranks_, pieces_, size_of(state_.options.dtype));
  } catch (...) { failure = std::current_exception(); }
  ranks_.agree(failure);
  if (state_.step > 0) scatter(optimizer);
}

// --- a step --------------------------------------------------------------------------------------------------------

std::pair<double, double> ShardedSteps::gradients(std::int64_t step, const std::vector<std::int64_t>& starts) {
  const std::int64_t parts = state_.options.part_count(), context = state_.options.model.context;
  std::exception_ptr failure;
  std::vector<NodeSum> mine;
  std::string losses;
  try {
    PartGradients part_gradients(state_.source(), step, starts);
    const std::vector<Span> nodes = OrderedSum::nodes(parts, ranks_.rank(), ranks_.size());
    for (const Span& node : nodes) mine.push_back({node, part_gradients.sum(node, node == nodes.back())});
    const Span range = share_of(parts, ranks_.rank(), ranks_.size());
    const std::int64_t begin = share_of(state_.options.batch, range.begin, parts).begin * context,
                       end = share_of(state_.options.batch, range.end - 1, parts).end * context;
    losses.assign(reinterpret_cast<const char*>(part_gradients.losses().data<float>() + begin),
                  static_cast<std::size_t>(end - begin) * sizeof(float));
  } catch (...) { failure = std::current_exception(); }
  const Timed exchange(exchange_seconds_);
  ranks_.agree(failure);

  const Tensor piece =
      state_.gradients.buffers().front().narrow(0, pieces_.of(ranks_.rank()).begin, pieces_.of(ranks_.rank()).size());
  sum_->run(mine, piece.data());
  // Losses of the rows and sums of squares of the blocks, of all ranks: 4 bytes a token and a kilobyte of gradients.
  const std::size_t bytes_of_losses = losses.size();
  const auto all = ranks_.gather(std::string(reinterpret_cast<const char*>(&bytes_of_losses), sizeof bytes_of_losses) +
                                 losses + block_squares());
  std::string squares;
  const Tensor rows = empty({state_.options.batch * context});
  auto* row = static_cast<char*>(rows.data());
  for (const std::string& each : all) {
    std::size_t bytes = 0;
    std::memcpy(&bytes, each.data(), sizeof bytes);
    std::memcpy(row, each.data() + sizeof bytes, bytes);
    row += bytes;
    squares += each.substr(sizeof bytes + bytes);
  }
  const double norm = norm_of(squares);
  return {mean_loss(rows), norm};
}

/// Returns the sum of squares of each block of this rank's gradients, f32.
std::string ShardedSteps::block_squares() const {
  const Tensor& gradients = state_.gradients.buffers().front();
  const Span mine = pieces_.of(ranks_.rank());
  std::string squares;
  each_in(mine, [&](std::size_t, std::int64_t, std::int64_t count, std::int64_t at) {
    for (std::int64_t i = 0; i < count; i += block) {
      const std::int64_t n = std::min(block, count - i);
      alignas(64) float wide[block];
      read_block(gradients.dtype(),
                 static_cast<const char*>(gradients.data()) +
                     static_cast<std::size_t>(mine.begin + at + i) * size_of(gradients.dtype()),
                 static_cast<std::int64_t>(size_of(gradients.dtype())), wide, n);
      float sum = 0;
      kernels::row_kernels().row(kernels::RowOp::sum_of_squares, kernels::Element::f32, wide, 1, &sum, 1, n);
      squares.append(reinterpret_cast<const char*>(&sum), sizeof sum);
    }
  });
  return squares;
}

/// Returns the norm of all gradients with the bits of clip_grad_norm_, and clips this rank's as it does.
double ShardedSteps::norm_of(const std::string& squares) const {
  const NoGrad guard;
  const Tensor norms = empty({static_cast<std::int64_t>(state_.parameters.size())});
  const char* next = squares.data();
  for (std::size_t i = 0; i < state_.parameters.size(); ++i) {
    JoinedSums<float> sums;
    for (std::int64_t at = 0; at < state_.parameters[i].numel(); at += block, next += sizeof(float)) {
      float sum;
      std::memcpy(&sum, next, sizeof sum);
      sums.add(sum);
    }
    norms.data<float>()[i] = canonical_nan(std::sqrt(sums.total()));
  }
  const Tensor total = norm(norms, 2.0);
  const double clip = state_.options.clip;
  if (clip > 0) {
    const Tensor factor = minimum(clip / (total + 1e-6), ones({}, total.dtype()));
    const Span mine = pieces_.of(ranks_.rank());
    if (factor.item() != 1) state_.gradients.buffers().front().narrow(0, mine.begin, mine.size()).mul_(factor);
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

// --- the optimiser's state -----------------------------------------------------------------------------------------

optim::StateDict ShardedSteps::optimizer_state() const {
  if (state_.step == 0) return {};
  const bool first = ranks_.rank() == 0;
  std::exception_ptr failure;
  optim::StateDict whole, shards;
  const std::vector<const char*> buffers = buffers_of(state_.options.dtype);
  try {
    if (adamw_) shards = adamw_->state_dict();
    if (first)  // in the order of an optimiser of all parameters
      for (std::size_t number = 0; number < numbers_.size(); ++number) {
        const auto i = static_cast<std::size_t>(std::find(numbers_.begin(), numbers_.end(), number) - numbers_.begin());
        whole.emplace_back(name_in_state(number, "step"), full({}, state_.step, Dtype::i64));
        for (const char* name : buffers)
          whole.emplace_back(name_in_state(number, name), empty(state_.parameters[i].sizes()));
      }
  } catch (...) { failure = std::current_exception(); }
  ranks_.agree(failure);
  Messages messages(ranks_.transport());
  const std::vector<std::size_t> own = numbers_of(state_.parameters, shards_);
  for (int rank = 0; rank < ranks_.size(); ++rank)
    each_in(pieces_.of(rank), [&](std::size_t i, std::int64_t begin, std::int64_t count, std::int64_t) {
      for (const char* name : buffers) {
        const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
        float* to = first ? find(whole, name_in_state(numbers_[i], name)).data<float>() + begin : nullptr;
        const float* from = rank == ranks_.rank() ? find(shards, name_in_state(own[i], name)).data<float>() : nullptr;
        if (first && rank == 0) std::memcpy(to, from, bytes);
        else if (first) messages.receive(rank, to, bytes);
        else if (rank == ranks_.rank()) messages.send(0, from, bytes);
      }
    });
  messages.wait();
  return whole;
}

void ShardedSteps::scatter(const optim::StateDict& whole) {
  const bool first = ranks_.rank() == 0;
  const std::vector<const char*> buffers = buffers_of(state_.options.dtype);
  const std::vector<std::size_t> own = numbers_of(state_.parameters, shards_);
  optim::StateDict shards;
  std::exception_ptr failure;
  try {
    each_in(pieces_.of(ranks_.rank()), [&](std::size_t i, std::int64_t, std::int64_t count, std::int64_t) {
      shards.emplace_back(name_in_state(own[i], "step"), full({}, state_.step, Dtype::i64));
      for (const char* name : buffers) shards.emplace_back(name_in_state(own[i], name), empty({count}));
    });
  } catch (...) { failure = std::current_exception(); }
  ranks_.agree(failure);
  Messages messages(ranks_.transport());
  for (int rank = 0; rank < ranks_.size(); ++rank)
    each_in(pieces_.of(rank), [&](std::size_t i, std::int64_t begin, std::int64_t count, std::int64_t) {
      for (const char* name : buffers) {
        const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
        const float* from = first ? find(whole, name_in_state(numbers_[i], name)).data<float>() + begin : nullptr;
        float* to = rank == ranks_.rank() ? find(shards, name_in_state(own[i], name)).data<float>() : nullptr;
        if (first && rank == 0) std::memcpy(to, from, bytes);
        else if (first) messages.send(rank, from, bytes);
        else if (rank == ranks_.rank()) messages.receive(0, to, bytes);
      }
    });
  messages.wait();
  try {
    if (adamw_) adamw_->load_state_dict(shards);
  } catch (...) { failure = std::current_exception(); }
  ranks_.agree(failure);
}

void ShardedSteps::write(const std::function<void()>& write) const {
  std::exception_ptr failure;
  try {
    if (ranks_.rank() == 0) write();
  } catch (...) { failure = std::current_exception(); }
  ranks_.agree(failure);
}

}  // namespace attn
