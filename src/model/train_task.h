// src/model/train_task.h: declares what a training needs of its model and its data.
#pragma once
#include <attn/nn/module.h>
#include <attn/tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace attn {

/// The batches of the validation part: how many targets each has, and the mean loss of the one with this number.
struct ValidationBatches {
  std::vector<std::int64_t> targets;
  std::function<double(std::int64_t)> loss;
};

/// A model with the data that it is trained on: a text, or pairs of texts.
class TrainTask {
 public:
  virtual ~TrainTask() = default;
  virtual const nn::Module& module() const = 0;
  /// Draws the next batch: where its windows begin in the text, or the numbers of its pairs. Advances the global
  /// generator.
  virtual std::vector<std::int64_t> draw() const = 0;
  /// Returns the mean loss of a batch that `draw` has returned.
  virtual Tensor loss(const std::vector<std::int64_t>& batch) const = 0;
  /// Returns how many rows of logits, each with a loss, come before each item of a batch, then how many there are.
  virtual std::vector<std::int64_t> rows(const std::vector<std::int64_t>& batch) const = 0;
  /// Returns the loss of each row of some items of a batch, f32.
  virtual Tensor losses(const std::vector<std::int64_t>& items) const = 0;
  /// What it returns must not outlive the task.
  virtual ValidationBatches validation() const = 0;
  /// Returns a digest of the data: equal for the same texts and tokenizer.
  virtual std::string digest() const = 0;
  virtual double tokens_a_step() const = 0;
  /// Writes the model's files.
  virtual void save(const std::string& folder) const = 0;
};

}  // namespace attn
