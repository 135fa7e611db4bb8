// tests/attention/enum_values_test.cc: a number that is no value of its enumeration (a wrong cast, memory that was
// never set) is an error wherever a call takes an enumeration.
#include <attn/attn.h>
#include <attn/explain.h>
#include <attn/nn/init.h>
#include <attn/optim.h>
#include <attn/text.h>

#include "support/errors.h"

#include <gtest/gtest.h>

#include <functional>

namespace attn::testing {
namespace {

template <typename Enum>
Enum wrong(int value) {
  return static_cast<Enum>(value);
}

struct Case {
  const char* what;
  std::function<void(int)> call;
};

TEST(EnumValues, AWrongNumberIsAnErrorThatNamesTheArgument) {
  const Tensor x = ones({1, 2, 3, 4});
  const auto attend = [&](const AttentionOptions& options) { attention(x, x, x, options); };
  const auto shown = [](const ExplainOptions& options) { explain("a b", options); };
  const Case cases[] = {
      {"attention: the alignment of causal", [&](int n) { attend({.mask = Mask::causal(wrong<Align>(n))}); }},
      {"attention: the alignment of window", [&](int n) { attend({.mask = Mask::window(1, 0, wrong<Align>(n))}); }},
      {"attention: the alignment of alibi", [&](int n) { attend({.bias = Bias::alibi(ones({2}), wrong<Align>(n))}); }},
      {"attention: the alignment of relative",
       [&](int n) { attend({.bias = Bias::relative(ones({4, 2}), false, 8, wrong<Align>(n))}); }},
      {"attention: the kind of weights", [&](int n) { attend({.weights = wrong<Weights::Kind>(n)}); }},
      {"attention: the kind of the score",
       [&](int n) {
         AttentionOptions options;
         options.score.kind = wrong<Score::Kind>(n);
         attend(options);
       }},
      {"KvCache: storage",
       [](int n) { KvCache({.key_heads = 1, .head_dim = 8, .pages = 1, .storage = wrong<KvStorage>(n)}); }},
      {"dtype", [](int n) { randn({2}, wrong<Dtype>(n)); }},
      {"dtype", [](int n) { empty({2}, wrong<Dtype>(n)); }},
      {"dtype", [&](int n) { x.to(wrong<Dtype>(n)); }},
      {"dtype",
       [](int n) {
         float one[1] = {};
         Tensor::from_blob(one, {1}, wrong<Dtype>(n));
       }},
      {"dtype", [](int n) { KvCache({.key_heads = 1, .head_dim = 8, .pages = 1, .dtype = wrong<Dtype>(n)}); }},
      {"gelu: approximate", [&](int n) { gelu(x, wrong<GeluApproximate>(n)); }},
      {"cross_entropy: reduction",
       [](int n) { cross_entropy(ones({1, 2}), zeros({1}, Dtype::i64), {.reduction = wrong<Reduction>(n)}); }},
      {"calculate_gain: nonlinearity", [](int n) { nn::init::calculate_gain(wrong<nn::init::Nonlinearity>(n)); }},
      {"kaiming_uniform_: mode",
       [](int n) { nn::init::kaiming_uniform_(ones({2, 2}), {.mode = wrong<nn::init::FanMode>(n)}); }},
      {"Schedule: decay",
       [](int n) {
         optim::Schedule schedule;
         schedule.decay = wrong<optim::Schedule::Decay>(n);
         schedule(0);
       }},
      {"split: tokens", [](int n) { text::split("a b", wrong<text::Tokens>(n)); }},
      {"explain: tokens", [&](int n) { shown({.tokens = wrong<text::Tokens>(n)}); }},
      {"explain: positions", [&](int n) { shown({.positions = wrong<Positions>(n)}); }},
      {"explain: bias", [&](int n) { shown({.bias = wrong<ExplainBias>(n)}); }},
      {"explain: cache", [&](int n) { shown({.cache = wrong<KvStorage>(n)}); }},
      {"explain: language", [&](int n) { shown({.language = wrong<Language>(n)}); }},
      {"to_text: colour", [](int n) { to_text(explain("a"), {.colour = wrong<TextOptions::Colour>(n)}); }},
  };
  for (const Case& one : cases)
    for (const int n : {-1, 9, 77}) {
      const std::string text = error_of<ValueError>([&] { one.call(n); });
      EXPECT_TRUE(text.starts_with(one.what)) << one.what << ": " << text;
      EXPECT_TRUE(text.find("; the enumeration has no such value") != std::string::npos) << text;
    }
}

}  // namespace
}  // namespace attn::testing
