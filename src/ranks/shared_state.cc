// src/ranks/shared_state.cc: gathers the ranks' shares of the optimiser's state to save them, and deals them when a
// training is resumed.
#include "ranks/messages.h"
#include "ranks/shared_steps.h"

#include "runtime/format.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>

namespace attn {
namespace {

std::vector<const char*> buffers_of(Dtype dtype) {
  return dtype == Dtype::f32 ? std::vector<const char*>{"exp_avg", "exp_avg_sq"}
                             : std::vector<const char*>{"exp_avg", "exp_avg_sq", "master"};
}

std::string name_in_state(std::size_t number, const char* what) { return runtime::format("state.{}.{}", number, what); }

const Tensor& find(const std::unordered_map<std::string, Tensor>& named, const std::string& name) {
  const auto found = named.find(name);
  if (found == named.end()) throw ValueError("Trainer: the optimiser's state has no " + name);
  return found->second;
}

}  // namespace

void ShardedSteps::move_state(const NamedTensors& wholes, const NamedTensors& shards, Move move) const {
  const bool first = ranks_.rank() == 0, gathers = move == Move::to_whole;
  const std::vector<const char*> buffers = buffers_of(state_.options.dtype);
  const std::vector<std::size_t> own = numbers_of_shards();
  Messages messages(ranks_.transport());
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    std::size_t shard = 0;
    each_of(rank, [&](std::size_t i, std::int64_t begin, std::int64_t count, std::int64_t) {
      for (const char* name : buffers) {
        const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
        const bool mine = rank == ranks_.rank();
        float* of_whole = first ? find(wholes, name_in_state(numbers_[i], name)).data<float>() + begin : nullptr;
        float* of_shard = mine ? find(shards, name_in_state(own[shard], name)).data<float>() : nullptr;
        if (first && mine) std::memcpy(gathers ? of_whole : of_shard, gathers ? of_shard : of_whole, bytes);
        else if (first && gathers) messages.receive(rank, of_whole, bytes);
        else if (first) messages.send(rank, of_whole, bytes);
        else if (mine && gathers) messages.send(0, of_shard, bytes);
        else if (mine) messages.receive(0, of_shard, bytes);
      }
      ++shard;
    });
  }
  messages.wait();
}

optim::StateDict ShardedSteps::optimizer_state() const {
  if (state_.step == 0) return {};
  const bool first = ranks_.rank() == 0;
  std::exception_ptr failure;
  optim::StateDict whole, mine;
  NamedTensors wholes, shards;
  const std::vector<const char*> buffers = buffers_of(state_.options.dtype);
  const std::vector<std::size_t> own = numbers_of_shards();
  try {
    if (adamw_) mine = adamw_->state_dict();
    if (first)  // in the order of an optimiser of all parameters
      for (std::size_t number = 0; number < numbers_.size(); ++number) {
        const auto i = static_cast<std::size_t>(std::find(numbers_.begin(), numbers_.end(), number) - numbers_.begin());
        whole.emplace_back(name_in_state(number, "step"), full({}, state_.step, Dtype::i64));
        for (const char* name : buffers)
          whole.emplace_back(name_in_state(number, name), empty(state_.parameters[i].sizes()));
      }
    wholes = {whole.begin(), whole.end()}, shards = {mine.begin(), mine.end()};
  } catch (...) { failure = std::current_exception(); }
  ranks_.agree(failure);
  move_state(wholes, shards, Move::to_whole);
  return whole;
}

void ShardedSteps::scatter(const optim::StateDict& whole) {
  const std::vector<const char*> buffers = buffers_of(state_.options.dtype);
  const std::vector<std::size_t> own = numbers_of_shards();
  optim::StateDict mine;
  NamedTensors wholes, shards;
  std::exception_ptr failure;
  try {
    for (std::size_t j = 0; j < shards_.size(); ++j) {
      mine.emplace_back(name_in_state(own[j], "step"), full({}, state_.step, Dtype::i64));
      for (const char* name : buffers) mine.emplace_back(name_in_state(own[j], name), empty({shards_[j].count}));
    }
    wholes = {whole.begin(), whole.end()}, shards = {mine.begin(), mine.end()};
  } catch (...) { failure = std::current_exception(); }
  ranks_.agree(failure);
  move_state(wholes, shards, Move::to_shards);
  try {
    if (adamw_) adamw_->load_state_dict(mine);
  } catch (...) { failure = std::current_exception(); }
  ranks_.agree(failure);
}

}  // namespace attn
