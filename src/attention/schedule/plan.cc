// src/attention/schedule/plan.cc: chooses a kernel. Each kernel's answer is stored as a number; its text is made on
// demand.
#include "attention/schedule/plan.h"

#include "runtime/format.h"

#include "attention/normalizer/lowered_normalizer.h"
#include "attention/schedule/reference_rows.h"
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
    case Answer::other_normalizer: return "takes no weights of this expression";
    case Answer::far_positions: return "holds whole numbers of a score_mod up to 2^24";
  }
  return "";
}

}  // namespace

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
  // Other normalizers have passes of their own, of the same instruction set and element type.
  static constexpr AttentionKernel of_normalizer{.name = "normalizer",
                                                 .computes = kernels::Element::f32,
                                                 .query_tile_rows = kernels::query_block,
                                                 .task_tiles = 1,
                                                 .ask = nullptr,
                                                 .scratch_bytes = normalizer_scratch_bytes,
                                                 .rows = normalizer_rows,
                                                 .vector_kernel = nullptr};
  const kernels::Normalization* const normalization = problem.normalization;
  const auto kernels = attention_kernels();
  for (const AttentionKernel& kernel : kernels) {
    Answer answer = kernel.ask(problem);
    if (normalization != nullptr && answer == Answer::takes && normalization->kernel == nullptr)
      answer = Answer::other_normalizer;
    plan.answers[static_cast<std::size_t>(plan.asked++)] = static_cast<std::uint8_t>(answer);
    if (takes(answer)) return normalization != nullptr ? of_normalizer : kernel;
  }
  return kernels.back();
}

bool better_in_f32(const AttentionKernel& planned, const kernels::AttentionProblem& problem, bool wide) {
  const bool half = problem.element == kernels::Element::bf16 || problem.element == kernels::Element::f16;
  if (half && (problem.score == kernels::ScoreOp::additive || problem.normalization != nullptr)) return true;
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
    all += runtime::format("{}{}: {}", all.empty() ? "" : "; ", step.kernel, step.reason);
  return all.empty() ? "no kernel" : all;
}

std::ostream& operator<<(std::ostream& out, const Plan& plan) { return out << plan.to_string(); }

}  // namespace attn
