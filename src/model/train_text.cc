// src/model/train_text.cc: implements the training of a language model on a text.
#include "model/train_text.h"

#include <attn/error.h>
#include <attn/ops.h>

#include "model/train_internal.h"

#include "runtime/format.h"

namespace attn {
namespace {

/// Seeds the global generator and makes the model, whose weights are the first numbers that it draws.
LanguageModel make_model(const TrainOptions& options) {
  options.check();
  if (options.encoder_decoder) throw ValueError("Trainer: encoder_decoder is trained on pairs, not on a text");
  manual_seed(options.seed);
  return LanguageModel(options.model, options.dtype);
}

}  // namespace

TextTask::TextTask(std::vector<std::int64_t> ids, const TrainOptions& options)
    : data_(std::move(ids), options.model.vocab_size, options.model.context), batch_(options.batch),
      model(make_model(options)) {}

Tensor TextTask::loss(const std::vector<std::int64_t>& batch) const {
  const auto [inputs, targets] = data_.windows_at(batch);
  return model.loss(inputs, targets);
}

std::vector<std::int64_t> TextTask::rows(const std::vector<std::int64_t>& batch) const {
  std::vector<std::int64_t> rows{0};
  for (std::size_t i = 0; i < batch.size(); ++i) rows.push_back(rows.back() + model.config.context);
  return rows;
}

Tensor TextTask::losses(const std::vector<std::int64_t>& items) const {
  const auto [inputs, targets] = data_.windows_at(items);
  const Tensor logits = model.forward(inputs).flatten(0, 1).to(Dtype::f32);
  return cross_entropy(logits, targets.reshape({-1}), {.reduction = Reduction::none});
}

ValidationBatches TextTask::validation() const {
  std::vector<Batch> batches = data_.validation(batch_);
  ValidationBatches result;
  for (const Batch& batch : batches) result.targets.push_back(batch.second.numel());
  result.loss = [this, batches = std::move(batches)](std::int64_t i) {
    const auto& [inputs, targets] = batches[static_cast<std::size_t>(i)];
    return model.loss(inputs, targets).item();
  };
  return result;
}

Trainer::Trainer(std::vector<std::int64_t> ids, const TrainOptions& options)
    : state_(std::make_unique<State>(std::make_unique<TextTask>(std::move(ids), options), options)) {}

Trainer Trainer::resume(const std::string& folder, std::vector<std::int64_t> ids) {
  return Trainer(State::resumed(folder, [&](const TrainOptions& options) {
    if (options.encoder_decoder)
      throw ValueError(runtime::format("Trainer: {} trains on pairs, not on a text", folder));
    return std::make_unique<TextTask>(std::move(ids), options);
  }));
}

const LanguageModel& Trainer::model() const {
  const auto* task = dynamic_cast<const TextTask*>(state().task.get());
  if (task == nullptr) throw ValueError("Trainer: its model is an encoder-decoder, which encoder_decoder() returns");
  return task->model;
}

}  // namespace attn
