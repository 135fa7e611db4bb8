// src/explain/run_attention.cc: runs attention from ids to context and keeps every stage.
#include "explain/run_attention.h"
#include "explain/additions.h"
#include "explain/modifiers.h"
#include "explain/hidden.h"
#include "explain/positions.h"

#include <attn/attention.h>
#include <attn/ops.h>

#include "attention/call/check.h"

#include "runtime/format.h"

#include <limits>

namespace attn::explain_detail {
namespace {

constexpr std::int64_t kMostPairs = std::int64_t{1} << 22;

/// Multiplies x [B, T, dim] by each head's w [dim, d]; returns [B, H, T, d].
Tensor project(const Tensor& x, const Tensor& w) {
  std::vector<Tensor> heads;
  const Tensor rows = x.reshape({x.size(0) * x.size(1), x.size(2)});
  for (std::int64_t h = 0; h < w.size(0); ++h)
    heads.push_back(matmul(rows, w.select(0, h).contiguous()).reshape({x.size(0), x.size(1), w.size(2)}));
  return stack(heads, 1);
}

void embed(const TokenizedTexts& tokens, const Matrices& matrices, const ExplainOptions& options, Run& run) {
  if (tokens.ids() > matrices.embedding_rows)
    throw ValueError(runtime::format("explain: the text needs {} ids{}; the embedding has {} rows", tokens.ids(),
                                     tokens.pads() ? ", one of them for PAD" : "", matrices.embedding_rows));
  const bool learned = matrices.learned_query.defined();
  run.memory = embedding(tokens.to.ids, matrices.embedding);
  if (learned) run.x = matrices.learned_query.expand({tokens.to.batch(), 1, matrices.dim()}).contiguous();
  else run.x = options.to ? embedding(tokens.from.ids, matrices.embedding) : run.memory;
  if (options.positions != Positions::sinusoidal) return;
  run.places_memory = sines(run.memory.size(1), matrices.dim(), run.x.dtype());
  if (learned) return;  // it has no place in the text
  run.places_x = options.to ? sines(run.x.size(1), matrices.dim(), run.x.dtype()) : run.places_memory;
}

}  // namespace

AttentionOptions attention_options(const Run& run, const Matrices& matrices, const ExplainOptions& options) {
  AttentionOptions result;
  result.score = score_of(options.score, matrices);
  result.mask = options.mask;
  result.query_lengths = run.lengths.query_lengths;
  result.key_lengths = run.lengths.key_lengths;
  set_modifiers(options, matrices.heads(), run.q.dtype(), options.to.has_value(), result);
  return result;
}

namespace {

/// Computes the weights before and after dropout, the requested weights and the context.
void attend(const ExplainOptions& options, Run& run) {
  const auto call = [&](const Weights& weights, bool drops) {
    AttentionOptions asking = run.call;
    asking.weights = weights;
    if (!drops) asking.dropout_p = 0;
    return attention(run.q_used(), run.k_used(), run.v, asking);
  };
  const AttentionResult before = call(Weights::full, false);
  run.weights = before.weights;
  run.context = before.output;
  if (options.sink) run.sink = share_of_sink(*options.sink, before.logsumexp);
  if (options.weights.kind != Weights::none) run.returned = call(options.weights, true);
  if (options.dropout_p == 0) return;
  const AttentionResult after = call(Weights::full, true);
  run.dropped = after.weights;
  run.context = after.output;
}

/// Marks the pairs that the score itself hides, by -infinity.
void hide_by_score(Run& run) {
  const std::vector<double> values = run.last_scores().to_vector();
  for (std::size_t n = 0; n < values.size(); ++n) {
    if (values[n] != -std::numeric_limits<double>::infinity()) continue;
    if (run.hidden.empty()) run.hidden.assign(values.size(), Hidden::visible);
    if (run.hidden[n] == Hidden::visible) run.hidden[n] = Hidden::score;
  }
}

}  // namespace

Run run_attention(const TokenizedTexts& tokens, const Matrices& matrices, const ExplainOptions& options, bool batch,
                  const Additions* additions) {
  const Dims pairs{tokens.from.batch(), matrices.heads(), tokens.from.width(), tokens.to.width()};
  if (pairs.product() > kMostPairs)
    throw ValueError(
        runtime::format("explain: {} sentences, {} heads, {} by {} tokens are {} pairs; at most {} can be shown",
                        pairs[0], pairs[1], pairs[2], pairs[3], pairs.product(), kMostPairs));
  Run run;
  embed(tokens, matrices, options, run);
  const Tensor from = run.places_x.defined() ? run.x + run.places_x : run.x;
  const Tensor to = run.places_memory.defined() ? run.memory + run.places_memory : run.memory;
  run.q = project(from, matrices.w_query);
  run.k = project(to, matrices.w_key);
  run.v = project(to, matrices.w_value);
  if (options.positions == Positions::rotary) {
    run.q_rotated = rotated(run.q);
    run.k_rotated = rotated(run.k);
  }
  if (batch) {
    run.lengths.query_lengths = tensor<std::int64_t>(tokens.from.lengths);
    run.lengths.key_lengths = tensor<std::int64_t>(tokens.to.lengths);
  }
  run.call = attention_options(run, matrices, options);
  if (additions != nullptr) additions->set(run, run.call);
  check("explain", run.q_used(), run.k_used(), run.v, run.call);
  run.hidden = hidden_pairs(options.mask, pairs, run.lengths);
  AttentionOptions raw = run.call;
  if (options.score == Score::Kind::scaled_dot) {
    run.scaled = attention_scores(run.q_used(), run.k_used(), run.call);
    raw.score = Score::dot();
  }
  run.scores = attention_scores(run.q_used(), run.k_used(), raw);
  attend(options, run);
  run.joined = run.context.transpose(1, 2).reshape({pairs[0], pairs[2], matrices.heads() * matrices.dv()});
  if (matrices.w_output.defined()) run.output = project(run.joined, matrices.w_output.unsqueeze(0)).squeeze(1);
  run.stages = modifier_stages(options, run.call, run, additions);
  if (!options.score_mod.empty()) hide_by_score(run);
  if (additions != nullptr) additions->set_weights(run);
  return run;
}

std::vector<bool> same_alone(const Run& run, const TokenizedTexts& tokens, const Matrices& matrices,
                             const ExplainOptions& options, const Additions* additions) {
  std::vector<bool> same;
  for (std::int64_t b = 0; b < tokens.from.batch(); ++b) {
    const auto only = [b](const TokenTable& table) {
      const std::int64_t length = table.lengths[static_cast<std::size_t>(b)];
      return TokenTable{{}, {length}, table.ids.narrow(0, b, 1).narrow(1, 0, length).contiguous()};
    };
    TokenizedTexts sentence;
    sentence.from = only(tokens.from);
    sentence.to = only(tokens.to);
    sentence.vocabulary = tokens.vocabulary;
    const Run alone = run_attention(sentence, matrices, options, false, additions);
    const std::int64_t rows = sentence.from.width(), keys = sentence.to.width();
    same.push_back(
        same_bits(alone.context, run.context.narrow(0, b, 1).narrow(2, 0, rows).contiguous()) &&
        same_bits(alone.weights, run.weights.narrow(0, b, 1).narrow(2, 0, rows).narrow(3, 0, keys).contiguous()));
  }
  return same;
}

}  // namespace attn::explain_detail
