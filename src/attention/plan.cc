// src/attention/plan.cc: asks the kernels in order; their reasons become text only when someone reads them.
#include "attention/plan.h"

#include "kernels/attention/reference.h"

namespace attn {
namespace {

bool takes(Answer answer) { return answer == Answer::takes || answer == Answer::takes_everything; }

const char* text_of(Answer answer) {
  switch (answer) {
    case Answer::takes: return "takes it";
    case Answer::takes_everything: return "takes everything";
  }
  return "";
}

}  // namespace

std::span<const AttentionKernel> attention_kernels() {
  static const AttentionKernel kernels[] = {
      {.name = "ref",
       .strip_rows = 64,
       .ask = [](const kernels::AttentionProblem&) { return Answer::takes_everything; },
       .scratch_bytes = kernels::attention_reference().scratch_bytes,
       .rows = kernels::attention_reference().rows},
  };
  static_assert(std::size(kernels) <= Plan::most_kernels);
  return kernels;
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

std::string Plan::kernel() const { return asked == 0 ? "" : attention_kernels()[static_cast<std::size_t>(asked - 1)].name; }

std::vector<PlanStep> Plan::steps() const {
  std::vector<PlanStep> steps;
  for (int n = 0; n < asked; ++n) {
    const auto answer = static_cast<Answer>(answers[static_cast<std::size_t>(n)]);
    steps.push_back({attention_kernels()[static_cast<std::size_t>(n)].name, takes(answer), text_of(answer)});
  }
  return steps;
}

}  // namespace attn
