// src/attention/normalizer/alone/lower_normalizer.cc: a build without other normalizers than softmax refuses them.
#include <attn/error.h>

#include "attention/normalizer/lowered_normalizer.h"
#include "attention/unfused/unfused_normalizer.h"
#include "runtime/format.h"

namespace attn {

Normalizer Normalizer::parse(const std::string& text) {
  if (text == "softmax") return {};
  throw ValueError(runtime::format("Normalizer::parse: \"{}\" is given; this build has softmax only", text));
}
std::string Normalizer::to_string() const { return "softmax"; }

void check_normalizer(const char* function, const AttentionOptions& options) {
  if (!is_plain_softmax(options))
    throw ValueError(runtime::format("{}: this build has softmax and no function of the weight", function));
}

std::shared_ptr<const LoweredNormalizer> lower_normalizer(const AttentionOptions&, const ScoreShape&, const Lengths&,
                                                          Dtype, const kernels::AttentionProblem&) {
  return nullptr;
}
void lower_weight_gradient(const LoweredNormalizer&, const std::vector<Tensor>&, const ScoreShape&, const Lengths&,
                           Dtype, LoweredWeightGradient&) {}
UnfusedWeights unfused_weights(const Call&, const Tensor&, const Tensor&, const std::vector<Tensor>&) { return {}; }
std::size_t normalizer_scratch_bytes(const kernels::AttentionProblem&) { return 0; }
void normalizer_rows(const kernels::AttentionProblem&, const kernels::Task&, void*) {}

}  // namespace attn
