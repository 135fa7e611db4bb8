// src/model/explain_head.cc: explains one head of a trained model on a text.
#include <attn/explain_model.h>

#include <attn/autograd.h>
#include <attn/error.h>
#include <attn/ops.h>

#include "explain/backward.h"
#include "explain/formula_words.h"
#include "explain/hidden.h"
#include "explain/numbers.h"
#include "explain/shown.h"
#include "explain/tokens.h"
#include "io/source.h"
#include "model/blocks.h"
#include "model/explain_steps.h"
#include "model/generate_internal.h"

#include "runtime/format.h"

#include <cmath>

namespace attn {
namespace {

using explain_detail::Phrase;
using StepKind = ExplainStep::Kind;

}  // namespace

Explanation explain_model(const LanguageModel& model, const Tokenizer& tokenizer, const std::string& text,
                          const TrainedHead& at) {
  const ModelConfig& config = model.config;
  const Language language = at.language;
  if (model.is_shared())
    throw ValueError("explain: several ranks have columns of the weights; such a model cannot be explained");
  if (at.layer < 0 || at.layer >= config.layers)
    throw ValueError(runtime::format("explain: layer is {}; it must be from 0 to {}", at.layer, config.layers - 1));
  if (at.head < 0 || at.head >= config.heads)
    throw ValueError(runtime::format("explain: head is {}; it must be from 0 to {}", at.head, config.heads - 1));
  const std::vector<std::int64_t> ids = tokenizer.encode(text, /*add_special=*/true);
  if (ids.empty()) throw ValueError("explain: the text has no token; give at least one word");
  const auto n = static_cast<std::int64_t>(ids.size());
  if (n > config.context)
    throw ValueError(
        runtime::format("explain: the text has {} tokens; the model's context holds {}", n, config.context));
  if (n > explain_detail::kMostTokens)
    throw ValueError(
        runtime::format("explain: the text has {} tokens; at most {} can be shown", n, explain_detail::kMostTokens));

  check_tokens("explain: the text", ids, tokenizer, config.vocab_size);

  const NoGrad no_grad;
  const LanguageModel::Heads heads = model.heads(tensor<std::int64_t>(ids).unsqueeze(0), at.layer);
  const std::int64_t key_head = at.head / (config.heads / config.key_value_heads());
  const Tensor q = heads.q[0][at.head], k = heads.k[0][key_head], v = heads.v[0][key_head];  // [T, D]
  const AttentionOptions& options = model.parts().kinds[static_cast<std::size_t>(at.layer)].options;
  const Mask mask = options.mask;
  const std::vector<Hidden> hidden = explain_detail::hidden_pairs(mask, {1, 1, n, n}, {});
  AttentionOptions with_weights = options;
  with_weights.weights = Weights::full;
  const AttentionResult attended = attention(q, k, v, with_weights);
  const Tensor scaled = attention_scores(q, k, {.scale = options.scale}),
               scores = attention_scores(q, k, {.score = Score::dot()});

  TrainedSteps steps{language, {}, {}};
  for (const std::int64_t id : ids) steps.tokens.push_back(shown_token(tokenizer.bytes(id)));
  steps.tokens_to = steps.tokens;
  const auto wide = [](const Tensor& x) {
    return x.to(x.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32).contiguous();
  };
  const std::string rotated = config.layer(at.layer).rotary ? ", rotated" : "";
  const std::string x = (config.qk_norm ? "norm(norm(x) W)" : "norm(x) W") + rotated;
  steps.add(StepKind::words, "tokens", Phrase::tokens, Phrase::note_tokens, "", {"split", {}}, {}).shape = {n};
  steps.add(StepKind::ids, "ids", Phrase::ids, Phrase::note_ids, "", {"index", {"tokens"}}, tensor<std::int64_t>(ids))
      .note = "";
  const auto source_of = [&](Phrase phrase, std::int64_t head) {
    return runtime::format(fmt::runtime(say(language, phrase)), at.layer, head);
  };
  const std::string source = source_of(Phrase::source_head, at.head);
  steps.add(StepKind::table, "q", Phrase::query, Phrase::note_query, x, {"model", {}}, wide(q)).source = source;
  for (const auto& [name, title, note, values] :
       {std::tuple{"k", Phrase::key, Phrase::note_key, k}, {"v", Phrase::value, Phrase::note_value, v}}) {
    ExplainStep& step =
        steps.add(StepKind::table, name, title, note, *name == 'k' ? x : "norm(x) W", {"model", {}}, wide(values));
    step.source = key_head == at.head ? source : source_of(Phrase::source_key_head, key_head);
    step.key_rows = true;
  }
  steps
      .add(StepKind::pairs, "scores", Phrase::scores, Phrase::note_scores_self, "q · k", {"dot", {"q", "k"}},
           wide(scores))
      .note = runtime::format(fmt::runtime(say(language, Phrase::note_scores_self)), say(language, Phrase::dot));
  steps.add(StepKind::pairs, "scaled", Phrase::scaled, Phrase::note_scaled,
            runtime::format("scores / √{}", config.score_divisor()),
            {"divide", {"scores"}, std::sqrt(config.score_divisor())}, wide(scaled));
  explain_detail::Run capped;  // the softcap's step, for the way back
  capped.call = options;
  if (options.softcap > 0) {
    const Tensor values = tanh(wide(scaled) / options.softcap) * options.softcap;
    const std::string formula = runtime::format("{0} tanh(scaled / {0})", options.softcap);
    const ExplainStep::Operation operation{"softcap", {"scaled"}, options.softcap};
    capped.stages.push_back({"capped", {}, {}, formula, "cap", operation, values});
    steps.add(StepKind::pairs, "capped", Phrase::capped, Phrase::note_capped, formula, operation, values);
  }
  const bool caps = !capped.stages.empty();
  steps
      .add(StepKind::pairs, "mask", Phrase::mask, explain_detail::note_of_mask(hidden), mask.to_string(),
           {"mask", {caps ? "capped" : "scaled"}}, caps ? capped.stages[0].values : wide(scaled))
      .hidden = hidden;
  steps
      .add(StepKind::weights, "weights", Phrase::weights, Phrase::note_weights, "softmax(masked)",
           {"softmax", {"mask"}}, wide(attended.weights))
      .hidden = hidden;
  steps.add(StepKind::table, "context", Phrase::context, Phrase::note_context, "weights · v",
            {"matmul", {"weights", "v"}}, wide(attended.output));

  if (at.gradients) {
    const explain_detail::WayBack back = explain_detail::way_back({.q = wide(q),
                                                                   .k = wide(k),
                                                                   .v = wide(v),
                                                                   .weights = wide(attended.weights),
                                                                   .context = wide(attended.output),
                                                                   .options = options,
                                                                   .rotated = !rotated.empty(),
                                                                   .run = caps ? &capped : nullptr,
                                                                   .score_divisor = config.score_divisor()});
    for (const explain_detail::BackwardStep& gradient : back.steps) {
      ExplainStep& step = steps.add(gradient.kind, gradient.name, gradient.title, gradient.note, gradient.formula,
                                    gradient.operation, gradient.values);
      step.key_rows = gradient.key_rows;
      if (gradient.title == Phrase::d_context)
        step.source =
            runtime::format(fmt::runtime(say(language, Phrase::loss)), explain_detail::in_words(language, "context"),
                            explain_detail::format_number(back.loss, 4));
      if (gradient.kind == StepKind::pairs) step.hidden = hidden;
    }
  }

  Explanation explanation;
  explanation.texts = {text};
  explanation.language = language;
  explanation.mask = mask.to_string();
  explanation.steps = std::move(steps.all);
  explanation.only = at.only;
  explain_detail::check_only(explanation);
  return explanation;
}

}  // namespace attn
