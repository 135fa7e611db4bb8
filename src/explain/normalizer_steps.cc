// src/explain/normalizer_steps.cc: the steps of other normalizers than softmax (a threshold, a support, the sum of a
// row, what no key gets) and of a function of the weight.
#include "explain/normalizer_steps.h"

#include "explain/formula_words.h"
#include "explain/mechanism.h"
#include "explain/modifiers.h"

#include <attn/attention.h>
#include <attn/ops.h>

#include "runtime/format.h"

#include <algorithm>
#include <cmath>

namespace attn::explain_detail {
namespace {

/// Calls visit(b, first) for every row of pairs, where `first` is the index of its first number.
template <typename F>
void each_row(const Tensor& pairs, const F& visit) {
  const std::int64_t keys = pairs.size(3), rows = pairs.size(1) * pairs.size(2);
  for (std::int64_t b = 0; b < pairs.size(0); ++b)
    for (std::int64_t row = 0; row < rows; ++row) visit(b, static_cast<std::size_t>((b * rows + row) * keys));
}

/// Returns the threshold of each row from its support, which is known from the weights: [B, H, Tq, 1]; 0 for a row
/// that sees no key.
Tensor thresholds(const Run& run, bool entmax) {
  const std::vector<double> scores = run.last_scores().to_vector(), weights = run.weights.to_vector();
  const auto keys = static_cast<std::size_t>(run.weights.size(3));
  std::vector<double> result;
  each_row(run.weights, [&](std::int64_t, std::size_t first) {
    double count = 0, sum = 0, spread = 0;
    for (std::size_t j = first; j < first + keys; ++j)
      if (weights[j] > 0) ++count, sum += entmax ? scores[j] / 2 : scores[j];
    const double mean = sum / count;
    for (std::size_t j = first; j < first + keys; ++j)
      if (entmax && weights[j] > 0) spread += (scores[j] / 2 - mean) * (scores[j] / 2 - mean);
    // sparsemax: the sum of x - t is 1; entmax-1.5: that of (x - t)^2
    const double below = entmax ? std::sqrt(std::max(0.0, (1 - spread) / count)) : 1 / count;
    result.push_back(count == 0 ? 0 : mean - below);
  });
  const Tensor& like = run.weights;
  return tensor<double>(result, {like.size(0), like.size(1), like.size(2), 1}).to(like.dtype());
}

/// Changes each number of the last scores: of(x, number of the sentence).
template <typename F>
Tensor of_scores(const Run& run, const std::vector<double>& numbers, const F& of) {
  std::vector<double> values = run.last_scores().to_vector();
  const auto keys = static_cast<std::size_t>(run.weights.size(3));
  each_row(run.weights, [&](std::int64_t b, std::size_t first) {
    for (std::size_t j = first; j < first + keys; ++j) values[j] = of(values[j], numbers[static_cast<std::size_t>(b)]);
  });
  return tensor<double>(values, run.weights.sizes());
}

}  // namespace

std::vector<double> NormalizerSteps::numbers(const Run& run) const {
  std::vector<double> result;
  for (std::int64_t b = 0; b < run.q.size(0); ++b) {
    const Tensor& lengths = run.lengths.key_lengths;
    const auto keys = static_cast<double>(lengths.defined() ? lengths.data<std::int64_t>()[b] : run.k.size(2));
    const bool sigmoid = normalizer_.kind == Normalizer::Kind::sigmoid;
    result.push_back(normalizer_.number.value_or(sigmoid ? -std::log(keys) : 1 / keys));
  }
  return result;
}

std::string NormalizerSteps::number_in_words(const Run& run) const {
  const bool sigmoid = normalizer_.kind == Normalizer::Kind::sigmoid;
  if (const std::optional<double> number = normalizer_.number)
    return !sigmoid      ? runtime::format(" × {}", *number)
           : *number < 0 ? runtime::format(" − {}", -*number)
                         : runtime::format(" + {}", *number);
  const std::string keys = run.lengths.key_lengths.defined() ? "n" : std::to_string(run.k.size(2));
  return sigmoid ? " − log " + keys : " / " + keys;
}

void NormalizerSteps::set_weights(Run& run) const {
  using Kind = Normalizer::Kind;
  if (!weight_mod_.empty()) {
    AttentionOptions before = run.call;
    before.weight_mod = {};
    before.dropout_p = 0;
    before.weights = Weights::full;
    run.modified = run.weights;
    run.weights = attention(run.q_used(), run.k_used(), run.v, before).weights;
  }
  run.note_ends = options_.language == Language::zh ? "手算一个查询：乘积、求和，再由打分得到权重"
                                                    : "one query by hand: products, sum, then the weight of the score";
  const std::vector<double> number = numbers(run);
  const std::string words = number_in_words(run).substr(1);
  switch (normalizer_.kind) {
    case Kind::softmax:
    case Kind::softmax1: return;  // the columns of softmax
    case Kind::sigmoid:
      run.ends.push_back({words, of_scores(run, number, [](double x, double bias) { return x + bias; })});
      run.ends.push_back({"σ", run.weights});
      return;
    case Kind::relu_squared:
      run.ends.push_back({"max(x, 0)²", of_scores(run, number, [](double x, double) { return x > 0 ? x * x : 0; })});
      run.ends.push_back({words, run.weights});
      return;
    case Kind::sparsemax:
    case Kind::entmax15: {
      const bool entmax = normalizer_.kind == Kind::entmax15;
      const Tensor x = of_scores(run, number, [&](double s, double) { return entmax ? s / 2 : s; });
      run.ends.push_back({entmax ? "/ 2 − t" : "− t", x - thresholds(run, entmax).to(x.dtype())});
      run.ends.push_back({entmax ? "max(x, 0)²" : "max(x, 0)", run.weights});
    }
  }
}

Stage NormalizerSteps::weights(const Run& run, const std::string& before, const std::string& scores) const {
  using Kind = Normalizer::Kind;
  const auto words = [&](const Said& said) { return options_.language == Language::zh ? said.zh : said.en; };
  Stage stage{.name = "weights",
              .title = words({"weights", "权重"}),
              .note = {},
              .formula = {},
              .column = "",
              .operation = {normalizer_.to_string().substr(0, normalizer_.to_string().find('(')), {before}},
              .values = run.weights,
              .kind = ExplainStep::Kind::weights};
  const bool batch = run.lengths.key_lengths.defined();
  switch (normalizer_.kind) {
    case Kind::softmax: break;
    case Kind::softmax1:
      stage.operation = {"softmax", {before}, 0.0};  // e^0 in the sum
      stage.formula = runtime::format("softmax1({}) = eˢ / (1 + Σ eˢ)", scores);
      stage.note = words({"the 1 is a key with score 0 and no value: a row may give away less than 1",
                          "分母中的 1 相当于一个打分为 0、没有值的键：每行之和可以小于 1"});
      break;
    case Kind::sigmoid:
      stage.operation.name = "sigmoid_weight";
      stage.formula = runtime::format("σ({}{})", scores, number_in_words(run));
      stage.note = words({"each pair by itself: a weight takes nothing from the others",
                          "每一对各自计算：一个权重不从其他权重中分走份额"});
      break;
    case Kind::sparsemax:
      stage.formula = runtime::format("max({} − t, 0)", scores);
      stage.note = words({"above the threshold; all others are exactly 0", "超出阈值的部分；其余恰为 0"});
      break;
    case Kind::entmax15:
      stage.formula = runtime::format("max({} / 2 − t, 0)²", scores);
      stage.note = words({"between softmax and sparsemax; what is below the threshold is exactly 0",
                          "介于 softmax 与 sparsemax 之间；低于阈值的恰为 0"});
      break;
    case Kind::relu_squared:
      stage.formula = runtime::format("max({}, 0)²{}", scores, number_in_words(run));
      stage.note = words({"each pair by itself; a score that is not above 0 has exactly weight 0",
                          "每一对各自计算；打分不大于 0 时权重恰为 0"});
  }
  const bool by_itself = normalizer_.kind == Kind::sigmoid || normalizer_.kind == Kind::relu_squared;
  if (by_itself && (normalizer_.number || !batch)) stage.operation.operand = numbers(run)[0];
  return stage;
}

std::vector<Stage> NormalizerSteps::weight_stages(const Run& run, const std::string& before,
                                                  const std::string& scores) const {
  using Kind = Normalizer::Kind;
  const auto words = [&](const Said& said) { return options_.language == Language::zh ? said.zh : said.en; };
  const auto table = [](const char* name, const char* title, const char* note, const std::string& formula,
                        const ExplainStep::Operation& operation, const Tensor& values) {
    return Stage{.name = name,
                 .title = title,
                 .note = note,
                 .formula = formula,
                 .column = "",
                 .operation = operation,
                 .values = values,
                 .kind = ExplainStep::Kind::table};
  };
  const Kind kind = normalizer_.kind;
  std::vector<Stage> stages;
  if (kind == Kind::sparsemax || kind == Kind::entmax15) {
    const bool entmax = kind == Kind::entmax15;
    std::string equation = runtime::format("Σ max({} − t, 0) = 1", scores);
    if (entmax) equation = runtime::format("Σ max({} / 2 − t, 0)² = 1", scores);
    stages.push_back(table("threshold", words({"threshold of each row", "每行的阈值"}),
                           words({"t is such that the weights of the row sum to 1", "t 使该行的权重之和为 1"}),
                           equation, {entmax ? "entmax15_threshold" : "sparsemax_threshold", {before}},
                           thresholds(run, entmax)));
  }
  if (kind != Kind::softmax) stages.push_back(weights(run, before, scores));
  if (kind == Kind::sparsemax || kind == Kind::entmax15)
    stages.push_back(table("support", words({"keys above the threshold", "阈值以上的键数"}),
                           words({"only these get a gradient", "只有它们得到梯度"}), "Σ [weights > 0]",
                           {"support", {"weights"}}, sum(gt(run.weights, 0).to(Dtype::i64), {-1}, /*keepdim=*/true)));
  if (kind == Kind::sigmoid || kind == Kind::relu_squared)
    stages.push_back(table("row_sums", words({"sum of each row", "每行之和"}),
                           words({"no softmax: it need not be 1", "不是 softmax：不必为 1"}), "Σ weights",
                           {"row_sum", {"weights"}}, sum(run.weights, {-1}, /*keepdim=*/true)));
  if (kind == Kind::softmax1) {
    AttentionOptions call = run.call;
    call.weight_mod = {};
    stages.push_back(table("no_key", words({"share of no key", "不给任何键的份额"}),
                           words({"1 minus the sum of the row", "该行权重之和与 1 之差"}), "1 / (1 + Σ eˢ)",
                           {"sink_weight", {before}, 0.0},
                           share_of_sink(0, attention(run.q_used(), run.k_used(), run.v, call).logsumexp)));
  }
  if (run.modified.defined())
    stages.push_back(
        {.name = "weights_modified",
         .title = words({"weights after the expression", "自定义权重"}),
         .note = words({"a function of each weight and its place; these mix the values",
                        "由每个权重及其位置得出；用它们对值加权"}),
         .formula = runtime::format("{}, s = {}", weight_mod_.to_string(), in_words(options_.language, "weights")),
         .column = "",
         .operation = {"weight_mod", {"weights"}},
         .values = run.modified,
         .kind = ExplainStep::Kind::weights});
  return stages;
}

}  // namespace attn::explain_detail
