// src/model/train_internal.h: declares the state of a training, which its steps and the file that saves it share.
#pragma once
#include <attn/train.h>

#include "model/flat_gradients.h"
#include "model/train_data.h"

#include <vector>

namespace attn {

struct LossPoint {
  std::int64_t step;
  double loss;
};

struct Trainer::State {
  State(std::vector<std::int64_t> ids, const TrainOptions& options);

  TrainOptions options;
  TrainData data;
  LanguageModel model;
  std::vector<Tensor> parameters;
  FlatGradients gradients;
  optim::AdamW adamw;
  std::int64_t step = 0, best_step = 0;
  double best = std::numeric_limits<double>::infinity();
  std::vector<LossPoint> losses, validations;
  std::string notice;
};

}  // namespace attn
