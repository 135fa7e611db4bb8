// tests/explain/operations_test.cc: every number of a step follows from the step's inputs by its operation.
#include <attn/explain.h>
#include <attn/ops.h>
#include <attn/random.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace attn {
namespace {

/// The numbers of a step or parameter as [batch, heads, rows, columns]; a size of 1 is repeated.
class Grid {
 public:
  explicit Grid(const ExplainStep& step) : values_(step.values.to_vector()), hidden_(step.hidden) {
    const Dims& shape = step.shape;
    batch_ = step.batch;
    heads_ = step.heads;
    columns_ = shape[shape.size() - 1];
    rows_ = shape.size() > 1 ? shape[shape.size() - 2] : 1;
  }
  double at(std::int64_t b, std::int64_t h, std::int64_t r, std::int64_t c) const { return values_[index(b, h, r, c)]; }
  bool visible(std::int64_t b, std::int64_t h, std::int64_t r, std::int64_t c) const {
    return hidden_.empty() || hidden_[index(b, h, r, c)] == Hidden::visible;
  }
  double largest() const {
    double result = 0;
    for (std::size_t n = 0; n < values_.size(); ++n)
      if ((hidden_.empty() || hidden_[n] == Hidden::visible) && std::isfinite(values_[n]))
        result = std::max(result, std::abs(values_[n]));
    return result;
  }
  std::int64_t batch() const { return batch_; }
  std::int64_t heads() const { return heads_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }

 private:
  std::size_t index(std::int64_t b, std::int64_t h, std::int64_t r, std::int64_t c) const {
    return static_cast<std::size_t>((((batch_ > 1 ? b : 0) * heads_ + (heads_ > 1 ? h : 0)) * rows_ + r) * columns_ +
                                    c);
  }
  std::vector<double> values_;
  std::vector<Hidden> hidden_;
  std::int64_t batch_ = 1, heads_ = 1, rows_ = 1, columns_ = 1;
};

/// A value with the size of the terms that it is the sum of: rounding errors are relative to that size.
struct Sum {
  double value = 0, size = 0;
  void add(double term) { value += term, size += std::abs(term); }
};
Sum exact(double value) { return {value, std::abs(value)}; }

struct At {
  std::int64_t b, h, r, c;
};
using Inputs = std::vector<Grid>;
using Rule = Sum (*)(const Inputs& in, std::optional<double> operand, At at);

double tanh_sum(const Inputs& in, std::int64_t n, At at, std::int64_t row, std::int64_t key) {
  double sum = 0;  // row n of S_q q + S_k k; in: ..., q, k, S_q, S_k, w
  const Grid &q = in[in.size() - 5], &k = in[in.size() - 4], &s_q = in[in.size() - 3], &s_k = in[in.size() - 2];
  for (std::int64_t d = 0; d < q.columns(); ++d)
    sum += s_q.at(0, 0, n, d) * q.at(at.b, at.h, row, d) + s_k.at(0, 0, n, d) * k.at(at.b, at.h, key, d);
  return std::tanh(sum);
}

/// The gradient of the additive score of (row, key) with respect to element `d` of q or k, whose matrix is `s`.
double additive_slope(const Inputs& in, const Grid& s, At at, std::int64_t row, std::int64_t key, std::int64_t d) {
  double slope = 0;
  for (std::int64_t n = 0; n < s.rows(); ++n) {
    const double t = tanh_sum(in, n, at, row, key);
    slope += in.back().at(0, 0, 0, n) * (1 - t * t) * s.at(0, 0, n, d);
  }
  return slope;
}

Sum weighted_exp(const Inputs& in, std::optional<double> sink, At at, bool of_sink) {
  double largest = sink.value_or(-INFINITY), total = 0;
  for (std::int64_t key = 0; key < in[0].columns(); ++key)
    if (in[0].visible(at.b, at.h, at.r, key)) largest = std::max(largest, in[0].at(at.b, at.h, at.r, key));
  bool sees = false;
  for (std::int64_t key = 0; key < in[0].columns(); ++key) sees = sees || in[0].visible(at.b, at.h, at.r, key);
  if (!sees) return {};
  if (sink) total += std::exp(*sink - largest);
  for (std::int64_t key = 0; key < in[0].columns(); ++key)
    if (in[0].visible(at.b, at.h, at.r, key)) total += std::exp(in[0].at(at.b, at.h, at.r, key) - largest);
  if (of_sink) return exact(std::exp(*sink - largest) / total);
  if (!in[0].visible(at.b, at.h, at.r, at.c)) return {};
  return exact(std::exp(in[0].at(at.b, at.h, at.r, at.c) - largest) / total);
}

const std::map<std::string, Rule> kRules{
    {"add",
     [](const Inputs& in, std::optional<double>, At at) {
       Sum sum;
       sum.add(in[0].at(at.b, at.h, at.r, at.c));
       sum.add(in[1].at(at.b, at.h, at.r, at.c));
       return sum;
     }},
    {"project",
     [](const Inputs& in, std::optional<double>, At at) {
       Sum sum;
       for (std::int64_t d = 0; d < in[0].columns(); ++d)
         sum.add(in[0].at(at.b, at.h, at.r, d) * in[1].at(0, at.h, d, at.c));
       return sum;
     }},
    {"rotate",
     [](const Inputs& in, std::optional<double>, At at) {
       const std::int64_t first = at.c - at.c % 2;  // of the pair (2d, 2d + 1)
       const double angle = static_cast<double>(at.r) /
                            std::pow(10000.0, static_cast<double>(first) / static_cast<double>(in[0].columns()));
       Sum sum;
       sum.add(in[0].at(at.b, at.h, at.r, at.c) * std::cos(angle));
       sum.add((at.c == first ? -1 : 1) * in[0].at(at.b, at.h, at.r, at.c == first ? at.c + 1 : first) *
               std::sin(angle));
       return sum;
     }},
    {"dot",
     [](const Inputs& in, std::optional<double>, At at) {
       Sum sum;
       for (std::int64_t d = 0; d < in[0].columns(); ++d)
         sum.add(in[0].at(at.b, at.h, at.r, d) * in[1].at(at.b, at.h, at.c, d));
       return sum;
     }},
    {"bilinear",
     [](const Inputs& in, std::optional<double>, At at) {
       Sum sum;
       for (std::int64_t d = 0; d < in[0].columns(); ++d)
         for (std::int64_t e = 0; e < in[1].columns(); ++e)
           sum.add(in[0].at(at.b, at.h, at.r, d) * in[2].at(0, 0, d, e) * in[1].at(at.b, at.h, at.c, e));
       return sum;
     }},
    {"additive",
     [](const Inputs& in, std::optional<double>, At at) {
       Sum sum;
       for (std::int64_t n = 0; n < in[4].columns(); ++n)
         sum.add(in[4].at(0, 0, 0, n) * tanh_sum(in, n, at, at.r, at.c));
       return sum;
     }},
    {"divide",
     [](const Inputs& in, std::optional<double> by, At at) { return exact(in[0].at(at.b, at.h, at.r, at.c) / *by); }},
    {"softcap", [](const Inputs& in, std::optional<double> cap,
                   At at) { return exact(*cap * std::tanh(in[0].at(at.b, at.h, at.r, at.c) / *cap)); }},
    {"mask", [](const Inputs& in, std::optional<double>, At at) { return exact(in[0].at(at.b, at.h, at.r, at.c)); }},
    {"softmax", [](const Inputs& in, std::optional<double> sink, At at) { return weighted_exp(in, sink, at, false); }},
    {"sink_weight",
     [](const Inputs& in, std::optional<double> sink, At at) { return weighted_exp(in, sink, at, true); }},
    {"matmul",
     [](const Inputs& in, std::optional<double> divisor, At at) {
       Sum sum;
       for (std::int64_t n = 0; n < in[0].columns(); ++n)
         if (in[0].visible(at.b, at.h, at.r, n))
           sum.add(in[0].at(at.b, at.h, at.r, n) * in[1].at(at.b, at.h, n, at.c) / divisor.value_or(1));
       return sum;
     }},
    {"matmul_transposed",
     [](const Inputs& in, std::optional<double> divisor, At at) {
       Sum sum;
       for (std::int64_t n = 0; n < in[0].rows(); ++n)
         if (in[0].visible(at.b, at.h, n, at.r))
           sum.add(in[0].at(at.b, at.h, n, at.r) * in[1].at(at.b, at.h, n, at.c) / divisor.value_or(1));
       return sum;
     }},
    {"project_backward",
     [](const Inputs& in, std::optional<double> dim, At at) {
       Sum sum;
       for (std::int64_t e = 0; e < in[0].columns(); ++e)
         sum.add(in[0].at(at.b, 0, at.r, e) * in[1].at(0, 0, at.h * static_cast<std::int64_t>(*dim) + at.c, e));
       return sum;
     }},
    {"join_heads", [](const Inputs& in, std::optional<double>,
                      At at) { return exact(in[0].at(at.b, at.c / in[0].columns(), at.r, at.c % in[0].columns())); }},
    {"copy", [](const Inputs& in, std::optional<double>, At at) { return exact(in[0].at(at.b, at.h, at.r, at.c)); }},
    {"mean_heads",
     [](const Inputs& in, std::optional<double>, At at) {
       Sum sum;
       for (std::int64_t h = 0; h < in[0].heads(); ++h)
         sum.add(in[0].at(at.b, h, at.r, at.c) / static_cast<double>(in[0].heads()));
       return sum;
     }},
    {"sum_rows",
     [](const Inputs& in, std::optional<double>, At at) {
       Sum sum;
       for (std::int64_t r = 0; r < in[0].rows(); ++r) sum.add(in[0].at(at.b, at.h, r, at.r));
       return sum;
     }},
    {"select", [](const Inputs& in, std::optional<double>, At at) { return exact(in[0].at(at.b, at.h, at.r, at.c)); }},
    {"softmax_backward",
     [](const Inputs& in, std::optional<double>, At at) {
       Sum mean;
       for (std::int64_t key = 0; key < in[0].columns(); ++key)
         mean.add(in[0].at(at.b, at.h, at.r, key) * in[1].at(at.b, at.h, at.r, key));
       const double w = in[0].at(at.b, at.h, at.r, at.c), dp = in[1].at(at.b, at.h, at.r, at.c);
       return Sum{w * (dp - mean.value), std::abs(w) * (std::abs(dp) + mean.size)};
     }},
    {"softcap_backward",
     [](const Inputs& in, std::optional<double> cap, At at) {
       const double level = in[1].at(at.b, at.h, at.r, at.c) / *cap, ds = in[0].at(at.b, at.h, at.r, at.c);
       return Sum{ds * (1 - level * level), std::abs(ds)};
     }},
    {"bilinear_backward_q",
     [](const Inputs& in, std::optional<double>, At at) {
       Sum sum;
       for (std::int64_t key = 0; key < in[1].rows(); ++key)
         for (std::int64_t e = 0; e < in[1].columns(); ++e)
           sum.add(in[0].at(at.b, at.h, at.r, key) * in[2].at(0, 0, at.c, e) * in[1].at(at.b, at.h, key, e));
       return sum;
     }},
    {"bilinear_backward_k",
     [](const Inputs& in, std::optional<double>, At at) {
       Sum sum;
       for (std::int64_t row = 0; row < in[1].rows(); ++row)
         for (std::int64_t d = 0; d < in[1].columns(); ++d)
           sum.add(in[0].at(at.b, at.h, row, at.r) * in[2].at(0, 0, d, at.c) * in[1].at(at.b, at.h, row, d));
       return sum;
     }},
    {"additive_backward_q",
     [](const Inputs& in, std::optional<double>, At at) {
       Sum sum;
       for (std::int64_t key = 0; key < in[0].columns(); ++key)
         sum.add(in[0].at(at.b, at.h, at.r, key) * additive_slope(in, in[3], at, at.r, key, at.c));
       return sum;
     }},
    {"additive_backward_k",
     [](const Inputs& in, std::optional<double>, At at) {
       Sum sum;
       for (std::int64_t row = 0; row < in[0].rows(); ++row)
         sum.add(in[0].at(at.b, at.h, row, at.r) * additive_slope(in, in[4], at, row, at.r, at.c));
       return sum;
     }},
};

// Of these a number is not a formula of single numbers of the inputs; docs/explain_json.md says what they are.
const std::set<std::string> kOthers{"draw",   "split",     "index",    "look_up",   "sines",
                                    "alibi",  "relative",  "int8",     "score_mod", "score_mod_backward",
                                    "row_of", "attention", "same_bits"};

/// Checks all numbers of a run; returns the operations that were met.
std::set<std::string> check(const Explanation& told, const std::string& what) {
  std::set<std::string> met;
  std::map<std::string, const ExplainStep*> known;
  double gradients = 0;  // the largest number of a gradient so far
  for (const ExplainStep& parameter : told.parameters) known[parameter.name] = &parameter;
  for (const ExplainStep& step : told.steps) {
    const ExplainStep::Operation& operation = step.operation;
    met.insert(operation.name);
    Inputs inputs;
    for (const std::string& name : operation.inputs) {
      EXPECT_TRUE(known.contains(name)) << what << ": " << step.name << " is made of " << name
                                        << ", not told before it";
      if (known.contains(name) && known[name]->values.defined()) inputs.emplace_back(*known[name]);
    }
    known[step.name] = &step;
    const auto rule = kRules.find(operation.name);
    const bool drops = operation.name == "dropout" || operation.name == "dropout_backward";
    if (rule == kRules.end() && !drops) {
      EXPECT_TRUE(kOthers.contains(operation.name)) << what << ": " << step.name << ": " << operation.name;
      continue;
    }
    const Grid grid(step);
    // The library rounds in f32 and scales before it adds, so errors are relative to the largest number in use.
    double largest = grid.largest();
    for (const Grid& input : inputs) largest = std::max(largest, input.largest());
    // The backward kernel computes dP and dS itself: what it rounds there is relative to the largest gradient so far.
    if (step.name.starts_with("d_")) {
      for (const Grid& input : inputs) largest = std::max(largest, gradients * input.largest());
      gradients = std::max(gradients, grid.largest());
    }
    int wrong = 0;
    for (At at{0, 0, 0, 0}; at.b < grid.batch(); ++at.b)
      for (at.h = 0; at.h < grid.heads(); ++at.h)
        for (at.r = 0; at.r < grid.rows(); ++at.r)
          for (at.c = 0; at.c < grid.columns() && wrong < 3; ++at.c) {
            if (!grid.visible(at.b, at.h, at.r, at.c)) continue;
            const double given = grid.at(at.b, at.h, at.r, at.c);
            Sum sum;
            if (rule != kRules.end()) {
              sum = rule->second(inputs, operation.operand, at);
            } else {
              // whether a weight of 0 is kept shows in its gradient alone
              const bool kept = operation.name == "dropout" || Grid(*known["weights"]).at(at.b, at.h, at.r, at.c) == 0
                                    ? given != 0
                                    : inputs[1].at(at.b, at.h, at.r, at.c) > 0;
              sum = exact(kept ? inputs[0].at(at.b, at.h, at.r, at.c) / (1 - *operation.operand) : 0);
            }
            const double bound = 16 * std::ldexp(1.0, -24) * std::max(sum.size, largest);
            if (std::abs(given - sum.value) <= bound) continue;
            ++wrong;
            ADD_FAILURE() << what << ": " << step.name << " (" << operation.name << ") [" << at.b << ", " << at.h
                          << ", " << at.r << ", " << at.c << "] is " << given << ", from its inputs " << sum.value;
          }
  }
  return met;
}

TEST(ExplainOperations, EveryNumberFollowsFromTheInputsOfItsStep) {
  std::set<std::string> met;
  int number = 0;
  for (const Score::Kind score :
       {Score::Kind::scaled_dot, Score::Kind::dot, Score::Kind::general, Score::Kind::additive})
    for (const Positions positions : {Positions::none, Positions::sinusoidal, Positions::rotary})
      for (int extra = 0; extra < 4; ++extra) {
        ExplainOptions options;
        options.score = score;
        options.positions = positions;
        options.gradients = true;
        options.dim = 5;
        options.dk = number % 2 == 0 ? 4 : 8;  // above 2, so that each operation shows which numbers it pairs
        options.dv = 3;
        options.query = 1;
        options.heads = extra == 0 ? 1 : 3;
        options.seed = static_cast<std::uint64_t>(++number);
        options.output_projection = extra > 1;
        options.learned_query = extra == 0 && score == Score::Kind::additive;
        if (options.learned_query) options.query = 0;
        if (extra > 0) options.mask = Mask::causal(extra == 3 ? Align::top_left : Align::unset);
        if (extra == 1 || extra == 2) {
          options.softcap = 1.5;
          options.temperature = 0.7;
          options.sink = 0.25;
          options.bias = extra == 1 ? ExplainBias::alibi : ExplainBias::relative;
          options.weights = extra == 1 ? Weights(Weights::head_average) : Weights(Weights::column_sums);
          options.cache = KvStorage::int8;
        }
        if (extra == 3) {
          options.to = "eat dessert first my friend";
          options.dropout_p = 0.3;
          options.score_mod = ScoreExpression::parse("s * 0.5");
          options.weights = Weights::top_k(2);
        }
        const std::string what = "case " + std::to_string(number);
        const Explanation told = extra > 1
                                     ? explain_batch({"Life is short eat", "Life is", "eat dessert first"}, options)
                                     : explain("Life is short eat dessert first", options);
        met.merge(check(told, what));
      }
  for (const auto& [name, rule] : kRules) EXPECT_TRUE(met.contains(name)) << name << " was not met";
  for (const char* name : {"dropout", "dropout_backward"}) EXPECT_TRUE(met.contains(name)) << name << " was not met";
  for (const std::string& name : kOthers) EXPECT_TRUE(met.contains(name)) << name << " was not met";
}

TEST(ExplainOperations, TheEmbeddingsRowsAreThoseOfTheWholeTable) {
  for (const std::int64_t dim : {1, 3, 16}) {
    ExplainOptions options;
    options.dim = dim;
    options.seed = 7;
    Generator generator(options.seed);
    const Tensor table = randn({50000, dim}, generator);
    for (const char* text :
         {"a", "b a d c", "a b c d e f g h i j k l m n o p q r s t u v w x y z aa bb cc dd ee ff gg"}) {
      const Explanation told = explain(text, options);
      EXPECT_TRUE(same_bits(told.step("x").values, embedding(told.step("ids").values, table))) << dim << " " << text;
    }
  }
}

}  // namespace
}  // namespace attn
