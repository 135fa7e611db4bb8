// src/explain/more_steps.cc: the steps that an option adds: one row worked out, the backward pass, the cache, and
// checks that two ways have the same bits.
#include "explain/backward.h"
#include "explain/equivalences.h"
#include "explain/explainer.h"
#include "explain/formula_words.h"
#include "explain/utf8.h"

#include <attn/ops.h>

namespace attn::explain_detail {

std::string Explainer::facts(const WorkedRow& row) const {
  if (row.maximum.empty()) return "";
  std::vector<std::string> maxima, totals;
  for (std::size_t i = 0; i < row.maximum.size() && i < 8; ++i) {
    maxima.push_back(row.sees[i] ? format_number(row.maximum[i], 4) : "–");
    totals.push_back(row.sees[i] ? format_number(row.total[i], 4) : "–");
  }
  return say_with(Phrase::maximum, runtime::format("{}", runtime::join(maxima, " | "))) + "  " +
         say_with(Phrase::total, runtime::format("{}", runtime::join(totals, " | ")));
}

void Explainer::add_worked_row(std::int64_t query) {
  const WorkedRow row = worked_row(run_, matrices_, options_.score, query);
  // in a batch the texts differ, so only the row number is shown
  const std::string of =
      batch_ ? say_with(Phrase::row_number, query)
             : say_with(Phrase::row_of, query, cut(tokens_.from.tokens[0][static_cast<std::size_t>(query)], 16));
  const auto columns = [&](std::vector<std::string> names) {
    for (std::string& name : names) name = in_words(options_.language, name);
    return std::vector<std::vector<std::string>>{std::move(names)};
  };
  ExplainStep stages = step(Kind::keys, "query_scores", Phrase::row_scores, of, Phrase::note_row_scores,
                            {"row_of", {"scores", "weights"}}, facts(row));
  if (!run_.ends.empty()) stages.note = run_.note_ends;
  stages.maximum = row.maximum;
  stages.total = row.total;
  stages.hidden = row.stages_hidden;
  stages.columns = columns(row.stage_names);
  add(std::move(stages), row.stages, true);
  ExplainStep values = step(Kind::keys, "query_values", Phrase::row_values, of, Phrase::note_row_values,
                            {"row_of", {mixing(), "v", "context"}});
  values.hidden = row.mixing_hidden;
  values.columns = columns(row.mixing_names);
  add(std::move(values), row.mixing, true);
  for (auto& rows : result_.steps.back().rows) rows.push_back(say(Phrase::sum_row));
}

void Explainer::add_backward() {
  const WayBack back = way_back({.q = run_.q_used(),
                                 .k = run_.k_used(),
                                 .v = run_.v,
                                 .weights = run_.weights,
                                 .context = run_.context,
                                 .options = run_.call,
                                 .rotated = run_.q_rotated.defined(),
                                 .run = &run_,
                                 .output = run_.output,
                                 .w_output = matrices_.w_output});
  bool first = true;
  for (const BackwardStep& gradient : back.steps) {
    ExplainStep told =
        step(gradient.kind, gradient.name, gradient.title, gradient.formula, gradient.note, gradient.operation);
    if (first)
      told.source = say_with(Phrase::loss, in_words(options_.language, run_.output.defined() ? "output" : "context"),
                             format_number(back.loss, 4));
    if (gradient.kind == Kind::pairs) told.hidden = run_.hidden;
    add(std::move(told), gradient.values, gradient.key_rows);
    first = false;
  }
}

void Explainer::add_cache(KvStorage storage) {
  const FromCache cached = from_cache(run_, tokens_, storage);
  if (storage != KvStorage::int8)
    return add_checks("cached", Phrase::cached, Phrase::note_cached, "pages of 16 rows", cached.same);
  const std::string formula = "round(127 x / max |x|) max |x| / 127";
  add(step(Kind::table, "k_int8", Phrase::key_int8, formula, Phrase::note_int8, {"int8", {k_used()}}), cached.k, true);
  add(step(Kind::table, "v_int8", Phrase::value_int8, formula, Phrase::note_int8, {"int8", {"v"}}), cached.v, true);
  add(step(Kind::table, "context_int8", Phrase::context_int8, "attention(q, k int8, v int8)", Phrase::note_context_int8,
           {"attention", {q_used(), "k_int8", "v_int8"}}),
      cached.context);
}

/// Adds one line for each sentence: are all bits the same?
void Explainer::add_checks(const char* name, Phrase title, Phrase note, const std::string& formula,
                           const std::vector<bool>& same) {
  ExplainStep checks = step(Kind::checks, name, title, formula, note, {"same_bits", {"context"}});
  checks.shape = Dims{static_cast<std::int64_t>(same.size())};
  checks.values = tensor<std::int64_t>(std::vector<std::int64_t>(same.begin(), same.end()));
  std::vector<std::string> rows;
  for (const std::string& text : result_.texts) rows.push_back(printable(text));
  checks.rows = {rows};
  result_.steps.push_back(std::move(checks));
}

}  // namespace attn::explain_detail
