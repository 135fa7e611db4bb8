// src/model/train_text.h: declares the training of a language model on a text.
#pragma once
#include <attn/train.h>

#include "model/train_data.h"
#include "model/train_task.h"

#include <vector>

namespace attn {

class TextTask : public TrainTask {
 public:
  /// Checks data and options, seeds the global generator, and draws the weights.
  TextTask(std::vector<std::int64_t> ids, const TrainOptions& options);
  const nn::Module& module() const override { return model; }
  std::vector<std::int64_t> draw() const override { return data_.starts(batch_); }
  Tensor loss(const std::vector<std::int64_t>& batch) const override;
  std::vector<std::int64_t> rows(const std::vector<std::int64_t>& batch) const override;
  Tensor losses(const std::vector<std::int64_t>& items) const override;
  ValidationBatches validation() const override;
  std::string digest() const override { return data_.digest(); }
  double tokens_a_step() const override { return static_cast<double>(batch_ * model.config.context); }
  void save(const std::string& folder) const override { model.save(folder); }

 private:
  TrainData data_;
  std::int64_t batch_;

 public:
  const LanguageModel model;
};

}  // namespace attn
