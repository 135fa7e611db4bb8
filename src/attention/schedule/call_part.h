// src/attention/schedule/call_part.h: says where the rows and keys of a call are in their sequence, if the call has
// only a part of them.
#pragma once
#include "kernels/attention/problem.h"

#include <algorithm>

namespace attn {

/// Rows and keys in blocks of 64. Block n of the rows begins at row first_row + n row_block_step of the sequence, block
/// n of the keys at key first_key + n key_block_step.
struct CallPart {
  // the complete sequence, which gives lengths and alignment; null: the call gives them, and its keys begin at
  // first_key
  const kernels::AttentionProblem* whole = nullptr;
  std::int64_t first_row = 0, row_block_step = 64;
  std::int64_t first_key = 0, key_block_step = 64;

  static constexpr std::int64_t block = 64;
  bool is_whole() const { return whole == nullptr && first_key == 0 && row_block_step == block; }

  /// Returns the sequence that replaces batch item b when the block of rows that begins at `row` is computed.
  kernels::Sequence sequence(const kernels::AttentionProblem& problem, std::int64_t b, std::int64_t row) const {
    const kernels::Task item{.batch = b};
    kernels::Sequence result{.batch = b,
                             .rows_end = problem.rows_end(item),
                             .keys_begin = problem.keys_begin(item),
                             .keys_end = problem.keys_end(item),
                             .item = b,
                             .first_position = first_key,
                             .key_block_step = key_block_step};
    const kernels::AttentionProblem& of_rows = whole != nullptr ? *whole : problem;
    for (const bool bottom_right : {false, true})
      result.row_offset[bottom_right] =
          of_rows.row_offset(item, bottom_right) + first_row + row / block * (row_block_step - block);
    if (whole == nullptr) return result;
    result.rows_end = before(whole->rows_end(item) - first_row, row_block_step, problem.q_rows);
    result.keys_begin = 0;
    result.keys_end = before(whole->keys_end(item) - first_key, key_block_step, problem.k_rows);
    return result;
  }

 private:
  /// Returns how many of `count` items are among the first `end` of a range that holds the first 64 of each `step`.
  static std::int64_t before(std::int64_t end, std::int64_t step, std::int64_t count) {
    if (end <= 0) return 0;
    return std::min(count, end / step * block + std::min(end % step, block));
  }
};

}  // namespace attn
