// src/attention/schedule/plan.h: the kernels in order of preference, and which of them takes a call.
#pragma once
#include <attn/attention.h>

#include "kernels/attention/dispatch.h"

#include <span>

namespace attn {

/// What a kernel says to a call.
enum class Answer : std::uint8_t { takes, takes_everything, other_dtype, other_storage, additive_score, far_positions };

/// One way to compute attention.
struct AttentionKernel {
  const char* name;
  kernels::Element computes;  // the type of its products
  std::int64_t query_tile_rows;
  std::int64_t task_tiles;  // most strips of one head that a task should take, where there are tasks enough
  Answer (*ask)(const kernels::AttentionProblem& problem);
  std::size_t (*scratch_bytes)(const kernels::AttentionProblem& problem);
  /// All results of the rows, those beyond the lengths included. More than one head only where `vector_kernel` is
  /// there.
  void (*rows)(const kernels::AttentionProblem& problem, const kernels::QueryTile& tile, void* scratch);
  /// How spans of keys become tasks of their own, and heads of a group one task; null: neither.
  const kernels::ForwardKernel* vector_kernel;
};
std::span<const AttentionKernel> attention_kernels();

/// The first that takes the problem; the last, the reference, takes everything.
const AttentionKernel& plan_attention(const kernels::AttentionProblem& problem, Plan& plan);

/// Rows by the reference, their weights too where the problem has a place for them.
void reference_rows(const kernels::AttentionProblem& problem, const kernels::QueryTile& tile, void* scratch);

/// Whether f16 and bf16 should be computed in f32 copies: no kernel takes the call as it is; or it widens rows on their
/// way, and `wide`: a tape wants what they were widened to, or q is projected and would be rounded before; or the score
/// is additive, whose projections are never rounded to 16 bits.
bool better_in_f32(const AttentionKernel& planned, const kernels::AttentionProblem& problem, bool wide);

}  // namespace attn
