// src/explain/context_steps.cc: the steps from the scores to the result: weights, sink, dropout, the weights that the
// call returns, context, joined heads, W_O.
#include "explain/additions.h"
#include "explain/explainer.h"

#include <attn/ops.h>

namespace attn::explain_detail {

bool Explainer::a_row_sees_nothing() const {
  const auto keys = static_cast<std::size_t>(tokens_.to.width());
  for (std::size_t row = 0; row < run_.hidden.size(); row += keys) {
    bool sees = false, padding = true;
    for (std::size_t key = row; key < row + keys; ++key) {
      sees = sees || run_.hidden[key] == Hidden::visible;
      padding = padding && run_.hidden[key] == Hidden::padding;
    }
    if (!sees && !padding) return true;
  }
  return false;
}

void Explainer::add_weights() {
  const std::string before = result_.steps.back().name;
  const std::string scores = before == "mask" ? "masked" : before;
  const std::vector<Stage> stages =
      additions_ == nullptr ? std::vector<Stage>() : additions_->weight_stages(run_, before, scores);
  const bool own =
      std::any_of(stages.begin(), stages.end(), [](const Stage& stage) { return stage.name == "weights"; });
  if (!own) add_softmax(before, scores);
  for (const Stage& stage : stages) add(stage);
  if (run_.sink.defined())
    add(step(Kind::table, "sink", Phrase::sink, "e^(sink − logsumexp)", Phrase::note_sink,
             {"sink_weight", {before}, options_.sink}),
        run_.sink);
  if (run_.dropped.defined()) {
    const char* const kept = run_.modified.defined() ? "weights_modified" : "weights";
    ExplainStep dropped =
        step(Kind::weights, "dropped", Phrase::dropped, runtime::format("{} / (1 − {})", kept, options_.dropout_p),
             Phrase::note_dropped, {"dropout", {kept}, options_.dropout_p},
             say_with(Phrase::source_random, "Philox", options_.seed));
    dropped.hidden = run_.hidden;
    add(std::move(dropped), run_.dropped);
  }
  if (run_.returned.weights.defined()) add_requested_weights();
}

void Explainer::add_softmax(const std::string& before, const std::string& scores) {
  ExplainStep weights = step(Kind::weights, "weights", Phrase::weights,
                             options_.sink ? runtime::format("softmax({}, sink {})", scores, *options_.sink)
                                           : runtime::format("softmax({})", scores),
                             options_.sink          ? Phrase::note_weights_sink
                             : a_row_sees_nothing() ? Phrase::note_weights_empty
                                                    : Phrase::note_weights,
                             {"softmax", {before}, options_.sink});
  weights.hidden = run_.hidden;
  add(std::move(weights), run_.weights);
}

void Explainer::add_context() {
  add(step(Kind::table, "context", Phrase::context, std::string(mixing()) + " · v",
           tokens_.from.pads() ? Phrase::note_context_pad : Phrase::note_context, {"matmul", {mixing(), "v"}}),
      run_.context);
  const bool several = matrices_.heads() > 1;
  if (several)
    add(step(Kind::table, "joined", Phrase::joined,
             runtime::format("{} × {} → {}", matrices_.heads(), matrices_.dv(), run_.joined.size(2)),
             Phrase::note_joined, {"join_heads", {"context"}}),
        run_.joined);
  if (!run_.output.defined()) return;
  const Tensor& w = matrices_.w_output;
  add(step(Kind::table, "output", Phrase::output, several ? "joined W_O" : "context W_O", Phrase::note_output,
           {"project", {several ? "joined" : "context", "w_output"}},
           matrices_.own_output
               ? say_with(Phrase::source_own, "w_output")
               : say_with(Phrase::source_random, runtime::format("rand({}, {})", w.size(0), w.size(1)), options_.seed)),
      run_.output);
}

/// Shows AttentionResult's weights: as one number for each key (column sums), or as a matrix in which the weights that
/// are not returned are marked as such.
void Explainer::add_requested_weights() {
  const Tensor& values = run_.returned.weights;
  const Weights& returned = options_.weights;
  if (returned == Weights::column_sums)
    return add(step(Kind::table, "column_sums", Phrase::returned, "sum of a column", Phrase::note_column_sums,
                    {"sum_rows", {mixing()}}),
               values.unsqueeze(-1), true);
  if (returned != Weights::head_average) return add_some_weights();
  ExplainStep average = step(Kind::weights, "head_average", Phrase::returned, "mean over heads",
                             Phrase::note_head_average, {"mean_heads", {mixing()}});
  for (std::int64_t b = 0, pairs = values.size(1) * values.size(2); b < values.size(0) && !run_.hidden.empty(); ++b) {
    const auto first = run_.hidden.begin() + b * matrices_.heads() * pairs;
    average.hidden.insert(average.hidden.end(), first, first + pairs);
  }
  add(std::move(average), values);
}

void Explainer::add_some_weights() {
  const Tensor& values = run_.returned.weights;
  const Weights& returned = options_.weights;
  ExplainStep some = step(
      Kind::weights,
      returned == Weights::largest      ? "top_k"
      : returned == Weights::row_subset ? "rows"
                                        : "full",
      Phrase::returned, returned == Weights::largest ? runtime::format("the largest of a row: {}", returned.count) : "",
      Phrase::note_asked, {"select", {mixing()}});
  const Tensor shown = zeros_like(run_.mixing());
  some.hidden.assign(static_cast<std::size_t>(shown.numel()), Hidden::not_returned);
  const std::int64_t keys = shown.size(3), rows = shown.size(2), wanted = values.size(3),
                     groups = shown.size(0) * shown.size(1);
  const std::vector<double> weights = values.to_vector();
  const std::vector<std::int64_t> of_keys =
      run_.returned.weight_keys.defined() ? run_.returned.weight_keys.to_int_vector() : std::vector<std::int64_t>();
  const std::vector<std::int64_t> of_rows =
      returned == Weights::row_subset ? returned.indices.to_int_vector() : std::vector<std::int64_t>();
  const std::int64_t given = values.size(2);
  for (std::int64_t n = 0; n < groups * given * wanted; ++n) {
    const std::int64_t group = n / (given * wanted), r = n / wanted % given;
    // a negative row counts from the end
    const std::int64_t asked_row = of_rows.empty() ? r : of_rows[static_cast<std::size_t>(r)],
                       row = asked_row < 0 ? asked_row + rows : asked_row;
    const std::int64_t key = of_keys.empty() ? n % wanted : of_keys[static_cast<std::size_t>(n)];
    if (key < 0) continue;
    const std::int64_t at = (group * rows + row) * keys + key;
    shown.reshape({-1}).select(0, at).fill_(weights[static_cast<std::size_t>(n)]);
    some.hidden[static_cast<std::size_t>(at)] =
        run_.hidden.empty() ? Hidden::visible : run_.hidden[static_cast<std::size_t>(at)];
  }
  add(std::move(some), shown);
}

}  // namespace attn::explain_detail
