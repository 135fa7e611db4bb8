// src/explain/explainer.h: builds the steps of one explanation; its parts are in explain.cc, text_steps.cc,
// score_steps.cc, context_steps.cc and more_steps.cc.
#pragma once
#include "explain/numbers.h"
#include "explain/run.h"
#include "explain/worked_row.h"

#include "runtime/format.h"

namespace attn::explain_detail {

class Additions;

class Explainer {
 public:
  /// `additions`: what the call has beside the options; null: nothing.
  Explainer(const std::vector<std::string>& texts, const ExplainOptions& options, bool batch,
            const Additions* additions = nullptr);

  /// Computes all steps, in order, and moves them into the result: call it once.
  Explanation explain();

 private:
  using Kind = ExplainStep::Kind;

  std::string say(Phrase phrase) const { return std::string(explain_detail::say(options_.language, phrase)); }
  template <typename... T>
  std::string say_with(Phrase phrase, const T&... values) const {
    return runtime::format(fmt::runtime(explain_detail::say(options_.language, phrase)), values...);
  }

  // explain.cc
  ExplainStep step(Kind kind, const char* name, Phrase title, std::string formula, Phrase note,
                   ExplainStep::Operation operation, std::string source = "") const;
  void fill(ExplainStep& step, const Tensor& values) const;
  void add(ExplainStep step, const Tensor& values, bool key_rows = false);
  void add(const Stage& stage);

  // text_steps.cc
  void add_tokens(const TokenTable& table, const char* name, Phrase title, Phrase note, const std::string& source);
  void add_ids(const TokenTable& table, const char* name, Phrase title, Phrase note);
  void add_texts();
  void add_embedding();
  void add_positions();

  // score_steps.cc
  void add_projections();
  void add_parameter(const char* name, const char* title, const Tensor& values, bool by_head);
  void add_score_parameters();
  void add_scores();
  void add_mask();

  // context_steps.cc
  bool a_row_sees_nothing() const;
  void add_weights();
  void add_softmax(const std::string& before, const std::string& scores);
  void add_context();
  void add_requested_weights();
  void add_some_weights();

  // more_steps.cc
  std::string facts(const WorkedRow& row) const;
  void add_worked_row(std::int64_t query);
  void add_backward();
  void add_cache(KvStorage storage);
  void add_checks(const char* name, Phrase title, Phrase note, const std::string& formula,
                  const std::vector<bool>& same);

  bool learned() const { return matrices_.learned_query.defined(); }
  /// Returns the tokens of the texts (not those of options.to); with a learned query they are the keys.
  const TokenTable& text() const { return learned() ? tokens_.to : tokens_.from; }
  bool sinusoidal() const { return options_.positions == Positions::sinusoidal; }
  const char* q_used() const { return run_.q_rotated.defined() ? "q_rotated" : "q"; }
  const char* k_used() const { return run_.k_rotated.defined() ? "k_rotated" : "k"; }
  /// Returns the name of the weights that the values are mixed with.
  const char* mixing() const {
    return run_.dropped.defined() ? "dropped" : run_.modified.defined() ? "weights_modified" : "weights";
  }

  const ExplainOptions& options_;
  const TokenizedTexts tokens_;
  const Matrices matrices_;
  const bool batch_;
  const Additions* const additions_;
  Run run_;
  Explanation result_;
};

}  // namespace attn::explain_detail
