// src/explain/explain.cc: runs attention on texts and lists its steps in the order of computation.
#include "explain/additions.h"
#include "explain/equivalences.h"
#include "explain/explainer.h"
#include "explain/formula_words.h"
#include "explain/hidden.h"
#include "explain/options.h"
#include "explain/run_attention.h"
#include "explain/shown.h"

namespace attn {
namespace explain_detail {
namespace {

/// Returns the query row to work out, counted from 0.
std::optional<std::int64_t> row_of(std::optional<std::int64_t> query, std::int64_t rows) {
  if (!query) return query;
  if (*query < -rows || *query >= rows)
    throw ValueError(runtime::format(
        "explain: query {} is not there; the tokens are 0 to {}, or -{} to -1 from the end", *query, rows - 1, rows));
  return *query < 0 ? *query + rows : *query;
}

/// Returns whether the formula of that step quotes the caller: a mask, an expression, a token.
bool quotes(std::string_view name) {
  constexpr std::string_view names[] = {"mask",         "modified",     "d_unmodified",
                                        "query_scores", "query_values", "weights_modified"};
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

Explainer::Explainer(const std::vector<std::string>& texts, const ExplainOptions& options, bool batch,
                     const Additions* additions)
    : options_(options), tokens_(tokenize(texts, options)), matrices_(make_matrices(options, tokens_.ids())),
      batch_(batch), additions_(additions) {
  result_.query = row_of(options.query, tokens_.from.width());
  run_ = run_attention(tokens_, matrices_, options, batch_, additions_);
  result_.texts = texts;
  result_.to = options.to;
  result_.batch = batch_;
  result_.language = options.language;
  result_.mask = options.mask.is_all() ? "" : options.mask.to_string();
  result_.only = options.only;
  ExplainOptions told = options;
  told.query = result_.query;
  if (additions_ == nullptr) result_.options = options_json(told);
}

Explanation Explainer::explain() {
  add_texts();
  add_embedding();
  add_projections();
  add_scores();
  add_mask();
  add_weights();
  add_context();
  if (result_.query) add_worked_row(*result_.query);
  if (options_.gradients) add_backward();
  if (options_.packed)
    add_checks("packed", Phrase::packed, Phrase::note_packed,
               runtime::format("cu_seqlens {}", packed_starts(tokens_.to.lengths)), same_packed(run_, tokens_));
  if (options_.cache) add_cache(*options_.cache);
  if (batch_ && !holds_tensors(options_.mask) && options_.dropout_p == 0)
    add_checks("alone", Phrase::alone, Phrase::note_alone, "",
               same_alone(run_, tokens_, matrices_, options_, additions_));
  check_only(result_);
  return std::move(result_);
}

ExplainStep Explainer::step(Kind kind, const char* name, Phrase title, std::string formula, Phrase note,
                            ExplainStep::Operation operation, std::string source) const {
  ExplainStep result;
  result.kind = kind;
  result.name = name;
  result.title = say(title);
  result.formula = quotes(name) ? std::move(formula) : in_words(options_.language, formula);
  result.note = say(note);
  result.operation = std::move(operation);
  result.source = std::move(source);
  return result;
}

void Explainer::add(const Stage& stage) {
  ExplainStep told =
      step(stage.kind, stage.name.c_str(), Phrase::scores, stage.formula, Phrase::scores, stage.operation);
  told.title = stage.title;
  told.note = stage.note;
  told.source = stage.source;
  if (stage.kind == Kind::weights) told.hidden = run_.hidden;
  if (!stage.columns.empty()) told.columns = {stage.columns};
  add(std::move(told), stage.values, stage.key_rows);
}

/// Sets a step's values, [B, rows, columns] or [B, H, rows, columns]. Its shape leaves out B except in explain_batch,
/// and H if there is one head.
void Explainer::fill(ExplainStep& step, const Tensor& values) const {
  step.batch = values.size(0);
  step.heads = values.dim() == 4 ? values.size(1) : 1;
  if (batch_) step.shape.push_back(step.batch);
  if (step.heads > 1) step.shape.push_back(step.heads);
  step.shape.push_back(values.size(-2));
  step.shape.push_back(values.size(-1));
  step.values = values.contiguous().reshape(step.shape);
}

void Explainer::add(ExplainStep step, const Tensor& values, bool key_rows) {
  fill(step, values);
  step.key_rows = key_rows;
  step.rows = (key_rows ? tokens_.to : tokens_.from).tokens;
  if (step.kind == Kind::pairs || step.kind == Kind::weights) step.columns = tokens_.to.tokens;
  result_.steps.push_back(std::move(step));
}

}  // namespace explain_detail

Explanation explain(const std::string& text, const ExplainOptions& options) {
  return explain_detail::Explainer({text}, options, false).explain();
}

Explanation explain_batch(const std::vector<std::string>& texts, const ExplainOptions& options) {
  return explain_detail::Explainer(texts, options, true).explain();
}

}  // namespace attn
