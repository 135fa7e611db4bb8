// src/explain/score_steps.cc: the steps from the vectors to the scores that enter softmax: q, k, v, scores, what
// changes them, mask; and the matrices that they are made with.
#include "explain/additions.h"
#include "explain/explainer.h"
#include "explain/formula_words.h"

#include <attn/ops.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace attn::explain_detail {

void Explainer::add_projections() {
  const bool places = sinusoidal();
  const std::string x = places ? "(x + p)" : "x", y = options_.to ? places ? "(y + p)" : "y" : x;
  const char *from = places ? "x_positions" : "x", *to = !options_.to ? from : places ? "y_positions" : "y";
  const auto source = [&](const char* name, const Tensor& w) {
    return matrices_.own_projections
               ? say_with(Phrase::source_own, name)
               : say_with(Phrase::source_random, runtime::format("rand({}, {})", w.size(1), w.size(2)), options_.seed);
  };
  add_parameter("w_query", "W_q", matrices_.w_query, true);
  add_parameter("w_key", "W_k", matrices_.w_key, true);
  add_parameter("w_value", "W_v", matrices_.w_value, true);
  if (matrices_.w_output.defined()) add_parameter("w_output", "W_O", matrices_.w_output, false);
  add_score_parameters();
  add(step(Kind::table, "q", Phrase::query, (learned() ? "u" : x) + " W_q", Phrase::note_query,
           {"project", {learned() ? "learned_query" : from, "w_query"}}, source("w_query", matrices_.w_query)),
      run_.q);
  add(step(Kind::table, "k", Phrase::key, y + " W_k", Phrase::note_key, {"project", {to, "w_key"}},
           source("w_key", matrices_.w_key)),
      run_.k, true);
  add(step(Kind::table, "v", Phrase::value, y + " W_v", Phrase::note_value, {"project", {to, "w_value"}},
           source("w_value", matrices_.w_value)),
      run_.v, true);
  if (!run_.q_rotated.defined()) return;
  const std::string formula = runtime::format("turn place / 10000^(2i / {})", matrices_.dk());
  add(step(Kind::table, "q_rotated", Phrase::query_rotated, formula, Phrase::note_rotated, {"rotate", {"q"}}),
      run_.q_rotated);
  add(step(Kind::table, "k_rotated", Phrase::key_rotated, formula, Phrase::note_rotated, {"rotate", {"k"}}),
      run_.k_rotated, true);
}

void Explainer::add_parameter(const char* name, const char* title, const Tensor& values, bool by_head) {
  ExplainStep parameter;
  parameter.name = name;
  parameter.title = title;
  parameter.heads = by_head ? values.size(0) : 1;
  parameter.values = by_head && parameter.heads == 1 ? values.reshape({values.size(1), values.size(2)}) : values;
  parameter.shape = parameter.values.sizes();
  result_.parameters.push_back(std::move(parameter));
}

void Explainer::add_score_parameters() {
  if (additions_ != nullptr)
    for (ExplainStep& parameter : additions_->parameters(run_)) result_.parameters.push_back(std::move(parameter));
  if (options_.score == Score::Kind::general) add_parameter("score_w", "W", matrices_.score_w, false);
  if (options_.score != Score::Kind::additive) return;
  add_parameter("score_w_query", "S_q", matrices_.score_q, false);
  add_parameter("score_w_key", "S_k", matrices_.score_k, false);
  add_parameter("score_w", "w", matrices_.score_w.reshape({1, matrices_.score_w.numel()}), false);
}

void Explainer::add_scores() {
  struct Form {
    const char *formula, *operation;
    std::vector<std::string> matrices;
    Phrase named;
    const char* drawn = nullptr;
  };
  const Form form = options_.score == Score::Kind::general
                        ? Form{"qᵀ W k", "bilinear", {"score_w"}, Phrase::general, "W"}
                    : options_.score == Score::Kind::additive
                        ? Form{"w · tanh(S_q q + S_k k)",
                               "additive",
                               {"score_w_query", "score_w_key", "score_w"},
                               Phrase::additive,
                               "S_q, S_k, w"}
                        : Form{run_.q_rotated.defined() ? "rotated q · rotated k" : "q · k", "dot", {}, Phrase::dot};
  ExplainStep::Operation operation{form.operation, {q_used(), k_used()}};
  operation.inputs.insert(operation.inputs.end(), form.matrices.begin(), form.matrices.end());
  std::string source;
  if (form.drawn != nullptr)
    source = matrices_.own_score ? say_with(Phrase::source_own, form.drawn)
                                 : say_with(Phrase::source_drawn, form.drawn, options_.seed);
  ExplainStep scores =
      step(Kind::pairs, "scores", Phrase::scores, form.formula, Phrase::note_scores_self, std::move(operation), source);
  scores.note = say_with(options_.to ? Phrase::note_scores_cross
                         : learned() ? Phrase::note_scores_learned
                                     : Phrase::note_scores_self,
                         say(form.named));
  add(std::move(scores), run_.scores);
  if (run_.scaled.defined())
    add(step(Kind::pairs, "scaled", Phrase::scaled, runtime::format("scores / √{}", matrices_.dk()),
             Phrase::note_scaled, {"divide", {"scores"}, std::sqrt(static_cast<double>(matrices_.dk()))}),
        run_.scaled);
  for (const Stage& stage : run_.stages) add(stage);
}

void Explainer::add_mask() {
  if (run_.hidden.empty()) return;
  std::vector<double> values = run_.last_scores().to_vector();
  for (std::size_t i = 0; i < values.size(); ++i)
    if (run_.hidden[i] != Hidden::visible) values[i] = -std::numeric_limits<double>::infinity();
  ExplainStep mask = step(Kind::pairs, "mask", Phrase::mask,
                          result_.mask + (result_.mask.empty() || !batch_ ? "" : " & ") +
                              (batch_ ? in_words(options_.language, "lengths") : ""),
                          note_of_mask(run_.hidden), {"mask", {result_.steps.back().name}});
  mask.hidden = run_.hidden;
  add(std::move(mask), tensor<double>(values, run_.scores.sizes()).to(run_.scores.dtype()));
}

}  // namespace attn::explain_detail
