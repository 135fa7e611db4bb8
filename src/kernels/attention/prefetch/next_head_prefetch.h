// src/kernels/attention/prefetch/next_head_prefetch.h: prefetches K and V of the next head, and the rows of the next
// query tile, while a query tile is computed.
//  All query tiles of a head read the head's keys, one tile after the other; the first one would wait for main memory.
// So each query tile prefetches its share of the next head's K and V, and the rows of Q and of the output of the next
// query tile, a few cache lines at a time. Under a window over long sequences it prefetches the keys of the next query
// tile. The backward pass does the same for each step (backward_prefetch.h).
#pragma once
#include "kernels/attention/query_tile.h"
#include "kernels/prefetch/range_prefetch.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace attn::kernels {

class NextHeadPrefetch : public PrefetchRanges {
 public:
  /// K and V of a larger head would evict those of the current head.
  static constexpr std::int64_t most_bytes = std::int64_t{1} << 19;
  /// Below this size the whole call may be in the caches already.
  static constexpr std::int64_t least_bytes = std::int64_t{1} << 21;
  enum class Pass : bool { forward, backward };
  NextHeadPrefetch(const AttentionProblem& problem, const QueryTile& tile, std::size_t element_bytes,
                   Pass pass = Pass::forward) {
    const std::int64_t bytes = static_cast<std::int64_t>(element_bytes), row = bytes * problem.dim,
                       value_row = bytes * problem.value_dim;
    const auto at = [bytes](const void* base, std::int64_t elements) {
      return static_cast<const char*>(base) + bytes * elements;
    };
    // the sequence whose next head is prefetched
    const Sequence* const sequence = pass == Pass::forward ? problem.sequence : nullptr;
    const std::int64_t k_rows = sequence ? sequence->keys_end - sequence->keys_begin : problem.k_rows,
                       q_rows = sequence ? sequence->rows_end - sequence->rows_begin : problem.q_rows;
    const std::int64_t key_zero = sequence ? sequence->keys_begin : 0, row_zero = sequence ? sequence->rows_begin : 0;
    keys_ = k_rows;
    if (problem.k.pages != nullptr) return;
    if (k_rows * (row + value_row) > most_bytes) {
      if (pass == Pass::forward) add_next_strip(problem, tile, bytes);
      return;
    }
    if (pass == Pass::forward && problem.batch * problem.q_heads * problem.q_rows * (row + value_row) < least_bytes)
      return;
    const std::int64_t ahead = tile.head + tile.heads * problem.heads_ahead, b = tile.batch + ahead / problem.q_heads,
                       h = ahead % problem.q_heads;
    const bool there = b < (sequence ? tile.batch + 1 : problem.batch);
    const std::int64_t own_row = tile.row - row_zero;
    if (there) {
      batch_ = b;
      head_ = h;
      // under a causal mask the work of a row grows with its index, and so does its share of the prefetching
      const bool causal =
          pass == Pass::forward && problem.mask.count == 1 && problem.mask.nodes[0].op == MaskOp::causal;
      if (causal) keys_ = (own_row + tile.rows) * k_rows / q_rows;
      const auto first_key = [&](std::int64_t rows) {
        return key_zero + (causal ? rows * rows / q_rows : rows) * k_rows / q_rows;
      };
      const std::int64_t first = first_key(own_row), keys = first_key(own_row + tile.rows) - first;
      const auto head = [&](std::int64_t heads) { return problem.shared_head(h, heads); };
      const auto key_rows = [&](const KvRows& rows, const std::int64_t* stride, std::int64_t heads) {
        return at(rows.base, b * stride[0] + head(heads) * stride[1] + first * rows.row_stride);
      };
      if (b != tile.batch || head(problem.k_heads) != problem.key_head(tile.head))
        add(key_rows(problem.k, problem.k_stride, problem.k_heads), row, bytes * problem.k.row_stride, keys);
      if (b != tile.batch || head(problem.v_heads) != problem.value_head(tile.head))
        add(key_rows(problem.v, problem.v_stride, problem.v_heads), value_row, bytes * problem.v.row_stride, keys);
    }
    if (pass == Pass::backward) return;
    // only rows of the next query tile: prefetched a whole head ahead, they would evict data in use
    const std::int64_t next = own_row - problem.rows_ahead;
    if (next >= 0) {
      add_rows(problem, tile.batch, tile.head, row_zero, next, q_rows, bytes);
    } else if (there) {
      const std::int64_t R = problem.lane_rows, whole = (q_rows + R - 1) / R * R;
      add_rows(problem, b, h, row_zero, (next % whole + whole) % whole, q_rows, bytes);
    }
  }

  /// Returns the batch item of the head that is prefetched; -1: none.
  std::int64_t batch() const { return batch_; }
  std::int64_t head() const { return head_; }
  /// Returns the keys of the query tile, over which the prefetching is spread.
  std::int64_t keys() const { return keys_; }

 private:
  /// Adds Q and output of a query tile of a head; rows are counted from `zero`.
  void add_rows(const AttentionProblem& problem, std::int64_t b, std::int64_t h, std::int64_t zero, std::int64_t first,
                std::int64_t q_rows, std::int64_t bytes) {
    const std::int64_t rows = std::min(problem.lane_rows, q_rows - first);
    const auto at = [&](const void* base, const std::int64_t* stride) {
      return static_cast<const char*>(base) + bytes * (b * stride[0] + h * stride[1] + (zero + first) * stride[2]);
    };
    add(at(problem.q, problem.q_stride), bytes * problem.dim, bytes * problem.q_stride[2], rows);
    add(at(problem.out, problem.out_stride), bytes * problem.value_dim, bytes * problem.out_stride[2], rows);
  }

  /// For a window over long sequences: adds the keys that the thread's next query tile sees and this one does not, and
  /// its rows.
  void add_next_strip(const AttentionProblem& problem, const QueryTile& tile, std::int64_t bytes) {
    const std::int64_t b = tile.batch, next = tile.row - problem.rows_ahead, head = tile.head;
    if (problem.mask.count != 1 || tile.heads != 1 || next < 0 || problem.sequence) return;
    const MaskNode& node = problem.mask.nodes[0];
    if (node.op != MaskOp::window || node.left < 0 || node.right < 0) return;
    const auto first_key = [&](std::int64_t row) {
      return std::clamp(problem.key_zero(b) + row + problem.row_offset(b, node.bottom_right) - node.left,
                        problem.keys_begin(b), problem.keys_end(b));
    };
    const std::int64_t first = first_key(next), keys = first_key(tile.row) - first,
                       rows = problem.rows_ahead < tile.rows ? problem.rows_ahead : tile.rows;
    keys_ = node.left + node.right + tile.rows;
    const auto rows_of = [&](const void* base, const std::int64_t* stride, std::int64_t h, std::int64_t at,
                             std::int64_t row_stride) {
      return static_cast<const char*>(base) + bytes * (b * stride[0] + h * stride[1] + at * row_stride);
    };
    add(rows_of(problem.k.base, problem.k_stride, head / (problem.q_heads / problem.k_heads), first,
                problem.k.row_stride),
        bytes * problem.dim, bytes * problem.k.row_stride, keys);
    add(rows_of(problem.v.base, problem.v_stride, head / (problem.q_heads / problem.v_heads), first,
                problem.v.row_stride),
        bytes * problem.value_dim, bytes * problem.v.row_stride, keys);
    add(rows_of(problem.q, problem.q_stride, head, next, problem.q_stride[2]), bytes * problem.dim,
        bytes * problem.q_stride[2], rows);
    add(rows_of(problem.out, problem.out_stride, head, next, problem.out_stride[2]), bytes * problem.value_dim,
        bytes * problem.out_stride[2], rows);
  }

  std::int64_t batch_ = -1, head_ = 0, keys_ = 0;
};

}  // namespace attn::kernels
