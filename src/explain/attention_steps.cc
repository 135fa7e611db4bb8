// src/explain/attention_steps.cc: explains attention with relative products, another normalizer and a function of the
// weight: the steps of `explain` with theirs among them.
#include "explain/additions.h"
#include "explain/explainer.h"
#include "explain/mechanism.h"
#include "explain/normalizer_steps.h"
#include "explain/relative_steps.h"

#include <attn/explain_mechanisms.h>

#include <array>

namespace attn {
namespace explain_detail {
namespace {

class AttentionAdditions final : public Additions {
 public:
  AttentionAdditions(const ExplainAdditions& given, const ExplainOptions& options)
      : given_(given), relative_(given.relative, options), weights_(given.normalizer, given.weight_mod, options),
        cross_(options.to.has_value()) {}

  void set(const Run& run, AttentionOptions& call) const override {
    relative_.set(run, call);
    call.normalizer = given_.normalizer;
    call.weight_mod =
        given_.weight_mod.empty() || !cross_ ? given_.weight_mod : given_.weight_mod.aligned(Align::top_left);
  }
  std::vector<ExplainStep> parameters(const Run& run) const override { return relative_.parameters(run); }
  bool add_scores(const Run& run, const std::string& before, std::vector<Stage>& stages) const override {
    return relative_.add_scores(run, before, stages);
  }
  void set_weights(Run& run) const override { weights_.set_weights(run); }
  std::vector<Stage> weight_stages(const Run& run, const std::string& before,
                                   const std::string& scores) const override {
    return weights_.weight_stages(run, before, scores);
  }

 private:
  const ExplainAdditions& given_;
  const RelativeSteps relative_;
  const NormalizerSteps weights_;
  const bool cross_;
};

Explanation with_additions(const std::vector<std::string>& texts, const ExplainAdditions& given,
                           const ExplainOptions& options, bool batch) {
  const bool relative = !given.relative.empty();
  if (!relative && given.weight_mod.empty() && given.normalizer.kind == Normalizer::Kind::softmax)
    return batch ? attn::explain_batch(texts, options) : attn::explain(texts[0], options);
  const NotThere not_there[] = {{"gradients", options.gradients}};
  refuse_options(relative                   ? "a relative product"
                 : given.weight_mod.empty() ? "another normalizer"
                                            : "a function of the weight",
                 not_there);
  for (const ExplainRelative& product : given.relative)
    if (product.operand && options.packed)
      refuse_options("a relative product of an operand", std::array{NotThere{"packed", true}});
  const AttentionAdditions additions(given, options);
  return Explainer(texts, options, batch, &additions).explain();
}

}  // namespace
}  // namespace explain_detail

Explanation explain_attention(const std::string& text, const ExplainAdditions& additions,
                              const ExplainOptions& options) {
  return explain_detail::with_additions({text}, additions, options, false);
}

Explanation explain_attention_batch(const std::vector<std::string>& texts, const ExplainAdditions& additions,
                                    const ExplainOptions& options) {
  return explain_detail::with_additions(texts, additions, options, true);
}

}  // namespace attn
