// src/model/train_data.h: the ids of a text, cut into a part to learn and a part to validate, and windows of them.
#pragma once
#include <attn/tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace attn {

/// Inputs and targets, i64 [windows, length]: a target is the id after.
using Batch = std::pair<Tensor, Tensor>;

class TrainData {
 public:
  /// ValueError for ids outside [0, vocab_size), and for too few.
  TrainData(std::vector<std::int64_t> ids, std::int64_t vocab_size, std::int64_t context);

  /// `windows` of `context` ids of the first 90 %, that begin where torch's randint says; draws from the global
  /// generator.
  Batch draw(std::int64_t windows) const;
  /// The validation part in windows side by side, `windows` at a time; the last one is what is left, alone. Every id
  /// but the part's first is a target once.
  std::vector<Batch> validation(std::int64_t windows) const;

  std::int64_t size() const { return static_cast<std::int64_t>(ids_.size()); }
  /// Where validation begins.
  std::int64_t border() const { return border_; }
  /// Of all ids: the same text by the same tokenizer (FNV-1a, 64 bits).
  std::string digest() const;

 private:
  Batch windows(const std::vector<std::int64_t>& starts, std::int64_t length) const;
  std::vector<std::int64_t> ids_;
  std::int64_t context_, border_;
};

}  // namespace attn
