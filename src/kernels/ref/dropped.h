// src/kernels/ref/dropped.h: decides whether dropout drops the weight of a pair.
#pragma once
#include "kernels/attention/mask/mask_program.h"
#include "kernels/philox.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {

/// Returns whether dropout drops the weight. Word `position mod 4` of the counter (item, head, row position, key
/// position / 4) decides it; if the caller gave `keep`, its byte does.
inline bool is_dropped(const AttentionProblem& p, const Task& task, std::int64_t h, std::int64_t i, std::int64_t j) {
  if (task.keep != nullptr) return task.keep[(i - task.first_row) * task.keep_stride + j] == 0;
  if (!p.drops(task)) return false;
  const std::int64_t position = key_position(p, task, j);
  std::uint32_t words[4] = {static_cast<std::uint32_t>(p.item(task)), static_cast<std::uint32_t>(p.first_head + h),
                            static_cast<std::uint32_t>(row_position(p, task, i, false)),
                            static_cast<std::uint32_t>(position / 4)};
  Philox(p.drop_seed).words(words);
  return words[position % 4] < p.drop_least;
}

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
