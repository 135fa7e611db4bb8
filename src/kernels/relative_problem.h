// src/kernels/relative_problem.h: describes relative products, the second product of a score, as plain data, and their
// definition as functions: query or key times the row of a table that the pair's positions choose.
#pragma once
#include "kernels/attention/problem.h"

#include <cstdint>

namespace attn::kernels {

/// One relative product. Tables and operands are of the compute type.
struct RelativeProduct {
  const void* table = nullptr;    // [1 or Hq, table_rows, dim], contiguous
  std::int64_t table_stride = 0;  // between heads; 0: one table for all heads
  std::int64_t table_rows = 0, dim = 0;
  const void* operand = nullptr;               // rows of queries or of keys, last dim contiguous
  std::int64_t operand_stride[3] = {0, 0, 0};  // batch, head, row
  std::int64_t operand_heads = 1;              // each serves q_heads / operand_heads query heads
  bool of_keys = false, bottom_right = false;
  double scale = 1;  // of the operand; rounded once to the compute type

  enum class Coordinate : std::uint8_t { position, row, column };
  Coordinate coordinate = Coordinate::position;
  std::int64_t width = 1;               // of the picture
  std::int64_t first = 0, entries = 1;  // the difference of entry 0; the number of entries
  const std::int32_t* steps = nullptr;  // [entries], ascending: the table's row; null: the entry itself
  bool backwards = false;               // rows are counted from the table's last

  /// Returns the coordinate of a position.
  std::int64_t coordinate_of(std::int64_t position) const {
    if (coordinate == Coordinate::position) return position;
    const std::int64_t line = (position >= 0 ? position : position - width + 1) / width;  // rounded down
    return coordinate == Coordinate::row ? line : position - line * width;
  }
  /// Returns the entry of a difference of coordinates, key minus row, and the table's row of an entry.
  std::int64_t entry_of(std::int64_t difference) const {
    const std::int64_t entry = difference - first;
    return entry < 0 ? 0 : entry < entries ? entry : entries - 1;
  }
  std::int64_t row_of_entry(std::int64_t entry) const {
    const std::int64_t row = steps != nullptr ? steps[entry] : entry;
    return backwards ? table_rows - 1 - row : row;
  }
  std::int64_t row_of(const AttentionProblem& p, const Task& task, std::int64_t i, std::int64_t j) const {
    return row_of_entry(
        entry_of(coordinate_of(p.key_position(task, j)) - coordinate_of(i + p.row_offset(task, bottom_right))));
  }
};

/// Where the gradients of a product go, for one batch item and query head; null: not wanted. The functions add to them.
struct RelativeGradient {
  void* operand = nullptr;  // [rows of the operand, dim], compute type
  void* table = nullptr;    // [table_rows, dim]
};

/// The derivatives of a step, whose tile has up to 64 rows of one head, by the products of its pairs.
struct RelativeStep {
  const AttentionProblem& problem;
  const Task& tile;
  const void* pairs;
  std::int64_t stride;
};
/// The definition in plain loops of the functions of kernels/relative/relative_product.h. `gradients` needs scratch
/// for 64 x table_rows numbers.
struct RelativeReference {
  void (*values)(const RelativeProduct& product, const AttentionProblem& problem, const Task& tile, void* pairs,
                 std::int64_t stride) noexcept;
  void (*gradients)(const RelativeProduct& product, const RelativeStep& step, const RelativeGradient& to,
                    void* scratch) noexcept;
};
}  // namespace attn::kernels
