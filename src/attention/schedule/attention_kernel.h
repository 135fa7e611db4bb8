// src/attention/schedule/attention_kernel.h: one way to compute attention, and what it says to a call.
#pragma once
#include "kernels/attention/dispatch.h"

#include <cstdint>

namespace attn {

/// Whether a kernel takes a call, or why not.
enum class Answer : std::uint8_t { takes, takes_everything, other_dtype, other_storage, additive_score, far_positions };

/// One way to compute attention.
struct AttentionKernel {
  const char* name;
  kernels::Element computes;  // the type of its products
  std::int64_t query_tile_rows;
  std::int64_t task_tiles;  // most query tiles of one head in a task, if there are enough tasks
  Answer (*ask)(const kernels::AttentionProblem& problem);
  std::size_t (*scratch_bytes)(const kernels::AttentionProblem& problem);
  /// All results of the rows, those beyond the lengths included. More than one head only where `vector_kernel` is
  /// there.
  void (*rows)(const kernels::AttentionProblem& problem, const kernels::QueryTile& tile, void* scratch);
  /// The vector kernel, which can also split keys among tasks and take the heads of a group together; null: none.
  const kernels::ForwardKernel* vector_kernel;
};

}  // namespace attn
