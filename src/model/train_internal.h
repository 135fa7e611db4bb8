// src/model/train_internal.h: declares the state of a training, which its steps and the file that saves it share.
#pragma once
#include <attn/train.h>

#include "model/flat_gradients.h"
#include "model/train_task.h"

#include <functional>
#include <memory>
#include <vector>

namespace attn {

struct LossPoint {
  std::int64_t step;
  double loss;
};

struct Trainer::State {
  State(std::unique_ptr<TrainTask> task, const TrainOptions& options);
  /// Reads the state that is saved in the folder. `make` makes the task of the options found there.
  static std::unique_ptr<State> resumed(
      const std::string& folder, const std::function<std::unique_ptr<TrainTask>(const TrainOptions& options)>& make);

  TrainOptions options;
  std::unique_ptr<const TrainTask> task;
  std::vector<Tensor> parameters;
  FlatGradients gradients;
  optim::AdamW adamw;
  std::int64_t step = 0, best_step = 0;
  double best = std::numeric_limits<double>::infinity();
  std::vector<LossPoint> losses, validations;
  std::string notice;
};

}  // namespace attn
