// src/model/part_gradients.h: the gradients of one step, with a separate backward pass for each part of the batch.
#pragma once
#include <attn/train.h>

#include "model/flat_gradients.h"
#include "model/part_tree.h"
#include "model/train_task.h"

#include <functional>
#include <vector>

namespace attn {

/// What the parts of every step share; it must outlive them.
struct PartSource {
  const TrainOptions& options;
  const TrainTask& task;
  const FlatGradients& gradients;
};

/// The parts of one step. Each row's loss has the gradient 1 / (rows of the batch), whatever the part.
class PartGradients {
 public:
  /// `step` counts from 1; `batch` is what the task has drawn.
  PartGradients(const PartSource& source, std::int64_t step, std::vector<std::int64_t> batch);
  /// Returns which rows of the batch some parts have.
  Span rows_of(const Span& parts) const;
  /// Returns the sum of the gradients over a node of the tree, [all parameters]. A single part has the dtype of the
  /// gradients; sums of several are f32. `in_buffer`: the result may be the buffer of the gradients, so that it holds
  /// only until the next call.
  Tensor sum(const Span& node, bool in_buffer) { return sum(node, in_buffer, nullptr); }
  /// Is notified of the sum of a node while the backward pass of its last part still runs.
  struct Listener {
    std::function<void(const Tensor& values)> begins;  // where the sum will be
    std::function<void(const Span& elements)> elements_are_final;
  };
  /// The same, in the buffer if the gradients are f32.
  Tensor sum(const Span& node, const Listener& listener) { return sum(node, /*in_buffer=*/true, &listener); }
  /// Returns the losses of the rows of the parts so far, f32 [rows of the batch]; the others are 0.
  const Tensor& losses() const { return losses_; }

 private:
  Tensor sum(const Span& node, bool in_buffer, const Listener* listener);
  void run(std::int64_t part, const std::function<void(const Span& elements)>& whole);
  PartSource source_;
  std::int64_t step_;
  std::vector<std::int64_t> batch_, rows_;  // rows_: of the task
  Tensor losses_;
};

/// Returns the mean of the losses of all rows, in the order of docs/numerics.md section 5.2.
double mean_loss(const Tensor& losses);

}  // namespace attn
