// src/explain/worked_row.cc: works out one query row: products, sum, minus the maximum, exp, divided by the total,
// weighted values.
#include "explain/worked_row.h"
#include "explain/numbers.h"

#include <attn/ops.h>

#include "runtime/format.h"

#include <cmath>
#include <limits>

namespace attn::explain_detail {
namespace {

/// Reads a tensor [B, H, rows, columns] as double; with H = 1 the same for all heads.
struct Numbers {
  explicit Numbers(const Tensor& x) : values(x.to_vector()), heads(x.size(1)), rows(x.size(2)), columns(x.size(3)) {}
  double at(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(((b * heads + (heads == 1 ? 0 : h)) * rows + row) * columns + column)];
  }
  std::vector<double> values;
  std::int64_t heads, rows, columns;
};

/// Holds the factors of each product: s = sum_d left_d * right_d.
struct Factors {
  Tensor left, right;  // [B, H, 1, n], [B, H, Tk, n]
  bool additive = false;
};

Factors factors_of(const Run& run, const Matrices& matrices, Score::Kind score, std::int64_t query) {
  const Tensor q = run.q_used().narrow(2, query, 1).contiguous();
  if (score == Score::Kind::general) return {matmul(q, matrices.score_w), run.k_used()};
  if (score != Score::Kind::additive) return {q, run.k_used()};
  const Tensor meeting =
      tanh(matmul(q, matrices.score_q.t().contiguous()) + matmul(run.k_used(), matrices.score_k.t().contiguous()));
  return {matrices.score_w.reshape({1, 1, 1, matrices.score_w.numel()})
              .expand({q.size(0), q.size(1), 1, matrices.score_w.numel()})
              .contiguous(),
          meeting, true};
}

/// Returns e^x with the library's arithmetic: the C library's last bit differs between systems.
std::vector<double> exponentials(const std::vector<double>& x) {
  return exp(tensor<double>(x, {static_cast<std::int64_t>(x.size())})).to_vector();
}

std::vector<std::string> names_of_products(const Factors& factors, Score::Kind score) {
  std::vector<std::string> names;
  const bool one = factors.left.size(0) * factors.left.size(1) == 1;
  const std::vector<double> left = factors.left.to_vector();
  for (std::int64_t d = 0; d < factors.left.size(3); ++d) {
    const std::string of = factors.additive ? runtime::format("t{}", d) : runtime::format("k{}", d);
    const char* symbol = factors.additive ? "w" : score == Score::Kind::general ? "qW" : "q";
    names.push_back((one ? format_number(left[static_cast<std::size_t>(d)], 4) : runtime::format("{}{}", symbol, d)) +
                    "·" + of);
  }
  return names;
}

}  // namespace

WorkedRow worked_row(const Run& run, const Matrices& matrices, Score::Kind score, std::int64_t query) {
  const Factors factors = factors_of(run, matrices, score, query);
  const Numbers left(factors.left), right(factors.right), raw(run.scores), last(run.last_scores()), weight(run.weights),
      mixed(run.mixing()), value(run.v), context(run.context);
  const std::int64_t batch = run.q.size(0), heads = run.q.size(1), queries = run.q.size(2), keys = run.k.size(2),
                     products = left.columns, dv = value.columns;
  const bool scaled = run.scaled.defined();
  const std::optional<Numbers> scores_scaled = scaled ? std::optional<Numbers>(run.scaled) : std::nullopt;
  const auto hidden = [&](std::int64_t b, std::int64_t h, std::int64_t key) {
    return run.hidden.empty() ? Hidden::visible
                              : run.hidden[static_cast<std::size_t>(((b * heads + h) * queries + query) * keys + key)];
  };

  WorkedRow result;
  result.stage_names = names_of_products(factors, score);
  result.stage_names.push_back("sum");
  if (scaled) result.stage_names.push_back(runtime::format("/ √{}", run.q.size(3)));
  std::vector<Numbers> modifiers;  // the score after each option
  for (const Stage& stage : run.stages) {
    if (stage.column.empty()) continue;
    modifiers.emplace_back(stage.values);
    result.stage_names.push_back(stage.column);
  }
  const bool softmax = run.ends.empty();
  std::vector<Numbers> ends;  // in the place of softmax's three columns
  for (const WorkedColumn& end : run.ends) {
    ends.emplace_back(end.values);
    result.stage_names.push_back(end.title);
  }
  for (const char* name : {"− max", "e^", "/ total"})
    if (softmax) result.stage_names.push_back(name);
  if (run.modified.defined()) {
    ends.emplace_back(run.modified);
    result.stage_names.push_back("weight_mod");
  }
  result.mixing_names.push_back("weight");
  for (std::int64_t d = 0; d < dv; ++d) result.mixing_names.push_back(runtime::format("· v{}", d));

  std::vector<double> stages, mixing;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < heads; ++h) {
      double maximum = -std::numeric_limits<double>::infinity(), total = 0, weights = 0;
      for (std::int64_t key = 0; key < keys; ++key)
        if (hidden(b, h, key) == Hidden::visible) maximum = std::max(maximum, last.at(b, h, query, key));
      const bool sees_any = maximum > -std::numeric_limits<double>::infinity();
      const bool one = run.call.normalizer.kind == Normalizer::Kind::softmax1;  // softmax with a sink of 0
      if ((run.call.sinks.defined() || one) && sees_any) {
        const double sink = one ? 0 : run.call.sinks.select(0, h).item();
        maximum = std::max(maximum, sink);
        total = exponentials({sink - maximum})[0];
      }
      std::vector<double> shifted;
      for (std::int64_t key = 0; key < keys; ++key) shifted.push_back(last.at(b, h, query, key) - maximum);
      const std::vector<double> powers = exponentials(shifted);
      Hidden empty_row = Hidden::visible;
      for (std::int64_t key = 0; key < keys; ++key) {
        const Hidden reason = hidden(b, h, key);
        const auto at = static_cast<std::size_t>(key);
        const double w = weight.at(b, h, query, key), m = mixed.at(b, h, query, key);
        if (reason == Hidden::visible) total += powers[at], weights += m;
        for (std::int64_t d = 0; d < products; ++d) stages.push_back(left.at(b, h, 0, d) * right.at(b, h, key, d));
        stages.push_back(raw.at(b, h, query, key));
        if (scaled) stages.push_back(scores_scaled->at(b, h, query, key));
        for (const Numbers& stage : modifiers) stages.push_back(stage.at(b, h, query, key));
        if (softmax) stages.insert(stages.end(), {shifted[at], powers[at], w});
        for (const Numbers& stage : ends) stages.push_back(stage.at(b, h, query, key));
        mixing.push_back(m);
        for (std::int64_t d = 0; d < dv; ++d) mixing.push_back(m * value.at(b, h, key, d));
        result.stages_hidden.insert(result.stages_hidden.end(), result.stage_names.size(), reason);
        result.mixing_hidden.insert(result.mixing_hidden.end(), result.mixing_names.size(), reason);
        if (reason != Hidden::visible) empty_row = reason;
      }
      mixing.push_back(weights);
      for (std::int64_t d = 0; d < dv; ++d) mixing.push_back(context.at(b, h, query, d));
      const bool sees = softmax ? total > 0 || std::isnan(maximum) || std::isnan(total) : sees_any;
      result.mixing_hidden.insert(result.mixing_hidden.end(), result.mixing_names.size(),
                                  sees ? Hidden::visible : empty_row);
      if (softmax) {
        result.maximum.push_back(maximum);
        result.total.push_back(total);
      }
      result.sees.push_back(sees);
    }
  result.stages = tensor<double>(stages, {batch, heads, keys, static_cast<std::int64_t>(result.stage_names.size())});
  result.mixing = tensor<double>(mixing, {batch, heads, keys + 1, dv + 1});
  if (run.hidden.empty()) result.stages_hidden.clear(), result.mixing_hidden.clear();
  return result;
}

}  // namespace attn::explain_detail
