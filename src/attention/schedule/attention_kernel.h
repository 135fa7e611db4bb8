// src/attention/schedule/attention_kernel.h: describes a kernel that computes attention, and the answers that it can
// give when asked whether it accepts a call.
#pragma once
#include "kernels/attention/dispatch.h"

#include <cstdint>

namespace attn {

/// Whether a kernel accepts a call; if not, why.
enum class Answer : std::uint8_t {
  takes,
  takes_everything,
  other_dtype,
  other_storage,
  additive_score,
  far_positions,
  other_normalizer
};

/// A kernel that computes attention: the reference code or a vector kernel.
struct AttentionKernel {
  const char* name;
  kernels::Element computes;  // the element type in which it multiplies
  std::int64_t query_tile_rows;
  std::int64_t task_tiles;  // the most query tiles of one head in a task, if there are enough tasks for the threads
  Answer (*ask)(const kernels::AttentionProblem& problem);
  std::size_t (*scratch_bytes)(const kernels::AttentionProblem& problem);
  /// Computes all results of a tile's rows, including those of padding rows. A tile has more than one head only if
  /// `vector_kernel` is set.
  void (*rows)(const kernels::AttentionProblem& problem, const kernels::Task& tile, void* scratch);
  /// The vector kernel, which can also split keys among tasks and compute grouped heads together; null: none.
  const kernels::ForwardKernel* vector_kernel;
};

}  // namespace attn
