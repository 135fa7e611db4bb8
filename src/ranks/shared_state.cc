// src/ranks/shared_state.cc: the optimiser's state, of which each rank has a share, is gathered to be saved and dealt
// when a training is resumed.
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

using NamedTensors = std::unordered_map<std::string, Tensor>;

const Tensor& find(const NamedTensors& named, const std::string& name) {
  const auto found = named.find(name);
  if (found == named.end()) throw ValueError("Trainer: the optimiser's state has no " + name);
  return found->second;
}

}  // namespace

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
  Messages messages(ranks_.transport());
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    std::size_t shard = 0;
    each_of(rank, [&](std::size_t i, std::int64_t begin, std::int64_t count, std::int64_t) {
      for (const char* name : buffers) {
        const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
        float* to = first ? find(wholes, name_in_state(numbers_[i], name)).data<float>() + begin : nullptr;
        const float* from =
            rank == ranks_.rank() ? find(shards, name_in_state(own[shard], name)).data<float>() : nullptr;
        if (first && rank == 0) std::memcpy(to, from, bytes);
        else if (first) messages.receive(rank, to, bytes);
        else if (rank == ranks_.rank()) messages.send(0, from, bytes);
      }
      ++shard;
    });
  }
  messages.wait();
  return whole;
}

void ShardedSteps::scatter(const optim::StateDict& whole) {
  const bool first = ranks_.rank() == 0;
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
  Messages messages(ranks_.transport());
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    std::size_t shard = 0;
    each_of(rank, [&](std::size_t i, std::int64_t begin, std::int64_t count, std::int64_t) {
      for (const char* name : buffers) {
        const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
        const float* from = first ? find(wholes, name_in_state(numbers_[i], name)).data<float>() + begin : nullptr;
        float* to = rank == ranks_.rank() ? find(shards, name_in_state(own[shard], name)).data<float>() : nullptr;
        if (first && rank == 0) std::memcpy(to, from, bytes);
        else if (first) messages.send(rank, from, bytes);
        else if (rank == ranks_.rank()) messages.receive(0, to, bytes);
      }
      ++shard;
    });
  }
  messages.wait();
  try {
    if (adamw_) adamw_->load_state_dict(mine);
  } catch (...) { failure = std::current_exception(); }
  ranks_.agree(failure);
}

}  // namespace attn
