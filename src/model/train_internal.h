// src/model/train_internal.h: declares the state of a training, which its steps, the file that saves it and the ranks
// that share it use.
#pragma once
#include <attn/train.h>

#include "model/part_gradients.h"
#include "model/train_task.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace attn {

struct LossPoint {
  std::int64_t step;
  double loss;
};

/// What differs when several ranks share a training (src/ranks): they compute its parts, and keep its optimiser, each
/// a share. Every function is called by all ranks together.
class SharedSteps {
 public:
  virtual ~SharedSteps() = default;
  /// Computes the gradients of a step and clips them. Returns the loss and the norm of the gradients before that.
  virtual std::pair<double, double> gradients(std::int64_t step, const std::vector<std::int64_t>& batch) = 0;
  /// Updates the weights.
  virtual void update(double lr) = 0;
  /// Returns Trainer::exchange_seconds().
  virtual double exchange_seconds() const = 0;
  /// Returns Trainer::hidden_seconds().
  virtual double hidden_seconds() const = 0;
  /// Returns the loss of each batch of `Trainer::validate`, given those that are this rank's.
  virtual std::vector<double> validation(std::int64_t batches, const std::function<double(std::int64_t)>& loss) = 0;
  /// Returns the optimiser's whole state at rank 0, nothing elsewhere.
  virtual optim::StateDict optimizer_state() const = 0;
  /// Calls `write` at rank 0. If it fails there, every rank throws.
  virtual void write(const std::function<void()>& write) const = 0;
};

struct Trainer::State {
  State(std::unique_ptr<TrainTask> task, const TrainOptions& options);
  /// Reads the state that is saved in the folder. `make` makes the task of the options found there.
  static std::unique_ptr<State> resumed(
      const std::string& folder, const std::function<std::unique_ptr<TrainTask>(const TrainOptions& options)>& make);

  /// Returns what the parts of a batch need.
  PartSource source() const { return {options, *task, gradients}; }

  TrainOptions options;
  std::unique_ptr<const TrainTask> task;
  std::vector<Tensor> parameters;
  FlatGradients gradients;
  optim::AdamW adamw;  // has no state if the ranks keep it in shares
  std::int64_t step = 0, best_step = 0;
  double best = std::numeric_limits<double>::infinity();
  std::vector<LossPoint> losses, validations;
  std::string notice;
  std::unique_ptr<SharedSteps> ranks;  // null: this process trains alone
};

/// Makes the task of a training on pairs: checks pairs and options, seeds the global generator, and draws the weights.
std::unique_ptr<TrainTask> pair_task(std::vector<IdPair> pairs, const TrainOptions& options);

/// Returns a digest of all weights, 16 hexadecimal digits.
std::string digest_of(const std::vector<Tensor>& parameters);

/// Groups the parameters as nanoGPT does: matrices and tables get weight decay, biases and norms do not. `shares` are
/// the parameters themselves, or slices of them: slice i is of parameters[i].
std::vector<optim::Group<optim::AdamWOptions>> groups_of(const std::vector<Tensor>& parameters,
                                                         const std::vector<Tensor>& shares,
                                                         const TrainOptions& options);
}  // namespace attn
