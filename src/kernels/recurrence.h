// src/kernels/recurrence.h: describes rows of linear attention with a state, their gradients, and those of the short
// causal convolution, as plain data; declares the functions of one build of the reference code or instruction set.
#pragma once
#include "kernels/attention/problem.h"  // Element

#include <cstdint>

namespace attn::kernels {

/// Rows after which a state is kept for the backward pass, and by which it computes (docs/numerics.md section 9).
inline constexpr std::int64_t recurrent_chunk = 64;
/// Columns and channels are padded with zeros to a multiple of this number: whole vectors on every target.
inline constexpr std::int64_t recurrent_lanes = 16;

/// The factor of the state before each row: none, one number [rows], or one a key channel [rows, key_stride].
enum class Decay : std::uint8_t { none, scalar, channel };

/// What the passes over the state share: rows of one head of one sequence, and some columns of its state.
struct StateRows {
  Element element = Element::f32;
  Decay decay_kind = Decay::none;
  std::int64_t rows = 0, dim = 0;  // dim: key channels, the rows of the state
  std::int64_t columns = 0;        // value columns, a multiple of recurrent_lanes
  std::int64_t key_stride = 0;     // from a row of k, q, decayed_k and decay to the next
  const void *k = nullptr, *q = nullptr, *decay = nullptr;
  const void* beta = nullptr;  // [rows]; null: no delta rule
};

/// Runs the recurrence. Arrays of values are [rows, columns], the state is [dim, columns].
struct ForwardRows : StateRows {
  const void* decayed_k = nullptr;  // decay k; with a delta rule only
  const void* v = nullptr;
  void* state = nullptr;   // changed in place
  void* output = nullptr;  // null: not computed
  void* error = nullptr;   // v - S^T k, the rest that the delta rule writes; null: not wanted
};

/// Runs it backward, from the last row to the first.
struct ReverseRows : StateRows {
  const void* output_gradient = nullptr;
  void* state_gradient = nullptr;   // of the state after the last row; on return of the state before the first
  void* update_gradient = nullptr;  // of u, what a row writes into the state
};

/// Computes the gradients of q, k and log decay of up to recurrent_chunk rows of one head. Arrays of keys are [rows,
/// stride]; the channels computed are `stride`, a multiple of recurrent_lanes. W and M are [rows, recurrent_chunk].
struct ChunkGradient {
  Element element = Element::f32;
  Decay decay_kind = Decay::none;
  std::int64_t rows = 0, stride = 0;
  const void *k = nullptr, *q = nullptr, *decay = nullptr;
  const void *by_output = nullptr, *by_memory = nullptr;  // W = do u^T, M = dm u^T; M null: no delta rule
  // S do, S dm (null: no delta rule) and dS u with the state before the rows and the gradient of that after them
  const void *first_output = nullptr, *first_memory = nullptr, *last_update = nullptr;
  const void* ends = nullptr;  // [stride] the sum over columns of both; null if log_decay is
  void *q_gradient = nullptr, *k_gradient = nullptr;
  void* log_decay_gradient = nullptr;  // [rows, stride], of each channel; null: not wanted
};

/// Computes y[i] = bias + sum over taps j of weight_j x_j[i] for n elements.
struct ConvolvedRow {
  Element element = Element::f32;
  std::int64_t n = 0, taps = 0;
  const void* const* x = nullptr;  // one address a tap
  const void* weight = nullptr;    // [taps], or [taps, n] with weight_stride n
  std::int64_t weight_stride = 0;  // 0: one weight a tap for all elements
  const void* bias = nullptr;      // one number, or [n]; null: 0
  void* y = nullptr;
};

struct RecurrentKernels {
  const char* name;
  void (*forward)(const ForwardRows& rows) noexcept;
  void (*reverse)(const ReverseRows& rows) noexcept;
  void (*chunk_gradient)(const ChunkGradient& chunk) noexcept;
  void (*convolve)(const ConvolvedRow& row) noexcept;
};

}  // namespace attn::kernels
