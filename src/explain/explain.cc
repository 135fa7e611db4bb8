// src/explain/explain.cc: turns a run of attention into explained steps.
#include <attn/explain.h>

#include "explain/backward.h"
#include "explain/equivalences.h"
#include "explain/hidden.h"
#include "explain/numbers.h"
#include "explain/options.h"
#include "explain/run_attention.h"
#include "explain/utf8.h"
#include "explain/words.h"
#include "explain/worked_row.h"

#include <attn/ops.h>

#include "runtime/format.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attn {
namespace explain_detail {
namespace {

using Kind = ExplainStep::Kind;

/// Returns the query row to work out, counted from 0.
std::optional<std::int64_t> row_of(std::optional<std::int64_t> query, std::int64_t rows) {
  if (!query) return query;
  if (*query < -rows || *query >= rows)
    throw ValueError(runtime::format(
        "explain: query {} is not there; the tokens are 0 to {}, or -{} to -1 from the end", *query, rows - 1, rows));
  return *query < 0 ? *query + rows : *query;
}

class Teller {
 public:
  Teller(const std::vector<std::string>& texts, const ExplainOptions& options, bool batch)
      : options_(options), tokens_(tokenize(texts, options)), matrices_(make_matrices(options, tokens_.ids())),
        batch_(batch) {
    result_.query = row_of(options.query, tokens_.from.width());
    run_ = run_attention(tokens_, matrices_, options, batch_);
    result_.texts = texts;
    result_.to = options.to;
    result_.batch = batch_;
    result_.language = options.language;
    result_.mask = options.mask.is_all() ? "" : options.mask.to_string();
    ExplainOptions told = options;
    told.query = result_.query;
    result_.options = options_json(told);
  }

  Explanation tell() {
    tell_tokens();
    tell_embedding();
    tell_projections();
    tell_scores();
    tell_weights_and_context();
    if (result_.query) tell_worked_row(*result_.query);
    if (options_.gradients) tell_way_back();
    if (options_.packed)
      add_checks("packed", Phrase::packed, Phrase::note_packed,
                 runtime::format("cu_seqlens {}", packed_starts(tokens_.to.lengths)), same_packed(run_, tokens_));
    if (options_.cache) tell_cache(*options_.cache);
    if (batch_ && !holds_tensors(options_.mask) && options_.dropout_p == 0)
      add_checks("alone", Phrase::alone, Phrase::note_alone, "", same_alone(run_, tokens_, matrices_, options_));
    return std::move(result_);
  }

 private:
  std::string say(Phrase phrase) const { return std::string(explain_detail::say(options_.language, phrase)); }
  template <typename... T>
  std::string say_with(Phrase phrase, const T&... values) const {
    return runtime::format(fmt::runtime(explain_detail::say(options_.language, phrase)), values...);
  }
  static std::string numbers_of(const Dims& sizes) { return runtime::format("{}", runtime::join(sizes, ", ")); }

  ExplainStep step(Kind kind, const char* name, Phrase title, std::string formula, Phrase note,
                   ExplainStep::Operation operation, std::string source = "") const {
    ExplainStep result;
    result.kind = kind;
    result.name = name;
    result.title = say(title);
    result.formula = std::move(formula);
    result.note = say(note);
    result.operation = std::move(operation);
    result.source = std::move(source);
    return result;
  }

  /// Sets a step's values, [B, rows, columns] or [B, H, rows, columns]; the batch dim of one text and the dim of one
  /// head are left out.
  void fill(ExplainStep& step, const Tensor& values) const {
    step.batch = values.size(0);
    step.heads = values.dim() == 4 ? values.size(1) : 1;
    if (batch_) step.shape.push_back(step.batch);
    if (step.heads > 1) step.shape.push_back(step.heads);
    step.shape.push_back(values.size(-2));
    step.shape.push_back(values.size(-1));
    step.values = values.contiguous().reshape(step.shape);
  }
  void add(ExplainStep step, const Tensor& values, bool key_rows = false) {
    fill(step, values);
    step.key_rows = key_rows;
    step.rows = (key_rows ? tokens_.to : tokens_.from).tokens;
    if (step.kind == Kind::pairs || step.kind == Kind::weights) step.columns = tokens_.to.tokens;
    result_.steps.push_back(std::move(step));
  }

  void add_tokens(const TokenTable& table, const char* name, Phrase title, Phrase note, const std::string& source) {
    ExplainStep words = step(Kind::words, name, title, "", note, {"split", {}}, source);
    if (batch_) words.shape.push_back(table.batch());
    words.shape.push_back(table.width());
    words.batch = table.batch();
    words.rows = table.tokens;
    words.places = table.places;
    result_.steps.push_back(std::move(words));
  }
  void add_ids(const TokenTable& table, const char* name, Phrase title, Phrase note) {
    ExplainStep ids = step(Kind::ids, name, title, "", note, {"index", {result_.steps.back().name}});
    ids.shape = result_.steps.back().shape;
    ids.batch = table.batch();
    ids.rows = table.tokens;
    ids.values = table.ids.reshape(ids.shape);
    result_.steps.push_back(std::move(ids));
  }

  void tell_tokens() {
    std::string source;
    if (options_.tokens == text::Tokens::characters) source = say(Phrase::source_characters);
    if (options_.tokens == text::Tokens::words)
      source = say(options_.cut_words ? Phrase::source_cut_words : Phrase::source_words);
    if (options_.tokens == text::Tokens::automatic) source = say(Phrase::source_automatic);
    const auto without = [this](const TokenTable& table) {
      return table.commas.empty()
                 ? ""
                 : say_with(Phrase::source_left_out, runtime::format("{}", runtime::join(table.commas, " ")));
    };
    if (const std::string commas = without(tokens_.from); !commas.empty()) source += say(Phrase::source_and) + commas;
    const bool pads =
        *std::min_element(tokens_.from.lengths.begin(), tokens_.from.lengths.end()) < tokens_.from.width();
    add_tokens(tokens_.from, "tokens", Phrase::tokens, pads ? Phrase::note_tokens_batch : Phrase::note_tokens, source);
    add_ids(tokens_.from, "ids", Phrase::ids, pads ? Phrase::note_ids_pad : Phrase::note_ids);
    if (!options_.to) return;
    add_tokens(tokens_.to, "tokens_to", Phrase::tokens_to, Phrase::note_tokens_to, without(tokens_.to));
    add_ids(tokens_.to, "ids_to", Phrase::ids_to, Phrase::note_ids);
  }

  void tell_embedding() {
    const std::string source = matrices_.own_embedding ? say_with(Phrase::source_own, "embedding")
                                                       : say_with(Phrase::source_embedding, matrices_.embedding_rows,
                                                                  matrices_.dim(), options_.seed);
    add(step(Kind::table, "x", Phrase::embedding, "embedding[id]", Phrase::note_embedding, {"look_up", {"ids"}},
             source),
        run_.x);
    if (options_.to)
      add(step(Kind::table, "y", Phrase::embedding_to, "embedding[id]", Phrase::note_embedding, {"look_up", {"ids_to"}},
               source),
          run_.memory, true);
    if (options_.positions != Positions::sinusoidal) return;
    const bool longer_to = run_.memory.size(1) > run_.x.size(1);
    const Tensor& places = longer_to ? run_.places_memory : run_.places_x;
    ExplainStep positions = step(Kind::table, "positions", Phrase::positions, "sin, cos", Phrase::note_positions,
                                 {"sines", {}}, say_with(Phrase::source_sines, matrices_.dim()));
    positions.key_rows = longer_to;
    positions.shape = places.sizes();
    positions.values = places;
    std::vector<std::string> rows;
    for (std::int64_t row = 0; row < places.size(0); ++row) rows.push_back(std::to_string(row));
    positions.rows = {rows};
    result_.steps.push_back(std::move(positions));
    add(step(Kind::table, "x_positions", Phrase::with_positions, "x + p", Phrase::note_with_positions,
             {"add", {"x", "positions"}}),
        run_.x + run_.places_x);
    if (options_.to)
      add(step(Kind::table, "y_positions", Phrase::with_positions_to, "y + p", Phrase::note_with_positions,
               {"add", {"y", "positions"}}),
          run_.memory + run_.places_memory, true);
  }

  void tell_projections() {
    const bool places = options_.positions == Positions::sinusoidal;
    const std::string x = places ? "(x + p)" : "x", y = !options_.to ? x : places ? "(y + p)" : "y";
    const auto source = [&](const char* name, const Tensor& w) {
      return matrices_.own_projections
                 ? say_with(Phrase::source_own, name)
                 : say_with(Phrase::source_random, numbers_of({w.size(1), w.size(2)}), options_.seed);
    };
    const char *from = places ? "x_positions" : "x", *to = !options_.to ? from : places ? "y_positions" : "y";
    add(step(Kind::table, "q", Phrase::query, x + " W_q", Phrase::note_query, {"project", {from, "w_query"}},
             source("w_query", matrices_.w_query)),
        run_.q);
    add(step(Kind::table, "k", Phrase::key, y + " W_k", Phrase::note_key, {"project", {to, "w_key"}},
             source("w_key", matrices_.w_key)),
        run_.k, true);
    add(step(Kind::table, "v", Phrase::value, y + " W_v", Phrase::note_value, {"project", {to, "w_value"}},
             source("w_value", matrices_.w_value)),
        run_.v, true);
    add_parameter("w_query", "W_q", matrices_.w_query, true);
    add_parameter("w_key", "W_k", matrices_.w_key, true);
    add_parameter("w_value", "W_v", matrices_.w_value, true);
    if (options_.score == Score::Kind::general) add_parameter("score_w", "W", matrices_.score_w, false);
    if (options_.score == Score::Kind::additive) {
      add_parameter("score_w_query", "S_q", matrices_.score_q, false);
      add_parameter("score_w_key", "S_k", matrices_.score_k, false);
      add_parameter("score_w", "w", matrices_.score_w.reshape({1, matrices_.score_w.numel()}), false);
    }
    if (!run_.q_rotated.defined()) return;
    const std::string formula = runtime::format("turn place / 10000^(2i / {})", matrices_.dk());
    add(step(Kind::table, "q_turned", Phrase::query_turned, formula, Phrase::note_turned, {"rotate", {"q"}}),
        run_.q_rotated);
    add(step(Kind::table, "k_turned", Phrase::key_turned, formula, Phrase::note_turned, {"rotate", {"k"}}),
        run_.k_rotated, true);
  }

  void add_parameter(const char* name, const char* title, const Tensor& values, bool by_head) {
    ExplainStep parameter;
    parameter.name = name;
    parameter.title = title;
    parameter.heads = by_head ? values.size(0) : 1;
    parameter.values = by_head && parameter.heads == 1 ? values.reshape({values.size(1), values.size(2)}) : values;
    parameter.shape = parameter.values.sizes();
    result_.parameters.push_back(std::move(parameter));
  }

  const char* q_used() const { return run_.q_rotated.defined() ? "q_turned" : "q"; }
  const char* k_used() const { return run_.k_rotated.defined() ? "k_turned" : "k"; }

  void tell_scores() {
    const bool rotated = run_.q_rotated.defined();
    std::string formula = rotated ? "turned q · turned k" : "q · k";
    ExplainStep::Operation operation{"dot", {q_used(), k_used()}};
    if (options_.score == Score::Kind::general) {
      formula = "qᵀ W k";
      operation = {"bilinear", {q_used(), k_used(), "score_w"}};
    }
    if (options_.score == Score::Kind::additive) {
      formula = "w · tanh(S_q q + S_k k)";
      operation = {"additive", {q_used(), k_used(), "score_w_query", "score_w_key", "score_w"}};
    }
    std::string source;
    if (options_.score == Score::Kind::general) source = say_with(Phrase::source_drawn, "W", options_.seed);
    if (options_.score == Score::Kind::additive) source = say_with(Phrase::source_drawn, "S_q, S_k, w", options_.seed);
    add(step(Kind::pairs, "scores", Phrase::scores, formula, Phrase::note_scores, std::move(operation), source),
        run_.scores);
    if (run_.scaled.defined())
      add(step(Kind::pairs, "scaled", Phrase::scaled, runtime::format("scores / √{}", matrices_.dk()),
               Phrase::note_scaled, {"divide", {"scores"}, std::sqrt(static_cast<double>(matrices_.dk()))}),
          run_.scaled);
    for (const Stage& stage : run_.stages)
      add(step(Kind::pairs, stage.name, stage.title, stage.formula, stage.note, stage.operation), stage.values);
    if (run_.hidden.empty()) return;
    std::vector<double> values = run_.last_scores().to_vector();
    for (std::size_t i = 0; i < values.size(); ++i)
      if (run_.hidden[i] != Hidden::visible) values[i] = -std::numeric_limits<double>::infinity();
    ExplainStep mask = step(Kind::pairs, "mask", Phrase::mask,
                            result_.mask.empty() ? "lengths"
                            : batch_             ? result_.mask + " & lengths"
                                                 : result_.mask,
                            Phrase::note_mask, {"mask", {result_.steps.back().name}});
    mask.hidden = run_.hidden;
    add(std::move(mask), tensor<double>(values, run_.scores.sizes()).to(run_.scores.dtype()));
  }

  bool a_row_sees_nothing() const {
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

  /// Returns the name of the weights that the values are mixed with.
  const char* mixing() const { return run_.dropped.defined() ? "dropped" : "weights"; }

  void tell_weights_and_context() {
    const std::string before = result_.steps.back().name;
    const std::string scores = before == "mask" ? "masked" : before;
    ExplainStep weights = step(Kind::weights, "weights", Phrase::weights,
                               options_.sink ? runtime::format("softmax({}, sink {})", scores, *options_.sink)
                                             : runtime::format("softmax({})", scores),
                               options_.sink          ? Phrase::note_weights_sink
                               : a_row_sees_nothing() ? Phrase::note_weights_empty
                                                      : Phrase::note_weights,
                               {"softmax", {before}, options_.sink});
    weights.hidden = run_.hidden;
    add(std::move(weights), run_.weights);
    if (run_.sink.defined())
      add(step(Kind::table, "sink", Phrase::sink, "e^(sink − logsumexp)", Phrase::note_sink,
               {"sink_weight", {before}, options_.sink}),
          run_.sink);
    if (run_.dropped.defined()) {
      ExplainStep dropped =
          step(Kind::weights, "dropped", Phrase::dropped, runtime::format("weights / (1 − {})", options_.dropout_p),
               Phrase::note_dropped, {"dropout", {"weights"}, options_.dropout_p},
               runtime::format("Philox, seed {}", options_.seed));
      dropped.hidden = run_.hidden;
      add(std::move(dropped), run_.dropped);
    }
    if (run_.asked.weights.defined()) tell_asked();
    const bool pads =
        *std::min_element(tokens_.from.lengths.begin(), tokens_.from.lengths.end()) < tokens_.from.width();
    add(step(Kind::table, "context", Phrase::context, run_.dropped.defined() ? "dropped · v" : "weights · v",
             pads ? Phrase::note_context_pad : Phrase::note_context, {"matmul", {mixing(), "v"}}),
        run_.context);
    if (matrices_.heads() == 1) return;
    const Tensor joined =
        run_.context.permute({0, 2, 1, 3})
            .reshape({run_.context.size(0), run_.context.size(2), matrices_.heads() * matrices_.dv()});
    add(step(Kind::table, "joined", Phrase::joined,
             runtime::format("{} × {} → {}", matrices_.heads(), matrices_.dv(), joined.size(2)), Phrase::note_joined,
             {"join_heads", {"context"}}),
        joined);
  }

  std::string facts(const WorkedRow& hand) const {
    std::vector<std::string> maxima, totals;
    for (std::size_t i = 0; i < hand.maximum.size() && i < 8; ++i) {
      maxima.push_back(hand.sees[i] ? format_number(hand.maximum[i], 4) : "–");
      totals.push_back(hand.sees[i] ? format_number(hand.total[i], 4) : "–");
    }
    return say_with(Phrase::maximum, runtime::format("{}", runtime::join(maxima, " | "))) + "  " +
           say_with(Phrase::total, runtime::format("{}", runtime::join(totals, " | ")));
  }

  void tell_worked_row(std::int64_t query) {
    const WorkedRow hand = worked_row(run_, matrices_, options_.score, query);
    // in a batch the texts differ, so only the row number is shown
    const std::string of =
        batch_ ? say_with(Phrase::row_number, query)
               : say_with(Phrase::row_of, query, cut(tokens_.from.tokens[0][static_cast<std::size_t>(query)], 16));
    ExplainStep stages = step(Kind::keys, "query_scores", Phrase::row_scores, of, Phrase::note_row_scores,
                              {"row_of", {"scores", "weights"}}, facts(hand));
    stages.maximum = hand.maximum;
    stages.total = hand.total;
    stages.hidden = hand.stages_hidden;
    stages.columns = {hand.stage_names};
    add(std::move(stages), hand.stages, true);
    ExplainStep values = step(Kind::keys, "query_values", Phrase::row_values, of, Phrase::note_row_values,
                              {"row_of", {mixing(), "v", "context"}});
    values.hidden = hand.mixing_hidden;
    values.columns = {hand.mixing_names};
    add(std::move(values), hand.mixing, true);
    for (auto& rows : result_.steps.back().rows) rows.push_back(say(Phrase::sum_row));
  }

  void tell_way_back() {
    const WayBack back = way_back(
        {run_.q_used(), run_.k_used(), run_.v, run_.weights, run_.context, run_.call, run_.q_rotated.defined(), &run_});
    for (const BackwardStep& gradient : back.steps) {
      ExplainStep told =
          step(gradient.kind, gradient.name, gradient.title, gradient.formula, gradient.note, gradient.operation);
      if (gradient.title == Phrase::d_context) told.source = say_with(Phrase::loss, format_number(back.loss, 4));
      if (gradient.kind == Kind::pairs) told.hidden = run_.hidden;
      add(std::move(told), gradient.values, gradient.key_rows);
    }
  }

  /// Shows AttentionResult's weights: as a matrix in which the weights not returned are blank, or as one number for
  /// each key.
  void tell_asked() {
    const Tensor& values = run_.asked.weights;
    const Weights& asked = options_.weights;
    if (asked == Weights::column_sums)
      return add(step(Kind::table, "column_sums", Phrase::asked, "sum of a column", Phrase::note_column_sums,
                      {"sum_rows", {mixing()}}),
                 values.unsqueeze(-1), true);
    if (asked == Weights::head_average) {
      ExplainStep average =
          step(Kind::weights, "head_average", Phrase::asked, runtime::format("mean of {} heads", matrices_.heads()),
               Phrase::note_head_average, {"mean_heads", {mixing()}});
      for (std::int64_t b = 0, pairs = values.size(1) * values.size(2); b < values.size(0) && !run_.hidden.empty();
           ++b) {
        const auto first = run_.hidden.begin() + b * matrices_.heads() * pairs;
        average.hidden.insert(average.hidden.end(), first, first + pairs);
      }
      return add(std::move(average), values);
    }
    ExplainStep some =
        step(Kind::weights,
             asked == Weights::largest      ? "top_k"
             : asked == Weights::row_subset ? "rows"
                                            : "full",
             Phrase::asked, asked == Weights::largest ? runtime::format("the {} largest", asked.count) : "",
             Phrase::note_asked, {"select", {mixing()}});
    const Tensor shown = zeros_like(run_.mixing());
    some.hidden.assign(static_cast<std::size_t>(shown.numel()), Hidden::not_asked);
    const std::int64_t keys = shown.size(3), rows = shown.size(2), wanted = values.size(3),
                       groups = shown.size(0) * shown.size(1);
    const std::vector<double> weights = values.to_vector();
    const std::vector<std::int64_t> of_keys =
        run_.asked.weight_keys.defined() ? run_.asked.weight_keys.to_int_vector() : std::vector<std::int64_t>();
    const std::vector<std::int64_t> of_rows =
        asked == Weights::row_subset ? asked.indices.to_int_vector() : std::vector<std::int64_t>();
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

  void tell_cache(KvStorage storage) {
    const FromCache cached = from_cache(run_, tokens_, storage);
    if (storage == KvStorage::int8) {
      const std::string formula = "round(127 x / max |x|) max |x| / 127";
      add(step(Kind::table, "k_int8", Phrase::key_int8, formula, Phrase::note_int8, {"int8", {k_used()}}), cached.k,
          true);
      add(step(Kind::table, "v_int8", Phrase::value_int8, formula, Phrase::note_int8, {"int8", {"v"}}), cached.v, true);
      add(step(Kind::table, "context_int8", Phrase::context_int8, "attention(q, k int8, v int8)",
               Phrase::note_context_int8, {"attention", {q_used(), "k_int8", "v_int8"}}),
          cached.context);
    } else {
      add_checks("cached", Phrase::cached, Phrase::note_cached, "pages of 16 rows", cached.same);
    }
  }

  /// Adds one line for each sentence: are all bits the same?
  void add_checks(const char* name, Phrase title, Phrase note, const std::string& formula,
                  const std::vector<bool>& same) {
    ExplainStep checks = step(Kind::checks, name, title, formula, note, {"same_bits", {"context"}});
    checks.shape = Dims{static_cast<std::int64_t>(same.size())};
    checks.values = tensor<std::int64_t>(std::vector<std::int64_t>(same.begin(), same.end()));
    std::vector<std::string> rows;
    for (const std::string& text : result_.texts) rows.push_back(printable(text));
    checks.rows = {rows};
    result_.steps.push_back(std::move(checks));
  }

  const ExplainOptions& options_;
  const TokenizedTexts tokens_;
  const Matrices matrices_;
  const bool batch_;
  Run run_;
  Explanation result_;
};

}  // namespace
}  // namespace explain_detail

Explanation explain(const std::string& text, const ExplainOptions& options) {
  return explain_detail::Teller({text}, options, false).tell();
}

Explanation explain_batch(const std::vector<std::string>& texts, const ExplainOptions& options) {
  return explain_detail::Teller(texts, options, true).tell();
}

}  // namespace attn
