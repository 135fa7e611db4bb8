// src/attention/schedule/reference_rows.cc: computes a query tile by the reference code, row by row, and writes the
// weights of each row to the row's lane of the tile.
#include "attention/schedule/reference_rows.h"

#include "kernels/attention/reference.h"

namespace attn {
namespace {

/// Computes one row of one head. Its weights go to a temporary row and are then copied to lane `lane`.
template <typename T>
void reference_lane(const kernels::AttentionProblem& problem, const kernels::Task& row, std::int64_t lane,
                    void* scratch) {
  kernels::attention_reference().rows(problem, row, scratch);
  const std::int64_t begin = problem.keys_begin(row), end = problem.keys_end(row);
  const T* from = static_cast<const T*>(row.lane_row);
  for (std::int64_t j = begin; j < end; ++j) {
    const std::int64_t at = (j - begin) * row.lane_rows + lane;
    static_cast<T*>(row.lane_weights)[at] = from[j];
    if (row.lane_average) static_cast<T*>(row.lane_average)[at] += from[j];
  }
}

}  // namespace

void reference_rows(const kernels::AttentionProblem& problem, const kernels::Task& tile, void* scratch) {
  for (std::int64_t n = 0; n < tile.heads; ++n) {
    if (tile.lane_weights == nullptr)
      kernels::attention_reference().rows(problem, tile.with_rows(tile.head + n, tile.row, tile.rows), scratch);
    else
      for (std::int64_t i = 0; i < tile.rows; ++i)
        (problem.element == kernels::Element::f64
             ? reference_lane<double>
             : reference_lane<float>)(problem, tile.with_rows(tile.head + n, tile.row + i, 1), n * tile.rows + i,
                                      scratch);
  }
}

}  // namespace attn
