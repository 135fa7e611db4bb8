// src/model/train_task.h: declares what a training needs of its model and its data.
#pragma once
#include <attn/nn/module.h>
#include <attn/tensor.h>

#include <cstdint>
#include <functional>
#include <string>

namespace attn {

/// A model with the data that it is trained on: a text, or pairs of texts.
class TrainTask {
 public:
  virtual ~TrainTask() = default;
  virtual const nn::Module& module() const = 0;
  /// Returns the loss of the next random batch; advances the global generator.
  virtual Tensor draw_loss() const = 0;
  /// Calls `each` with the mean loss of every batch of the validation part, and the number of its targets.
  virtual void validate(const std::function<void(double loss, std::int64_t targets)>& each) const = 0;
  /// Returns a digest of the data: equal for the same texts and tokenizer.
  virtual std::string digest() const = 0;
  virtual double tokens_a_step() const = 0;
  /// Writes the model's files.
  virtual void save(const std::string& folder) const = 0;
};

}  // namespace attn
