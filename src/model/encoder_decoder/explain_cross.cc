// src/model/encoder_decoder/explain_cross.cc: explains the cross-attention of a layer: which source tokens each target
// token attends to.
#include <attn/autograd.h>
#include <attn/explain_model.h>
#include <attn/ops.h>

#include "explain/formula_words.h"
#include "explain/hidden.h"
#include "explain/shown.h"
#include "explain/tokens.h"
#include "model/encoder_decoder/translator_parts.h"
#include "model/explain_steps.h"

#include "runtime/format.h"

#include <cmath>

namespace attn {
namespace {

using CrossPhrase = explain_detail::Phrase;
using CrossKind = ExplainStep::Kind;

void check_text(const char* what, std::int64_t tokens, std::int64_t most) {
  if (tokens == 0) throw ValueError(runtime::format("explain: the {} text has no token; give at least one word", what));
  if (most > 0 && tokens > most)
    throw ValueError(
        runtime::format("explain: the {} text has {} tokens; the model reads at most {}", what, tokens, most));
  if (tokens > explain_detail::kMostTokens)
    throw ValueError(runtime::format("explain: the {} text has {} tokens; at most {} can be shown", what, tokens,
                                     explain_detail::kMostTokens));
}

Tensor widened(const Tensor& x) { return x.to(x.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32).contiguous(); }

}  // namespace

Explanation explain_translation(const Translator& translator, const std::string& source,
                                const std::optional<std::string>& target, const TrainedCross& at) {
  const EncoderDecoder& model = translator.model;
  const Language language = at.language;
  if (at.layer < 0 || at.layer >= model.config.decoder_layers)
    throw ValueError(
        runtime::format("explain: layer is {}; it must be from 0 to {}", at.layer, model.config.decoder_layers - 1));
  if (at.head && (*at.head < 0 || *at.head >= model.config.decoder_heads))
    throw ValueError(
        runtime::format("explain: head is {}; it must be from 0 to {}", *at.head, model.config.decoder_heads - 1));
  if (!translator.defaults.start)
    throw ValueError(
        "explain: the start token is not set; generation_config.json or config.json names it (decoder_start_token_id)");
  const std::vector<std::int64_t> from = translator.encode(source);
  check_text("source", std::ssize(from), model.config.positions);
  std::string said;
  std::vector<std::int64_t> to;
  if (target) {
    said = *target;
    to = translator.encode_target(said);
  } else {
    const TranslatedText text = translator.translate({source})[0][0];
    said = text.text;
    to = text.tokens;
  }
  to.insert(to.begin(), *translator.defaults.start);
  check_text("target", std::ssize(to), model.config.positions);

  const NoGrad no_grad;
  const Tensor ends = tensor<std::int64_t>({0, std::ssize(from)});
  const Memory memory = model.memory(model.encode(tensor<std::int64_t>(from), ends), ends);
  const EncoderDecoder::CrossHeads heads = model.cross_heads(tensor<std::int64_t>(to), memory, at.layer);
  AttentionOptions options;
  options.scale = heads.scale;
  options.weights = Weights::full;
  const AttentionResult attended = attention(heads.q, heads.k, heads.v, options);

  const PairTokenizer& tokenizer = *translator.parts().tokenizer;
  TrainedSteps steps{language, {}, {}};
  for (const std::int64_t id : to) steps.tokens.push_back(shown_token(tokenizer.shown(id, true)));
  for (const std::int64_t id : from) steps.tokens_to.push_back(shown_token(tokenizer.shown(id, false)));
  steps.add(CrossKind::words, "tokens", CrossPhrase::tokens, CrossPhrase::note_tokens, "", {"split", {}}, {}).shape = {
      std::ssize(to)};
  steps
      .add(CrossKind::ids, "ids", CrossPhrase::ids, CrossPhrase::note_ids, "", {"index", {"tokens"}},
           tensor<std::int64_t>(to))
      .note = "";
  ExplainStep& answers = steps.add(CrossKind::words, "tokens_to", CrossPhrase::tokens_to, CrossPhrase::note_tokens_to,
                                   "", {"split", {}}, {});
  answers.shape = {std::ssize(from)};
  answers.rows = {steps.tokens_to};
  ExplainStep& ids_to = steps.add(CrossKind::ids, "ids_to", CrossPhrase::ids_to, CrossPhrase::note_ids, "",
                                  {"index", {"tokens_to"}}, tensor<std::int64_t>(from));
  ids_to.note = "";
  ids_to.rows = {steps.tokens_to};
  if (!at.head) {
    const Tensor average = mean(widened(attended.weights.select(0, 0)), {0});
    steps.add(CrossKind::weights, "weights", CrossPhrase::weights, CrossPhrase::note_head_average, "mean over heads",
              {"model", {}}, average);
  } else {
    const Tensor q = heads.q[0][*at.head], k = heads.k[0][*at.head], v = heads.v[0][*at.head];
    const Tensor scores = attention_scores(q, k, {.score = Score::dot()}),
                 scaled = attention_scores(q, k, {.scale = heads.scale});
    const std::string from_head =
        runtime::format(fmt::runtime(say(language, CrossPhrase::source_head)), at.layer, *at.head);
    steps.add(CrossKind::table, "q", CrossPhrase::query, CrossPhrase::note_query, "x W", {"model", {}}, widened(q))
        .source = from_head;
    for (const auto& [name, title, note, values] : {std::tuple{"k", CrossPhrase::key, CrossPhrase::note_key, k},
                                                    {"v", CrossPhrase::value, CrossPhrase::note_value, v}}) {
      ExplainStep& step = steps.add(CrossKind::table, name, title, note, "y W", {"model", {}}, widened(values));
      step.source = from_head;
      step.key_rows = true;
      step.rows = {steps.tokens_to};
    }
    steps
        .add(CrossKind::pairs, "scores", CrossPhrase::scores, CrossPhrase::note_scores_cross, "q · k",
             {"dot", {"q", "k"}}, widened(scores))
        .note =
        runtime::format(fmt::runtime(say(language, CrossPhrase::note_scores_cross)), say(language, CrossPhrase::dot));
    const bool scales = heads.scale != 1;
    const double divisor = 1 / heads.scale;
    if (scales)
      steps.add(CrossKind::pairs, "scaled", CrossPhrase::scaled, CrossPhrase::note_scaled,
                runtime::format("scores / √{}", model.config.dim_of_decoder_head()), {"divide", {"scores"}, divisor},
                widened(scaled));
    steps.add(CrossKind::weights, "weights", CrossPhrase::weights, CrossPhrase::note_weights,
              scales ? "softmax(scaled)" : "softmax(scores)", {"softmax", {scales ? "scaled" : "scores"}},
              widened(attended.weights[0][*at.head]));
    steps.add(CrossKind::table, "context", CrossPhrase::context, CrossPhrase::note_context, "weights · v",
              {"matmul", {"weights", "v"}}, widened(attended.output[0][*at.head]));
  }

  Explanation explanation;
  explanation.texts = {said};
  explanation.to = source;
  explanation.language = language;
  explanation.steps = std::move(steps.all);
  explanation.only = at.only;
  explain_detail::check_only(explanation);
  return explanation;
}

}  // namespace attn
