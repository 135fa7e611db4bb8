// src/attention/schedule/plan.cc: the choice of a kernel; reasons become text only when someone reads them.
#include "attention/schedule/plan.h"

#include <fmt/format.h>

#include "attention/schedule/vector_kernels.h"
#include "kernels/attention/reference.h"
#include "runtime/once.h"

#include <ostream>

namespace attn {
namespace {

bool takes(Answer answer) { return answer == Answer::takes || answer == Answer::takes_everything; }

const char* text_of(Answer answer) {
  switch (answer) {
    case Answer::takes: return "takes it";
    case Answer::takes_everything: return "takes everything";
    case Answer::other_dtype: return "is for another dtype";
    case Answer::other_storage: return "keys or values are stored in a way it cannot read";
    case Answer::additive_score: return "has no additive score";
    case Answer::far_positions: return "holds whole numbers of a score_mod up to 2^24";
  }
  return "";
}

/// One row, its weights by way of a row of memory to its lane.
template <typename T>
void reference_lane(kernels::AttentionProblem problem, const kernels::QueryTile& tile, std::int64_t head,
                    std::int64_t i, void* scratch) {
  problem.weights = problem.lane_row;
  kernels::attention_reference().rows(problem, tile.batch, tile.head + head, tile.row + i, tile.row + i + 1, scratch);
  const std::int64_t begin = problem.keys_begin(tile.batch), end = problem.keys_end(tile.batch),
                     lane = head * tile.rows + i;
  const T* from = static_cast<const T*>(problem.lane_row);
  for (std::int64_t j = begin; j < end; ++j) {
    const std::int64_t at = (j - begin) * problem.lane_rows + lane;
    static_cast<T*>(problem.lane_weights)[at] = from[j];
    if (problem.lane_average) static_cast<T*>(problem.lane_average)[at] += from[j];
  }
}

}  // namespace

void reference_rows(const kernels::AttentionProblem& problem, const kernels::QueryTile& tile, void* scratch) {
  for (std::int64_t n = 0; n < tile.heads; ++n) {
    if (problem.lane_weights == nullptr)
      kernels::attention_reference().rows(problem, tile.batch, tile.head + n, tile.row, tile.row + tile.rows, scratch);
    else
      for (std::int64_t i = 0; i < tile.rows; ++i)
        (problem.element == kernels::Element::f64 ? reference_lane<double> : reference_lane<float>)(problem, tile, n, i,
                                                                                                    scratch);
  }
}

std::span<const AttentionKernel> attention_kernels() {
  constinit static runtime::Once<std::vector<AttentionKernel>> kernels;
  return kernels.get([] {
    std::vector<AttentionKernel> all = vector_kernels();
    all.push_back({.name = "ref",
                   .computes = kernels::Element::f32,
                   .query_tile_rows = 64,
                   .task_tiles = 1,
                   .ask = [](const kernels::AttentionProblem&) { return Answer::takes_everything; },
                   .scratch_bytes =
                       [](const kernels::AttentionProblem& problem) {
                         return kernels::attention_reference().scratch_bytes(problem);
                       },
                   .rows = reference_rows,
                   .vector_kernel = nullptr});
    return all;
  });
}

const AttentionKernel& plan_attention(const kernels::AttentionProblem& problem, Plan& plan) {
  const auto kernels = attention_kernels();
  for (const AttentionKernel& kernel : kernels) {
    const Answer answer = kernel.ask(problem);
    plan.answers[static_cast<std::size_t>(plan.asked++)] = static_cast<std::uint8_t>(answer);
    if (takes(answer)) return kernel;
  }
  return kernels.back();
}

bool better_in_f32(const AttentionKernel& planned, const kernels::AttentionProblem& problem, bool wide) {
  const bool half = problem.element == kernels::Element::bf16 || problem.element == kernels::Element::f16;
  if (half && problem.score == kernels::ScoreOp::additive) return true;
  return half && ((wide && planned.computes != problem.element) ||
                  (planned.vector_kernel == nullptr && attention_kernels().size() > 1));
}

std::string Plan::kernel() const {
  return asked == 0 ? "" : attention_kernels()[static_cast<std::size_t>(asked - 1)].name;
}

std::vector<PlanStep> Plan::steps() const {
  std::vector<PlanStep> steps;
  for (int n = 0; n < asked; ++n) {
    const auto answer = static_cast<Answer>(answers[static_cast<std::size_t>(n)]);
    steps.push_back({attention_kernels()[static_cast<std::size_t>(n)].name, takes(answer), text_of(answer)});
  }
  return steps;
}

std::string Plan::to_string() const {
  std::string all;
  for (const PlanStep& step : steps())
    all += fmt::format("{}{}: {}", all.empty() ? "" : "; ", step.kernel, step.reason);
  return all.empty() ? "no kernel" : all;
}

std::ostream& operator<<(std::ostream& out, const Plan& plan) { return out << plan.to_string(); }

}  // namespace attn
