// src/explain/modifiers.cc: computes the scores after softcap, bias, score_mod and temperature, in the order of the
// kernels.
#include "explain/modifiers.h"
#include "explain/additions.h"
#include "explain/formula_words.h"

#include <attn/ops.h>

#include "attention/call/check.h"
#include "kernels/attention/mask/mask_program.h"
#include "tensor/build.h"

#include "runtime/format.h"

#include <bit>

namespace attn::explain_detail {
namespace {

/// Returns whether some row sees a key that comes after it.
bool sees_later_keys(const Run& run) {
  const std::int64_t rows = run.scores.size(-2), keys = run.scores.size(-1);
  for (std::int64_t pair = 0; pair < run.scores.numel(); ++pair)
    if (pair % keys > pair / keys % rows &&
        (run.hidden.empty() || run.hidden[static_cast<std::size_t>(pair)] == Hidden::visible))
      return true;
  return false;
}

constexpr std::int64_t buckets = 8, farthest = 16;  // for the relative bias: small, so that short texts use several

/// Returns the call's one bias term as [B, H, Tq, Tk]; 0 where a pair does not exist.
template <typename T>
Tensor bias_values(const Call& call) {
  const kernels::AttentionProblem& p = call.problem;
  const kernels::BiasTerm& term = p.bias[0];
  const auto* values = static_cast<const T*>(term.values);
  const Tensor result = zeros({p.batch, p.q_heads, p.q_rows, p.k_rows}, call.compute_dtype());
  T* at = result.data<T>();
  for (kernels::Task item; item.batch < p.batch; ++item.batch)
    for (std::int64_t h = 0; h < p.q_heads; ++h)
      for (std::int64_t i = 0; i < p.q_rows; ++i)
        for (std::int64_t j = 0; j < p.k_rows; ++j, ++at) {
          if (!kernels::exists(p, item, i, j)) continue;
          const std::int64_t distance =
              kernels::key_position(p, item, j) - kernels::row_position(p, item, i, term.bottom_right);
          *at = term.op == kernels::BiasOp::slope
                    ? values[h * term.value_stride] * static_cast<T>(term.times(distance))
                    : values[term.bucket(distance) * term.bucket_stride + h * term.value_stride];
        }
  return result;
}

/// Returns the formula of the ALiBi bias with the slopes of Bias::alibi_slopes.
std::string alibi_formula(std::int64_t heads, bool symmetric) {
  const char* const distance = symmetric ? "(-|key - query|)" : "(key - query)";
  const auto whole = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  if (whole == heads) return runtime::format("2^(-8 (h + 1) / heads) {}", distance);
  return runtime::format("slope {0}, slope = 2^(-8 (h + 1) / {1}) for h < {1}, else 2^(-8 (2 h - {2}) / {3})", distance,
                         whole, 2 * whole - 1, 2 * whole);
}

}  // namespace

void set_modifiers(const ExplainOptions& options, std::int64_t heads, Dtype dtype, bool cross, AttentionOptions& call) {
  const Align align = cross ? Align::top_left : Align::unset;
  call.softcap = options.softcap;
  call.temperature = options.temperature;
  call.score_mod = options.score_mod.empty() || !cross ? options.score_mod : options.score_mod.aligned(align);
  call.dropout_p = options.dropout_p;
  call.dropout_seed = options.seed;
  if (options.bias == ExplainBias::alibi || options.bias == ExplainBias::alibi_symmetric)
    call.bias = Bias::alibi(Bias::alibi_slopes(heads).to(dtype), align, options.bias == ExplainBias::alibi_symmetric);
  if (options.bias == ExplainBias::relative) {
    Generator generator(options.seed);
    call.bias = Bias::relative(rand({buckets, heads}, generator).to(dtype), true, farthest, align);
  }
  if (options.sink) {
    check_fits("explain: sink", *options.sink, dtype);
    call.sinks = full({heads}, *options.sink, dtype);
  }
}

std::vector<Stage> modifier_stages(const ExplainOptions& options, const AttentionOptions& call, const Run& run,
                                   const Additions* additions) {
  std::vector<Stage> stages;
  Tensor s = run.scaled.defined() ? run.scaled : run.scores;
  std::string before = run.scaled.defined() ? "scaled" : "scores";
  const auto words = [&](Phrase phrase) { return say(options.language, phrase); };
  const auto add = [&](const char* name, Phrase title, Phrase note, std::string formula, std::string short_form,
                       ExplainStep::Operation operation, const Tensor& values) {
    stages.push_back(
        {name, words(title), words(note), std::move(formula), std::move(short_form), std::move(operation), values});
    s = values;
    before = name;
  };
  if (call.softcap != 0)
    add("capped", Phrase::capped, Phrase::note_capped, runtime::format("{0} tanh({1} / {0})", call.softcap, before),
        "cap", {"softcap", {before}, call.softcap}, mul(tanh(div(s, call.softcap)), call.softcap));
  if (options.bias != ExplainBias::none) {
    const Call checked = check("explain", run.q_used(), run.k_used(), run.v, call);
    const Tensor bias = s.dtype() == Dtype::f64 ? bias_values<double>(checked) : bias_values<float>(checked);
    const bool alibi = options.bias != ExplainBias::relative, symmetric = options.bias == ExplainBias::alibi_symmetric;
    const Phrase note = !alibi                 ? Phrase::note_relative
                        : symmetric            ? Phrase::note_alibi_symmetric
                        : sees_later_keys(run) ? Phrase::note_alibi_ahead
                                               : Phrase::note_alibi;
    stages.push_back({"bias",
                      words(Phrase::bias),
                      words(note),
                      alibi ? alibi_formula(checked.problem.q_heads, symmetric) : "table[bucket(key - query), h]",
                      "",
                      {alibi ? "alibi" : "relative", {}},
                      bias});
    add("biased", Phrase::biased, Phrase::note_biased, before + " + bias", "+ bias", {"add", {before, "bias"}},
        s + bias);
  }
  if (additions != nullptr && additions->add_scores(run, before, stages)) {
    s = stages.back().values;
    before = stages.back().name;
  }
  if (!call.score_mod.empty())
    add("modified", Phrase::modified, Phrase::note_modified,
        runtime::format("{}, s = {}", options.score_mod.to_string(), in_words(options.language, before)), "mod",
        {"score_mod", {before}}, call.score_mod.apply(s, run.lengths));
  if (call.temperature != 1)
    add("tempered", Phrase::tempered, Phrase::note_tempered, runtime::format("{} / {}", before, call.temperature),
        runtime::format("/ {}", call.temperature), {"divide", {before}, call.temperature}, div(s, call.temperature));
  return stages;
}

Tensor share_of_sink(double sink, const Tensor& logsumexp) {
  const Tensor share = exp(sub(full(logsumexp.sizes(), sink, logsumexp.dtype()), logsumexp));
  return masked_fill(share, isinf(logsumexp), 0).unsqueeze(-1);
}

}  // namespace attn::explain_detail
