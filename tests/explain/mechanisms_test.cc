// tests/explain/mechanisms_test.cc: the steps of linear attention, latent attention and forward mode: their numbers are
// the library's, and follow from each other by the formulas that they show; their text, JSON and SVG in both languages.
#include <attn/attention_jvp.h>
#include <attn/explain_mechanisms.h>
#include <attn/latent_attention.h>
#include <attn/linear_attention.h>
#include <attn/ops.h>

#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace attn::testing {
namespace {

const std::string text = "Life is short , eat dessert first";

/// A step's values as [1, H, rows, columns].
Tensor of(const Explanation& e, const std::string& name) {
  const Tensor x = e.step(name).values;
  return x.dim() == 3 ? x.unsqueeze(0) : x.unsqueeze(0).unsqueeze(0);
}
Tensor parameter(const Explanation& e, const std::string& name) {
  for (const ExplainStep& step : e.parameters)
    if (step.name == name) return step.values;
  ADD_FAILURE() << "no parameter " << name;
  return {};
}
/// Products and sums in another order: a few units in the last place of the largest number.
void expect_near(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(to_string(a.sizes()), to_string(b.sizes())) << what;
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  double largest = 0;
  for (const double value : y) largest = std::max(largest, std::abs(value));
  for (std::size_t n = 0; n < x.size(); ++n) EXPECT_NEAR(x[n], y[n], 16 * 0x1p-23 * largest) << what << " " << n;
}
void expect_drawn(const Explanation& e, const std::vector<std::string>& steps) {
  const auto json = nlohmann::json::parse(to_json(e));
  std::vector<std::string> names;
  for (const auto& step : json["steps"]) names.push_back(step["name"]);
  const std::string terminal = to_text(e), svg = to_svg(e);
  for (const std::string& name : steps) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
    EXPECT_NE(terminal.find(e.step(name).title), std::string::npos) << name;
    EXPECT_NE(svg.find(e.step(name).title), std::string::npos) << name;
  }
}
bool has_chinese(const std::string& x) {
  return std::any_of(x.begin(), x.end(), [](char c) { return static_cast<unsigned char>(c) >= 0xe4; });
}

TEST(ExplainLinear, StateAndContextAreTheLibrarysAndFollowFromTheSteps) {
  for (const LinearRule rule : {LinearRule::plain, LinearRule::decay, LinearRule::delta, LinearRule::gated_delta})
    for (const std::int64_t heads : {1, 3})
      for (const std::int64_t row : {0, 4, -1}) {
        SCOPED_TRACE(::testing::Message() << static_cast<int>(rule) << " " << heads << " " << row);
        const bool decays = rule == LinearRule::decay || rule == LinearRule::gated_delta,
                   deltas = rule == LinearRule::delta || rule == LinearRule::gated_delta;
        const Explanation e = explain_linear_attention(text, rule, {.heads = heads, .dk = 4, .query = row});
        const Tensor q = of(e, "q"), k = of(e, "k"), v = of(e, "v");
        const std::int64_t rows = q.size(2), at = row < 0 ? rows - 1 : row;
        LinearAttentionOptions call{.l2norm = deltas};
        if (decays) call.g = log(of(e, "decay")).squeeze(-1);
        if (deltas) call.beta = of(e, "beta").squeeze(-1);
        const LinearAttentionResult all = linear_attention(q, k, v, call);
        EXPECT_TRUE(bits_equal(of(e, "context"), all.output));
        if (at == rows - 1) { EXPECT_TRUE(bits_equal(of(e, "state"), all.state)); }
        EXPECT_TRUE(bits_equal(of(e, "read"), all.output.slice(2, at, at + 1)));
        // by hand
        const auto here = [&](const std::string& name) { return of(e, name).slice(2, at, at + 1); };
        const Tensor before = of(e, "state_before"), held = decays ? of(e, "state_decayed") : before;
        if (decays) expect_near(held, before * here("decay"), "decay");
        const Tensor key = deltas ? here("k_unit") : here("k"), query = deltas ? here("q_unit") : here("q");
        if (deltas) {
          expect_near(of(e, "found"), matmul(key, held), "found");
          expect_near(of(e, "written"), here("beta") * (here("v") - of(e, "found")), "written");
        } else {
          EXPECT_TRUE(bits_equal(of(e, "written"), here("v")));
        }
        expect_near(of(e, "state"), held + matmul(key.transpose(2, 3), of(e, "written")), "state");
        expect_near(of(e, "read"), matmul(query, of(e, "state")) / 2.0, "read");
        if (!deltas) {  // each row wrote its value
          const Tensor reads = of(e, "weights").clone();
          for (std::int64_t i = 0; i + 1 < rows; ++i)
            for (std::int64_t j = i + 1; j < rows; ++j) reads.slice(2, i, i + 1).slice(3, j, j + 1).fill_(0);
          expect_near(of(e, "context"), matmul(reads, v), "without a state");
        }
        expect_drawn(e, {"q", "k", "v", "weights", "state_before", "written", "state", "read", "context"});
      }
}

TEST(ExplainLatent, WeightsAndContextsAreTheLibrarysAndFollowFromTheSteps) {
  for (const std::int64_t heads : {1, 2})
    for (const bool causal : {false, true}) {
      const Explanation e =
          explain_latent_attention(text, 5, {.mask = causal ? Mask::causal() : Mask(), .heads = heads, .dk = 3});
      const auto by_head = [&](const Tensor& x) { return heads == 1 ? x.unsqueeze(0) : x; };
      const LatentOperands o{.q_nope = of(e, "q"),
                             .q_rope = of(e, "q_rope"),
                             .latent = e.step("latent").values.unsqueeze(0),
                             .k_rope = e.step("k_rope").values.unsqueeze(0),
                             .w_uk = by_head(parameter(e, "w_uk")),
                             .w_uv = by_head(parameter(e, "w_uv")).transpose(1, 2)};
      const AttentionOptions call{.mask = causal ? Mask::causal() : Mask(), .weights = Weights::full};
      const AttentionResult absorbed = latent_attention(o, call, LatentForm::absorbed);
      EXPECT_TRUE(bits_equal(of(e, "weights"), absorbed.weights));
      EXPECT_TRUE(bits_equal(of(e, "context"), absorbed.output));
      EXPECT_TRUE(bits_equal(of(e, "expanded"), latent_attention(o, call, LatentForm::expanded).output));
      EXPECT_TRUE(bits_equal(e.step("row").values, cat({o.latent, o.k_rope}, 2).squeeze(0)));
      expect_near(of(e, "expanded"), of(e, "context"), "two orders");
      expect_near(of(e, "q_absorbed"), matmul(o.q_nope, o.w_uk.unsqueeze(0)), "absorbed");
      expect_near(of(e, "scores"), matmul(of(e, "q_row"), of(e, "row").transpose(2, 3)), "scores");
      expect_near(of(e, "scaled"), of(e, "scores") / std::sqrt(5.0), "scaled");
      if (!causal) expect_near(of(e, "weights"), softmax(of(e, "scaled"), -1), "weights");
      expect_near(of(e, "mean"), matmul(of(e, "weights"), of(e, "latent")), "mean");
      expect_near(of(e, "context"), matmul(of(e, "mean"), o.w_uv.transpose(1, 2).unsqueeze(0)), "context");
      expect_drawn(e, {"latent", "row", "q_absorbed", "scores", "weights", "mean", "context", "expanded"});
    }
}

TEST(ExplainTangent, IsTheLibrarysAndFollowsFromTheSteps) {
  for (const bool causal : {false, true})
    for (const double softcap : {0.0, 1.5})
      for (const double temperature : {1.0, 0.5}) {
        SCOPED_TRACE(::testing::Message() << causal << " " << softcap << " " << temperature);
        const Explanation e = explain_tangent(text, {.mask = causal ? Mask::causal() : Mask(),
                                                     .heads = 2,
                                                     .softcap = softcap,
                                                     .temperature = temperature,
                                                     .query = 2});
        const AttentionTangents along{.q = of(e, "q_tangent"), .k = of(e, "k_tangent"), .v = of(e, "v_tangent")};
        const AttentionOptions call{
            .mask = causal ? Mask::causal() : Mask(), .softcap = softcap, .temperature = temperature};
        const AttentionJvp jvp = attention_jvp(of(e, "q"), of(e, "k"), of(e, "v"), along, call);
        EXPECT_TRUE(bits_equal(of(e, "context"), jvp.output));
        EXPECT_TRUE(bits_equal(of(e, "context_tangent"), jvp.tangent.output));
        EXPECT_TRUE(bits_equal(of(e, "logsumexp_tangent"), jvp.tangent.logsumexp.unsqueeze(-1)));
        const std::string last = temperature != 1 ? "tempered_tangent"
                                 : softcap != 0   ? "capped_tangent"
                                                  : "scores_tangent";
        const Tensor weights = of(e, "weights"), moved = of(e, last), of_weights = of(e, "weights_tangent");
        expect_near(of(e, "logsumexp_tangent"), sum(weights * moved, {-1}, true), "mu");
        expect_near(of_weights, weights * (moved - of(e, "logsumexp_tangent")), "weights");
        expect_near(sum(of_weights, {-1}, true) + 1, ones({1, 2, weights.size(2), 1}), "rows sum to 0");
        expect_near(of(e, "context_tangent"), matmul(of_weights, of(e, "v")) + matmul(weights, along.v), "context");
        expect_drawn(e, {"q_tangent", "scores_tangent", "weights_tangent", "context_tangent", "query_scores"});
      }
}

TEST(ExplainMechanisms, SpeakChinese) {
  const ExplainOptions zh{.language = Language::zh};
  for (const Explanation& e : {explain_linear_attention(text, LinearRule::gated_delta, zh),
                               explain_latent_attention(text, 4, zh), explain_tangent(text, zh)})
    for (const ExplainStep& step : e.steps) {
      EXPECT_TRUE(has_chinese(step.title)) << step.name << ": " << step.title;
      EXPECT_TRUE(step.note.empty() || has_chinese(step.note)) << step.name << ": " << step.note;
    }
}

TEST(ExplainMechanisms, RefuseWhatTheyDoNotHaveByName) {
  EXPECT_EQ(error_of<ValueError>([] { explain_linear_attention(text, LinearRule::delta, {.softcap = 2}); }),
            "explain: linear attention has no option softcap; leave it out");
  EXPECT_EQ(error_of<ValueError>([] { explain_linear_attention(text, LinearRule::delta, {.query = 90}); }),
            "explain: query 90 is not there; the tokens are 0 to 5, or -6 to -1 from the end");
  EXPECT_EQ(error_of<ValueError>([] { explain_latent_attention(text, 4, {.gradients = true}); }),
            "explain: latent attention has no option gradients; leave it out");
  EXPECT_EQ(error_of<ValueError>([] { explain_latent_attention(text, 0); }),
            "explain: latent is 0; it must be 1 to 64");
  EXPECT_EQ(error_of<ValueError>([] { explain_tangent(text, {.dropout_p = 0.5}); }),
            "explain: forward mode has no option dropout_p; leave it out");
  EXPECT_EQ(error_of<ValueError>([] { explain_tangent(text, {.only = {"nothing"}}); }).substr(0, 44),
            "explain: there is no step \"nothing\"; there a");
}

}  // namespace
}  // namespace attn::testing
