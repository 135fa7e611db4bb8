// tests/explain/backward_steps_test.cc: the steps of the backward pass are PyTorch's gradients.
#include "support/golden.h"

#include <attn/explain.h>
#include <attn/ops.h>

#include <gtest/gtest.h>

#include <cmath>

namespace attn {
namespace {

using testing::bits_equal;

const std::string kSentence = "Life is short, eat dessert first";

/// PyTorch 2.13 on the same sentence: L = (context ** 2).sum() / 2, L.backward().
TEST(Explain, TheWayBackIsPyTorchs) {
  ExplainOptions options;
  options.gradients = true;
  const Explanation told = explain(kSentence, options);
  const auto row = [&](const char* name, std::int64_t i) { return told.step(name).values.select(0, i).to_vector(); };
  const auto expect_row = [&](const char* name, std::int64_t i, const std::vector<double>& torch) {
    const std::vector<double> ours = row(name, i);
    ASSERT_EQ(ours.size(), torch.size()) << name;
    // 6.2: the largest of them
    for (std::size_t n = 0; n < torch.size(); ++n)
      EXPECT_NEAR(ours[n], torch[n], 4 * 0x1p-23 * 6.2) << name << " " << n;
  };
  EXPECT_TRUE(bits_equal(told.step("d_context").values, told.step("context").values));
  expect_row("d_v", 1, {0.33867553, 1.13884997, 0.58252835, 0.99783778});
  expect_row("d_weights", 2, {0.26677772, -1.42735624, 0.88702583, -0.44806224, -0.60303283, 1.27444196});
  expect_row("d_q", 0, {-0.03776133, -0.07909502});
  expect_row("d_q", 1, {0.47330958, 1.43637085});
  expect_row("d_k", 5, {-0.12988824, -0.77315664});
  for (std::int64_t i = 0; i < 6; ++i) {
    double total = 0;
    for (const double x : row("d_scores", i)) total += x;
    EXPECT_NEAR(total, 0, 6 * 0x1p-23 * 6.2) << "a row of dS adds up to 0";
  }
  EXPECT_NE(told.step("d_context").source.find("3.1664"), std::string::npos) << told.step("d_context").source;
}

/// PyTorch 2.13's autograd in f64 from the q, k, v and the dropped weights shown: row 3 and row 5 of each gradient, the
/// largest of its numbers, and how far torch in f32 is from them.
TEST(Explain, TheWayBackGoesThroughWhatIsAroundTheSoftmax) {
  ExplainOptions options;
  options.gradients = true;
  options.mask = Mask::causal();
  options.softcap = 1.5;
  options.score_mod = ScoreExpression::parse("s + 0.25 * s * s");
  options.temperature = 0.5;
  options.dropout_p = 0.25;
  const Explanation told = explain(kSentence, options);
  struct Truth {
    const char* name;
    double torch_error, largest;
    std::vector<double> row_3, row_5;
  };
  const Truth truths[] = {{"d_v", 5.1e-07, 4.4745, {0.17588886, 0.49288212, 0.29217033, 0.47879904}, {0, 0, 0, 0}},
                          {"d_dropped",
                           1.0e-06,
                           11.2098,
                           {-0.62321071, 3.97693313, -1.90889178, 0.75644625, 1.40014589, -2.50863663},
                           {0.45861826, -2.56045257, 1.46960916, -0.69625346, -1.03107531, 2.02482669}},
                          {"d_weights",
                           1.4e-06,
                           14.9464,
                           {-0.83094761, 5.30257751, -2.54518904, 1.00859500, 0, 0},
                           {0.61149101, 0, 1.95947888, 0, 0, 0}},
                          {"d_scores",
                           1.2e-06,
                           1.7717,
                           {-0.51037784, 1.43366598, -0.72948042, -0.19380773, 0, 0},
                           {-0.04662807, -0.01327101, 0.43715925, -0.04635238, -0.02581284, -0.30509495}},
                          {"d_untempered",
                           2.3e-06,
                           3.5434,
                           {-1.02075567, 2.86733197, -1.45896084, -0.38761546, 0, 0},
                           {-0.09325614, -0.02654202, 0.87431849, -0.09270476, -0.05162567, -0.61018990}},
                          {"d_unmodified",
                           3.9e-06,
                           4.5682,
                           {-0.99210631, 3.31553417, -1.36599113, -0.39470678, 0, 0},
                           {-0.10738319, -0.01006865, 1.18058210, -0.08130847, -0.03563853, -0.79825926}},
                          {"d_uncapped",
                           5.6e-07,
                           3.8889,
                           {-0.99071693, 3.17151411, -1.35613013, -0.39447192, 0, 0},
                           {-0.10300230, -0.00317347, 0.92305370, -0.07912404, -0.02956267, -0.66344758}},
                          {"d_q", 6.8e-07, 4.7401, {1.49235475, 4.74011725}, {0.02221210, -0.21057572}},
                          {"d_k", 8.4e-07, 2.2857, {0.05973576, -0.20887762}, {0.13212531, 0.63646747}}};
  std::vector<std::string> names;
  for (const ExplainStep& step : told.steps)
    if (step.name.starts_with("d_")) names.push_back(step.name);
  EXPECT_EQ(names, (std::vector<std::string>{"d_context", "d_v", "d_dropped", "d_weights", "d_scores", "d_untempered",
                                             "d_unmodified", "d_uncapped", "d_q", "d_k"}));
  for (const Truth& truth : truths)
    for (const auto& [row, expected] : {std::pair{3, truth.row_3}, {5, truth.row_5}}) {
      const ExplainStep& step = told.step(truth.name);
      const std::vector<double> ours = step.values.select(0, row).to_vector();
      ASSERT_EQ(ours.size(), expected.size()) << truth.name;
      for (std::size_t n = 0; n < ours.size(); ++n) {
        if (!step.hidden.empty() && step.hidden[static_cast<std::size_t>(row) * 6 + n] != Hidden::visible) continue;
        EXPECT_NEAR(ours[n], expected[n], 2 * truth.torch_error + 4 * 0x1p-23 * truth.largest)
            << truth.name << " " << row << " " << n;
      }
    }
  EXPECT_EQ(told.step("d_untempered").formula, "dS / 0.5");
  EXPECT_EQ(told.step("d_unmodified").formula, "dS ∂(s + 0.25 * s * s) / ∂s");
  EXPECT_EQ(told.step("d_uncapped").formula, "dS (1 − (capped / 1.5)²)");
  EXPECT_EQ(told.step("d_weights").formula, "dP dropped / (1 − 0.25), 0 where dropped");
}

/// dQ and dK are the library's own; the last dS shown leads to them, whatever stands between.
TEST(Explain, TheLastGradientOfTheScoresLeadsToQueriesAndKeys) {
  const auto check_leads = [](const char* what, const char* last, auto&& change) {
    ExplainOptions options;
    options.gradients = true;
    options.heads = 2;
    options.mask = Mask::causal();
    change(options);
    const Explanation told = explain_batch({kSentence, "a b"}, options);
    const auto wide = [&](const char* name) { return told.step(name).values.to(Dtype::f64); };
    const Tensor ds = wide(last) / std::sqrt(2.0), dq = matmul(ds, wide("k")),
                 dk = matmul(ds.transpose(-1, -2), wide("q"));
    const auto largest = [](const Tensor& x) { return max(abs(x)).item(); };
    for (const auto& [name, expected, other] : {std::tuple{"d_q", dq, wide("k")}, {"d_k", dk, wide("q")}}) {
      // six products of a dS, which is at most sixteen roundings away from the one in the kernel
      const double allowed = 6 * 16 * 0x1p-24 * std::max(largest(ds), largest(wide("d_weights"))) * largest(other);
      EXPECT_LE(largest(wide(name) - expected), allowed) << what << " " << name;
    }
  };
  check_leads("softcap", "d_uncapped", [](ExplainOptions& o) { o.softcap = 1; });
  check_leads("temperature", "d_untempered", [](ExplainOptions& o) { o.temperature = 2; });
  check_leads("a score that hides", "d_unmodified", [](ExplainOptions& o) {
    o.score_mod = ScoreExpression::parse("where(j == 1, -inf, 2 * s - 0.5 * (i - j))");
  });
  check_leads("a score without s", "d_unmodified",
              [](ExplainOptions& o) { o.score_mod = ScoreExpression::parse("0.5 * (j - i)"); });
  check_leads("dropout", "d_scores", [](ExplainOptions& o) { o.dropout_p = 0.5; });
  check_leads("sink, bias and all", "d_uncapped", [](ExplainOptions& o) {
    o.softcap = 2;
    o.bias = ExplainBias::relative;
    o.sink = 0.5;
    o.score_mod = ScoreExpression::parse("tanh(s) + s");
    o.temperature = 0.75;
    o.dropout_p = 0.25;
  });
}

TEST(Explain, TheWayBackIsTheGradientOfEveryScore) {
  for (const Score::Kind kind : {Score::Kind::dot, Score::Kind::general, Score::Kind::additive})
    for (const Positions positions : {Positions::none, Positions::rotary}) {
      ExplainOptions options;
      options.score = kind;
      options.positions = positions;
      options.gradients = true;
      options.heads = 2;
      options.mask = Mask::causal();
      const Explanation told = explain_batch({kSentence, "a b"}, options);
      const auto wide = [&](const char* name) { return told.step(name).values.to(Dtype::f64); };
      // by dS and the definition of the score: its derivative by q along each of its directions, in f64
      const bool rotated = positions == Positions::rotary;
      const Tensor q = wide(rotated ? "q_rotated" : "q").clone(), k = wide(rotated ? "k_rotated" : "k"),
                   ds = wide("d_scores"), dq = wide("d_q");
      const auto parameter = [&](const std::string& name) {
        for (const ExplainStep& step : told.parameters)
          if (step.name == name) return step.values.to(Dtype::f64);
        return Tensor();
      };
      AttentionOptions call;
      if (kind == Score::Kind::dot) call.score = Score::dot();
      if (kind == Score::Kind::general) call.score = Score::general(parameter("score_w"));
      if (kind == Score::Kind::additive)
        call.score =
            Score::additive(parameter("score_w_query"), parameter("score_w_key"), parameter("score_w").reshape({2}));
      const double h = 0x1p-12;
      // six products of a dS, itself at most eight roundings of numbers no larger than 2 max dP, and a slope: two
      // products of a number below 1 (W, S_q, w are rand) and one of k
      const auto largest = [](const Tensor& x) { return max(abs(x)).item(); };
      const double allowed =
          6 * 8 * 0x1p-24 * (2 * largest(wide("d_weights"))) * (2 * std::max(1.0, largest(k))) + h * h;
      for (std::int64_t d = 0; d < 2; ++d) {
        const auto moved = [&](double by) {
          Tensor x = q.clone();
          x.select(3, d).add_(by);
          return sum(attention_scores(x, k, call) * ds, {-1});
        };
        const std::vector<double> slope = ((moved(h) - moved(-h)) / (2 * h)).to_vector(),
                                  ours = dq.select(3, d).contiguous().to_vector();
        for (std::size_t n = 0; n < slope.size(); ++n) EXPECT_NEAR(ours[n], slope[n], allowed) << n;
      }
      EXPECT_EQ(told.step("d_scores").hidden, told.step("weights").hidden);
    }
}

}  // namespace
}  // namespace attn
