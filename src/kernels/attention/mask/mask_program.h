// src/kernels/attention/mask/mask_program.h: evaluates a mask program for one (row, key) pair, and bounds it for a
// rectangle of pairs.
#pragma once
#include "kernels/attention/problem.h"

#include <algorithm>
#include <functional>

// The functions are `static`: this header is compiled for several instruction sets, and the linker must not merge them.
namespace attn::kernels {

/// Enough for any expression: the operand that needs more stack is evaluated first, so the depth grows with log2 of the
/// size.
inline constexpr int mask_stack_depth = 64;

/// How much of the keys [key_begin, key_end) the rows [row_begin, row_end) see.
enum class Visibility : std::uint8_t { empty, partial, full };

/// Return the position of row i and of key j (docs/numerics.md section 2).
static inline std::int64_t row_position(const AttentionProblem& problem, std::int64_t b, std::int64_t i,
                                        bool bottom_right) {
  return i + problem.row_offset(b, bottom_right);
}
static inline std::int64_t key_position(const AttentionProblem& problem, std::int64_t b, std::int64_t j) {
  return problem.key_position(b, j);
}

/// Returns whether row i and key j are both within the lengths.
static inline bool exists(const AttentionProblem& problem, std::int64_t b, std::int64_t i, std::int64_t j) {
  return i < problem.rows_end(b) && j >= problem.keys_begin(b) && j < problem.keys_end(b);
}

/// Evaluates a mask program in values of type T: `leaf` gives that of a node that is no operation, and the others
/// compute the operations. A program without nodes is `all`.
template <typename T, class Leaf, class Not, class And, class Or>
static inline T evaluate_mask(const MaskProgram& mask, T all, Leaf leaf, Not op_not, And op_and, Or op_or) {
  T stack[mask_stack_depth] = {all};
  int top = 0;
  for (int n = 0; n < mask.count; ++n) {
    const MaskNode& node = mask.nodes[n];
    switch (node.op) {
      case MaskOp::op_not: stack[top - 1] = op_not(stack[top - 1]); break;
      case MaskOp::op_and:
        --top;
        stack[top - 1] = op_and(stack[top - 1], stack[top]);
        break;
      case MaskOp::op_or:
        --top;
        stack[top - 1] = op_or(stack[top - 1], stack[top]);
        break;
      default: stack[top++] = leaf(node);
    }
  }
  return stack[0];
}

static inline bool leaf_sees(const MaskNode& node, const AttentionProblem& problem, std::int64_t b, std::int64_t h,
                             std::int64_t i, std::int64_t j) {
  const std::int64_t distance = key_position(problem, b, j) - row_position(problem, b, i, node.bottom_right);
  switch (node.op) {
    case MaskOp::causal: return distance <= 0;
    case MaskOp::window: return (node.left < 0 || distance >= -node.left) && (node.right < 0 || distance <= node.right);
    case MaskOp::prefix:
      return key_position(problem, b, j) < (node.per_batch ? node.per_batch[problem.item(b)] : node.n);
    case MaskOp::documents:
      return node.query_ids[b * node.query_ids_stride + i] == node.key_ids[b * node.key_ids_stride + j];
    case MaskOp::dense: {
      const std::int64_t* stride = node.dense.stride;
      const auto* bytes = static_cast<const std::uint8_t*>(node.dense.data);
      return (bytes[b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3]] != 0) == node.value;
    }
    default: return node.value;
  }
}

/// Returns whether row i of (b, h) sees key j, by the lengths and the expression.
static inline bool sees(const AttentionProblem& problem, std::int64_t b, std::int64_t h, std::int64_t i,
                        std::int64_t j) {
  if (!exists(problem, b, i, j)) return false;
  return evaluate_mask(
      problem.mask, true, [&](const MaskNode& node) { return leaf_sees(node, problem, b, h, i, j); },
      std::logical_not<bool>(), std::logical_and<bool>(), std::logical_or<bool>());
}

struct TileRange {
  std::int64_t row_begin, row_end, key_begin, key_end;  // not empty
};

/// Classifies a tile whose distances run from `nearest` to `farthest`, for a mask that shows distances in [low, high].
static inline Visibility tile_of_band(std::int64_t nearest, std::int64_t farthest, bool has_low, std::int64_t low,
                                      bool has_high, std::int64_t high) {
  if ((has_low && farthest < low) || (has_high && nearest > high)) return Visibility::empty;
  return (!has_low || nearest >= low) && (!has_high || farthest <= high) ? Visibility::full : Visibility::partial;
}

static inline Visibility tile_of_leaf(const MaskNode& node, const AttentionProblem& problem, std::int64_t b,
                                      const TileRange& r) {
  const std::int64_t first_key = key_position(problem, b, r.key_begin),
                     last_key = key_position(problem, b, r.key_end - 1);
  const std::int64_t nearest = first_key - row_position(problem, b, r.row_end - 1, node.bottom_right);
  const std::int64_t farthest = last_key - row_position(problem, b, r.row_begin, node.bottom_right);
  switch (node.op) {
    case MaskOp::causal: return tile_of_band(nearest, farthest, false, 0, true, 0);
    case MaskOp::window:
      return tile_of_band(nearest, farthest, node.left >= 0, -node.left, node.right >= 0, node.right);
    case MaskOp::prefix:
      return tile_of_band(first_key, last_key, false, 0, true,
                          (node.per_batch ? node.per_batch[problem.item(b)] : node.n) - 1);
    case MaskOp::constant: return node.value ? Visibility::full : Visibility::empty;
    default: return Visibility::partial;  // dense, documents: their elements decide
  }
}

/// Returns whether a rectangle of pairs is fully, partially or not visible. Exact for lengths and for a single band
/// (causal, window, prefix); otherwise it may return `partial` without need.
static inline Visibility classify(const AttentionProblem& problem, std::int64_t b, const TileRange& range) {
  TileRange r = range;
  if (r.row_end > problem.rows_end(b)) r.row_end = problem.rows_end(b);
  if (r.key_begin < problem.keys_begin(b)) r.key_begin = problem.keys_begin(b);
  if (r.key_end > problem.keys_end(b)) r.key_end = problem.keys_end(b);
  if (r.row_begin >= r.row_end || r.key_begin >= r.key_end) return Visibility::empty;
  const bool cut = r.row_end != range.row_end || r.key_begin != range.key_begin || r.key_end != range.key_end;

  const Visibility whole = evaluate_mask(
      problem.mask, Visibility::full, [&](const MaskNode& node) { return tile_of_leaf(node, problem, b, r); },
      [](Visibility x) { return static_cast<Visibility>(2 - static_cast<int>(x)); },
      [](Visibility x, Visibility y) { return std::min(x, y); },
      [](Visibility x, Visibility y) { return std::max(x, y); });
  return whole == Visibility::full && cut ? Visibility::partial : whole;
}

}  // namespace attn::kernels
