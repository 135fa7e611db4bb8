// src/attention/schedule/reference_rows.cc: computes a query tile by the reference code, row by row, and writes the
// weights of each row to the row's lane of the tile.
#include "attention/schedule/reference_rows.h"

#include "kernels/attention/reference.h"

namespace attn {
namespace {

/// Computes one row. Its weights go to a temporary row and are then copied to the row's lane.
template <typename T>
void reference_lane(kernels::AttentionProblem problem, const kernels::QueryTile& tile, std::int64_t head,
                    std::int64_t i, void* scratch) {
  problem.weights = problem.task.lane_row;
  kernels::attention_reference().rows(problem, tile.batch, tile.head + head, tile.row + i, tile.row + i + 1, scratch);
  const std::int64_t begin = problem.keys_begin(tile.batch), end = problem.keys_end(tile.batch),
                     lane = head * tile.rows + i;
  const T* from = static_cast<const T*>(problem.task.lane_row);
  for (std::int64_t j = begin; j < end; ++j) {
    const std::int64_t at = (j - begin) * problem.task.lane_rows + lane;
    static_cast<T*>(problem.task.lane_weights)[at] = from[j];
    if (problem.task.lane_average) static_cast<T*>(problem.task.lane_average)[at] += from[j];
  }
}

}  // namespace

void reference_rows(const kernels::AttentionProblem& problem, const kernels::QueryTile& tile, void* scratch) {
  for (std::int64_t n = 0; n < tile.heads; ++n) {
    if (problem.task.lane_weights == nullptr)
      kernels::attention_reference().rows(problem, tile.batch, tile.head + n, tile.row, tile.row + tile.rows, scratch);
    else
      for (std::int64_t i = 0; i < tile.rows; ++i)
        (problem.element == kernels::Element::f64 ? reference_lane<double> : reference_lane<float>)(problem, tile, n, i,
                                                                                                    scratch);
  }
}

}  // namespace attn
