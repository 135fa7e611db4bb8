// src/model/train_data.cc: draws the random training batches in nanoGPT's order, and cuts the validation part into
// fixed batches.
#include "model/train_data.h"

#include <attn/ops.h>
#include <attn/random.h>

#include "runtime/format.h"

#include <algorithm>

namespace attn {

TrainData::TrainData(std::vector<std::int64_t> ids, std::int64_t vocab_size, std::int64_t context)
    : ids_(std::move(ids)), context_(context), border_(size() - size() / 10) {
  const auto wrong =
      std::find_if(ids_.begin(), ids_.end(), [&](std::int64_t id) { return id < 0 || id >= vocab_size; });
  if (wrong != ids_.end())
    throw ValueError(
        runtime::format("Trainer: id {} at {} is not below vocab_size {}", *wrong, wrong - ids_.begin(), vocab_size));
  // Training needs one window and the id after it; validation needs two ids, an input and its target.
  std::int64_t least = context + 1;
  while (least - least / 10 < context + 1 || least / 10 < 2) ++least;
  if (size() < least)
    throw ValueError(runtime::format(
        "Trainer: the text has {} token{}; windows of {} need at least {}: a longer text, or a shorter context", size(),
        size() == 1 ? "" : "s", context, least));
}

Batch TrainData::windows(const std::vector<std::int64_t>& starts, std::int64_t length) const {
  const Dims sizes{static_cast<std::int64_t>(starts.size()), length};
  Tensor inputs = empty(sizes, Dtype::i64), targets = empty(sizes, Dtype::i64);
  auto *input = inputs.data<std::int64_t>(), *target = targets.data<std::int64_t>();
  for (const std::int64_t start : starts) {
    const auto from = ids_.begin() + start;
    input = std::copy(from, from + length, input);
    target = std::copy(from + 1, from + 1 + length, target);
  }
  return {inputs, targets};
}

std::vector<std::int64_t> TrainData::starts(std::int64_t count) const {
  return randint(0, border_ - context_, {count}).to_int_vector();
}

std::vector<Batch> TrainData::validation(std::int64_t count) const {
  std::vector<Batch> batches;
  std::vector<std::int64_t> starts;
  std::int64_t at = border_;
  for (; at + context_ < size(); at += context_) {
    starts.push_back(at);
    if (static_cast<std::int64_t>(starts.size()) < count) continue;
    batches.push_back(windows(starts, context_));
    starts.clear();
  }
  if (!starts.empty()) batches.push_back(windows(starts, context_));
  if (at + 1 < size()) batches.push_back(windows({at}, size() - 1 - at));
  return batches;
}

std::string TrainData::digest() const {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const std::int64_t id : ids_)
    for (int shift = 0; shift < 32; shift += 8)
      hash = (hash ^ (static_cast<std::uint64_t>(id) >> shift & 0xFF)) * 0x100000001B3;
  return runtime::format("{:016x}", hash);
}

}  // namespace attn
