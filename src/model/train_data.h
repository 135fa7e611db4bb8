// src/model/train_data.h: splits the ids of a text into a training part and a validation part, and cuts windows out of
// them.
#pragma once
#include <attn/tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace attn {

/// Inputs and targets, i64 [windows, length]; the target is the next id.
using Batch = std::pair<Tensor, Tensor>;

class TrainData {
 public:
  /// Throws a ValueError for ids outside [0, vocab_size), and for too few ids.
  TrainData(std::vector<std::int64_t> ids, std::int64_t vocab_size, std::int64_t context);

  /// Draws `windows` windows of `context` ids from the first 90 %; they begin where torch's randint with the same
  /// generator says. Advances the global generator.
  Batch draw(std::int64_t windows) const { return windows_at(starts(windows)); }
  /// Returns where the windows of `draw` begin. Advances the global generator.
  std::vector<std::int64_t> starts(std::int64_t windows) const;
  /// Returns the windows of `context` ids that begin there.
  Batch windows_at(const std::vector<std::int64_t>& starts) const { return windows(starts, context_); }
  /// Returns the validation part in batches of `windows` windows. A rest that is shorter than a window is a batch of
  /// its own. Every id of the part except the first is a target once.
  std::vector<Batch> validation(std::int64_t windows) const;

  std::int64_t size() const { return static_cast<std::int64_t>(ids_.size()); }
  /// Returns the index at which the validation part begins.
  std::int64_t border() const { return border_; }
  /// Returns a digest of all ids (FNV-1a, 64 bits): equal for the same text and tokenizer.
  std::string digest() const;

 private:
  Batch windows(const std::vector<std::int64_t>& starts, std::int64_t length) const;
  std::vector<std::int64_t> ids_;
  std::int64_t context_, border_;
};

}  // namespace attn
