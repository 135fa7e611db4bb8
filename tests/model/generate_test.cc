// tests/model/generate_test.cc: what a model says does not depend on cache, batch or threads; sampling; windows;
// stopping.
#include <attn/generate.h>
#include <attn/ops.h>
#include <attn/runtime.h>

#include "model/lively.h"
#include "model/tiny_models.h"
#include "support/errors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace attn {
namespace {

using testing::error_of, testing::lively;
using Ids = std::vector<std::int64_t>;

// the third longer than a context of 12
const std::vector<Ids> prompts = {{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 7}, {1, 2, 3}};

std::vector<Ids> tokens_of(const std::vector<Generated>& generated) {
  std::vector<Ids> result;
  for (const Generated& one : generated) result.push_back(one.tokens);
  return result;
}

TEST(Generate, DependsNeitherOnCacheNorBatchNorThreads) {
  const int before = num_threads();
  for (const ModelConfig& config : {testing::tiny_gpt2(), testing::tiny_llama()})
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const LanguageModel model = lively(config, dtype);
      for (const SampleOptions& sample :
           {SampleOptions{.temperature = 0}, SampleOptions{},
            SampleOptions{.temperature = 0.8, .top_k = 7, .top_p = 0.9, .repetition_penalty = 1.3}}) {
        GenerateOptions options{.tokens = 30, .sample = sample, .seed = 3};
        const std::vector<Ids> together = tokens_of(generate(model, prompts, options));
        EXPECT_EQ(together[0], together[3]);
        EXPECT_EQ(together[0].size(), 30u);
        EXPECT_NE(together[0], together[1]);
        EXPECT_GT(std::set<std::int64_t>(together[2].begin(), together[2].end()).size(), 3u);
        options.cache = false;
        EXPECT_EQ(tokens_of(generate(model, prompts, options)), together);
        for (std::size_t i = 0; i < prompts.size(); ++i)
          for (const bool cache : {true, false}) {
            options.cache = cache;
            EXPECT_EQ(generate(model, {prompts[i]}, options)[0].tokens, together[i]);
          }
        for (const int threads : {1, 2, 3, 8}) {
          set_num_threads(threads);
          EXPECT_EQ(tokens_of(generate(model, prompts, options)), together);
        }
        set_num_threads(before);
      }
    }
}

TEST(Generate, GreedyIsTheLargestLogitStepByStep) {
  const LanguageModel model = lively(testing::tiny_gpt2());
  Ids ids = {1, 2, 3};
  const Ids said = generate(model, {ids}, {.tokens = 9, .sample = {.temperature = 0}})[0].tokens;
  for (const std::int64_t token : said) {
    EXPECT_EQ(token, argmax(model(tensor<std::int64_t>(ids).unsqueeze(0)).select(1, -1)).item_int());
    ids.push_back(token);
  }
}

TEST(Generate, ForgetsHalfAContextAtATime) {
  const LanguageModel model = lively(testing::tiny_llama());  // context 12
  Ids ids = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const Ids said = generate(model, {ids}, {.tokens = 10, .sample = {.temperature = 0}})[0].tokens;
  for (const std::int64_t token : said) {
    const auto n = static_cast<std::int64_t>(ids.size());
    const std::int64_t first = n <= 12 ? 0 : n <= 18 ? 6 : 12;
    const Ids seen(ids.begin() + first, ids.end());
    EXPECT_EQ(token, argmax(model(tensor<std::int64_t>(seen).unsqueeze(0)).select(1, -1)).item_int()) << n;
    ids.push_back(token);
  }
}

TEST(Generate, EndsWhereItIsTold) {
  const LanguageModel model = lively(testing::tiny_gpt2());
  const Ids all = generate(model, {{1}}, {.tokens = 12, .sample = {.temperature = 0}})[0].tokens;
  const auto place = static_cast<std::size_t>(std::find(all.begin(), all.end(), all[5]) - all.begin());
  const Generated ended =
      generate(model, {{1}}, {.tokens = 12, .sample = {.temperature = 0}, .end_tokens = Ids{all[5]}})[0];
  EXPECT_EQ(ended.tokens, Ids(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(place)));
  EXPECT_EQ(ended.finish, Finish::end);
  std::vector<std::size_t> calls;
  const auto both = generate(model, {{1}, {1}}, {.tokens = 4, .on_token = [&](std::size_t prompt, std::int64_t) {
                                                   calls.push_back(prompt);
                                                   return prompt != 0;
                                                 }});
  EXPECT_EQ(calls, (std::vector<std::size_t>{0, 1, 1, 1, 1}));
  EXPECT_EQ(both[0].finish, Finish::stopped);
  EXPECT_EQ(both[0].tokens.size(), 1u);
  EXPECT_EQ(both[1].finish, Finish::length);
  EXPECT_TRUE(generate(model, {{1}}, {.tokens = 0})[0].tokens.empty());
  EXPECT_TRUE(generate(model, {}, {}).empty());
}

TEST(Generate, LeavesTheModelAsItWas) {
  ModelConfig config = testing::tiny_gpt2();
  config.dropout = 0.5;
  const LanguageModel model = lively(config);
  manual_seed(1);
  const Ids first = generate(model, {{1}}, {.tokens = 8})[0].tokens;
  EXPECT_EQ(generate(model, {{1}}, {.tokens = 8})[0].tokens, first);  // no dropout
  EXPECT_TRUE(model.is_training());
}

/// How often each id comes in `draws` draws.
std::map<std::int64_t, int> counts(const Tensor& logits, const SampleOptions& options, int draws,
                                   const Ids& before = {}) {
  Generator generator(1);
  std::map<std::int64_t, int> result;
  for (int i = 0; i < draws; ++i) ++result[sample(logits, before, options, generator)];
  return result;
}

/// Within five standard deviations of a binomial count.
void expect_share(int count, double share, int draws) {
  EXPECT_NEAR(count, share * draws, 5 * std::sqrt(share * (1 - share) * draws));
}

TEST(Sample, HasTheProbabilitiesOfTheSoftmax) {
  const int draws = 20000;
  const Tensor logits = tensor<float>({0, 1, 2, -1, -std::numeric_limits<float>::infinity()});
  for (const double temperature : {0.5, 1.0, 2.0}) {
    const auto drawn = counts(logits, {.temperature = temperature}, draws);
    const std::vector<double> p = softmax(logits.to(Dtype::f64) / temperature, 0).to_vector();
    for (std::int64_t id = 0; id < 4; ++id) expect_share(drawn.at(id), p[static_cast<std::size_t>(id)], draws);
    EXPECT_FALSE(drawn.contains(4));
  }
}

TEST(Sample, TopKTopPAndPenalty) {
  const int draws = 20000;
  const Tensor logits = log(tensor<float>({0.1f, 0.4f, 0.2f, 0.3f}));
  auto drawn = counts(logits, {.top_k = 2}, draws);
  EXPECT_EQ(drawn.size(), 2u);
  expect_share(drawn.at(1), 4.0 / 7, draws);
  drawn = counts(logits, {.top_p = 0.65}, draws);  // 0.4 + 0.3
  EXPECT_EQ(drawn.size(), 2u);
  expect_share(drawn.at(3), 3.0 / 7, draws);
  EXPECT_EQ(counts(logits, {.top_p = 0.71}, 2000).size(), 3u);
  EXPECT_EQ(counts(logits, {.top_p = 1e-9}, 100), (std::map<std::int64_t, int>{{1, 100}}));
  EXPECT_EQ(counts(logits, {.top_k = 1}, 100), (std::map<std::int64_t, int>{{1, 100}}));
  EXPECT_EQ(counts(zeros({5}), {.top_k = 2}, 500).rbegin()->first, 1);  // of equals the first
  EXPECT_EQ(counts(zeros({5}), {.temperature = 0}, 3), (std::map<std::int64_t, int>{{0, 3}}));
  // 2 / 2 for what was said, -1 * 2: the likeliest changes.
  const Tensor two = tensor<float>({2, 1.5, -1});
  EXPECT_EQ(counts(two, {.temperature = 0, .repetition_penalty = 2}, 1, {0, 0, 2}).begin()->first, 1);
  expect_share(counts(two, {.repetition_penalty = 2}, draws, {0, 0, 2}).at(2),
               softmax(tensor<double>({1, 1.5, -2}), 0).to_vector()[2], draws);
}

TEST(Sample, HugeLogitsAndSmallTemperatures) {
  EXPECT_EQ(counts(tensor<float>({1e38f, 3e38f, -3e38f}), {.temperature = 1e-300}, 50),
            (std::map<std::int64_t, int>{{1, 50}}));
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(counts(tensor<float>({1, infinity, -infinity}), {}, 50), (std::map<std::int64_t, int>{{1, 50}}));
  Generator generator(1);
  EXPECT_EQ(error_of<ValueError>([&] { sample(tensor<float>({1, NAN}), {}, {}, generator); }),
            "generate: a logit is NaN; the model's weights are damaged");
  EXPECT_EQ(error_of<ValueError>([&] { sample(tensor<float>({-infinity}), {}, {}, generator); }),
            "generate: no token has a logit above -inf");
}

TEST(Generate, Errors) {
  const LanguageModel model = lively(testing::tiny_gpt2());
  const auto refused = [&](const GenerateOptions& options) {
    return error_of<ValueError>([&] { generate(model, {{1}}, options); });
  };
  EXPECT_EQ(refused({.sample = {.temperature = -1}}), "generate: temperature is -1; it must be 0 or more, and finite");
  EXPECT_EQ(refused({.sample = {.temperature = NAN}}),
            "generate: temperature is nan; it must be 0 or more, and finite");
  EXPECT_EQ(refused({.sample = {.top_k = -2}}), "generate: top_k is -2; it must be 0 (all) or more");
  EXPECT_EQ(refused({.sample = {.top_p = 0}}), "generate: top_p is 0; it must be above 0, at most 1");
  EXPECT_EQ(refused({.sample = {.repetition_penalty = 0}}),
            "generate: repetition_penalty is 0; it must be above 0, and finite");
  EXPECT_EQ(refused({.tokens = -1}), "generate: tokens is -1; it must be 0 or more");
  EXPECT_EQ(error_of<ValueError>([&] { generate(model, {{1}, {}}); }),
            "generate: prompt 1 is empty; it must have a token");
  EXPECT_EQ(error_of<ValueError>([&] { generate(model, {{13}}); }),
            "generate: the prompt holds the token 13; it must be from 0 to 12");
}

}  // namespace
}  // namespace attn
