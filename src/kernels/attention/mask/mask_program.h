// src/kernels/attention/mask/mask_program.h: evaluates a mask program for one (row, key) pair, and bounds it for a
// rectangle of pairs.
#pragma once
#include "kernels/attention/mask/block_lists.h"
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
static inline std::int64_t row_position(const AttentionProblem& problem, const Task& task, std::int64_t i,
                                        bool bottom_right) {
  return i + problem.row_offset(task, bottom_right);
}
static inline std::int64_t key_position(const AttentionProblem& problem, const Task& task, std::int64_t j) {
  return problem.key_position(task, j);
}

/// Returns whether row i and key j are both within the lengths.
static inline bool exists(const AttentionProblem& problem, const Task& task, std::int64_t i, std::int64_t j) {
  return i < problem.rows_end(task) && j >= problem.keys_begin(task) && j < problem.keys_end(task);
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

static inline bool leaf_sees(const MaskNode& node, const AttentionProblem& problem, const Task& task, std::int64_t h,
                             std::int64_t i, std::int64_t j) {
  const std::int64_t distance = key_position(problem, task, j) - row_position(problem, task, i, node.bottom_right);
  switch (node.op) {
    case MaskOp::causal: return distance <= 0;
    case MaskOp::window: return (node.left < 0 || distance >= -node.left) && (node.right < 0 || distance <= node.right);
    case MaskOp::prefix:
      return key_position(problem, task, j) < (node.per_batch ? node.per_batch[problem.item(task)] : node.n);
    case MaskOp::documents:
      return node.query_ids[task.batch * node.query_ids_stride + i] ==
             node.key_ids[task.batch * node.key_ids_stride + j];
    case MaskOp::blocks: return lists_see(node.lists, task.batch, h, i, j);
    case MaskOp::dense: {
      const std::int64_t* stride = node.dense.stride;
      const auto* bytes = static_cast<const std::uint8_t*>(node.dense.data);
      return (bytes[task.batch * stride[0] + h * stride[1] + i * stride[2] + j * stride[3]] != 0) == node.value;
    }
    default: return node.value;
  }
}

/// Returns whether row i of head h sees key j, by the lengths and the expression.
static inline bool sees(const AttentionProblem& problem, const Task& task, std::int64_t h, std::int64_t i,
                        std::int64_t j) {
  if (!exists(problem, task, i, j)) return false;
  return evaluate_mask(
      problem.mask, true, [&](const MaskNode& node) { return leaf_sees(node, problem, task, h, i, j); },
      std::logical_not<bool>(), std::logical_and<bool>(), std::logical_or<bool>());
}

struct TileRange {
  std::int64_t row_begin, row_end, key_begin, key_end;  // not empty
  std::int64_t head, heads = 1;                         // of the rows
};

/// Classifies a tile whose distances run from `nearest` to `farthest`, for a mask that shows distances in [low, high].
static inline Visibility tile_of_band(std::int64_t nearest, std::int64_t farthest, bool has_low, std::int64_t low,
                                      bool has_high, std::int64_t high) {
  if ((has_low && farthest < low) || (has_high && nearest > high)) return Visibility::empty;
  return (!has_low || nearest >= low) && (!has_high || farthest <= high) ? Visibility::full : Visibility::partial;
}

/// Classifies a tile by the lists of its query blocks.
static inline Visibility tile_of_lists(const BlockLists& lists, std::int64_t b, const TileRange& r) {
  const std::int64_t first = r.key_begin / lists.block_keys, last = (r.key_end - 1) / lists.block_keys;
  bool any = false, all = true;
  for (std::int64_t h = r.head, next; h < r.head + r.heads; h = next) {
    next = (h / lists.heads_together + 1) * lists.heads_together;
    for (std::int64_t i = r.row_begin, after; i < r.row_end; i = after) {
      after = (i / lists.block_rows + 1) * lists.block_rows;
      const std::int64_t seen = listed_blocks(lists, lists.of(b, h, i), first, last);
      any |= seen > 0;
      all &= seen == last - first + 1;
      if (any && !all) return Visibility::partial;
    }
  }
  return all ? Visibility::full : Visibility::empty;
}

static inline Visibility tile_of_leaf(const MaskNode& node, const AttentionProblem& problem, const Task& task,
                                      const TileRange& r) {
  const std::int64_t first_key = key_position(problem, task, r.key_begin),
                     last_key = key_position(problem, task, r.key_end - 1);
  const std::int64_t nearest = first_key - row_position(problem, task, r.row_end - 1, node.bottom_right);
  const std::int64_t farthest = last_key - row_position(problem, task, r.row_begin, node.bottom_right);
  switch (node.op) {
    case MaskOp::causal: return tile_of_band(nearest, farthest, false, 0, true, 0);
    case MaskOp::window:
      return tile_of_band(nearest, farthest, node.left >= 0, -node.left, node.right >= 0, node.right);
    case MaskOp::prefix:
      return tile_of_band(first_key, last_key, false, 0, true,
                          (node.per_batch ? node.per_batch[problem.item(task)] : node.n) - 1);
    case MaskOp::blocks: return tile_of_lists(node.lists, task.batch, r);
    case MaskOp::constant: return node.value ? Visibility::full : Visibility::empty;
    default: return Visibility::partial;  // dense, documents: their elements decide
  }
}

/// Returns whether a rectangle of pairs is fully, partially or not visible. Exact for lengths and for a single band
/// (causal, window, prefix) or a list of blocks; otherwise it may return `partial` without need.
static inline Visibility classify(const AttentionProblem& problem, const Task& task, const TileRange& range) {
  TileRange r = range;
  if (r.row_end > problem.rows_end(task)) r.row_end = problem.rows_end(task);
  if (r.key_begin < problem.keys_begin(task)) r.key_begin = problem.keys_begin(task);
  if (r.key_end > problem.keys_end(task)) r.key_end = problem.keys_end(task);
  if (r.row_begin >= r.row_end || r.key_begin >= r.key_end) return Visibility::empty;
  const bool cut = r.row_end != range.row_end || r.key_begin != range.key_begin || r.key_end != range.key_end;

  const Visibility whole = evaluate_mask(
      problem.mask, Visibility::full, [&](const MaskNode& node) { return tile_of_leaf(node, problem, task, r); },
      [](Visibility x) { return static_cast<Visibility>(2 - static_cast<int>(x)); },
      [](Visibility x, Visibility y) { return std::min(x, y); },
      [](Visibility x, Visibility y) { return std::max(x, y); });
  return whole == Visibility::full && cut ? Visibility::partial : whole;
}

}  // namespace attn::kernels
