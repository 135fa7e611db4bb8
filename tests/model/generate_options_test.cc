// tests/model/generate_options_test.cc: several texts of a prompt, min_p, a hook on the logits, the caller's cache.
#include <attn/generate.h>
#include <attn/ops.h>

#include "model/lively.h"
#include "model/tiny_models.h"
#include "support/errors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace attn {
namespace {

using testing::error_of, testing::lively;
using Ids = std::vector<std::int64_t>;

TEST(GenerateOptions, SamplesAreTheTextsOfTheNextSeeds) {
  for (const ModelConfig& config : {testing::tiny_gpt2(), testing::tiny_llama()}) {
    const LanguageModel model = lively(config);
    // of one token, of several, longer than the context
    const std::vector<Ids> prompts = {{4}, {1, 2, 3}, {5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 7}};
    for (const Draft& draft : {Draft{}, Draft{.ngram = 3}})
      for (const bool cache : {true, false}) {
        std::set<std::size_t> heard;
        const GenerateOptions options{.tokens = 25, .seed = 8, .samples = 3, .cache = cache, .draft = draft};
        GenerateOptions listening = options;
        listening.on_token = [&](std::size_t index, std::int64_t) {
          heard.insert(index);
          return true;
        };
        const std::vector<Generated> all = generate(model, prompts, listening);
        ASSERT_EQ(all.size(), 9u);
        EXPECT_EQ(heard.size(), 9u);
        for (std::size_t i = 0; i < all.size(); ++i)
          EXPECT_EQ(all[i].tokens, generate(model, {prompts[i / 3]}, {.tokens = 25, .seed = 8 + i % 3})[0].tokens) << i;
        EXPECT_NE(all[0].tokens, all[1].tokens);
      }
  }
}

TEST(GenerateOptions, MinPKeepsWhatIsProbableEnough) {
  const Tensor logits = log(tensor<float>({0.4f, 0.3f, 0.2f, 0.1f}));
  const auto drawn = [&](const SampleOptions& options) {
    Generator generator(1);
    std::set<std::int64_t> ids;
    for (int i = 0; i < 500; ++i) ids.insert(sample(logits, {}, options, generator));
    return ids;
  };
  EXPECT_EQ(drawn({.min_p = 0}), (std::set<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(drawn({.min_p = 0.4}), (std::set<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(drawn({.min_p = 0.6}), (std::set<std::int64_t>{0, 1}));
  EXPECT_EQ(drawn({.min_p = 1}), (std::set<std::int64_t>{0}));
  EXPECT_EQ(drawn({.temperature = 3, .min_p = 0.6}), (std::set<std::int64_t>{0, 1, 2, 3}));  // after the temperature
  EXPECT_EQ(error_of<ValueError>([&] { drawn({.min_p = 1.5}); }), "generate: min_p is 1.5; it must be from 0 to 1");
  EXPECT_EQ(error_of<ValueError>([&] { drawn({.min_p = -1}); }), "generate: min_p is -1; it must be from 0 to 1");
  EXPECT_EQ(error_of<ValueError>([&] { drawn({.min_p = NAN}); }), "generate: min_p is nan; it must be from 0 to 1");
}

TEST(GenerateOptions, AHookMayChangeTheLogits) {
  const LanguageModel model = lively(testing::tiny_gpt2());
  const std::vector<Ids> prompts = {{1, 2, 3}, {4}};
  const GenerateOptions plain{.tokens = 15, .log_probabilities = true};
  const auto alone = generate(model, prompts, plain);
  for (const Draft& draft : {Draft{}, Draft{.model = &model}, Draft{.ngram = 2}}) {
    GenerateOptions options = plain;
    options.draft = draft;
    std::vector<Ids> seen(2);
    options.on_logits = [&](std::size_t index, const Ids& text, const Tensor& logits) {
      EXPECT_EQ(logits.sizes(), (Dims{13}));
      seen[index].push_back(std::ssize(text));
    };
    const auto heard = generate(model, prompts, options);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(heard[i].tokens, alone[i].tokens);
      ASSERT_EQ(seen[i].size(), 15u);  // once for each token
      for (std::size_t n = 0; n < 15; ++n) EXPECT_EQ(seen[i][n], static_cast<std::int64_t>(prompts[i].size() + n));
    }
    // even tokens only
    options.on_logits = [&](std::size_t, const Ids&, const Tensor& logits) {
      for (std::int64_t id = 1; id < 13; id += 2) logits.data<float>()[id] = -std::numeric_limits<float>::infinity();
    };
    const auto even = generate(model, prompts, options);
    for (const Generated& one : even)
      for (std::size_t n = 0; n < one.tokens.size(); ++n) {
        EXPECT_EQ(one.tokens[n] % 2, 0);
        EXPECT_LT(one.log_probabilities[n], 0);  // the model's own
      }
  }
}

TEST(GenerateOptions, GoesOnWithACache) {
  for (const ModelConfig& config : {testing::tiny_gpt2(), testing::tiny_mistral()}) {
    const LanguageModel model = lively(config);
    ModelCache cache(config, 2);
    std::vector<Ids> texts = {{1, 2, 3}, {4}};
    for (int turn = 0; turn < 4; ++turn) {
      const auto fresh = generate(model, texts, {.tokens = 4});
      const auto going_on = generate(model, texts, {.tokens = 4, .model_cache = &cache});
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(going_on[i].tokens, fresh[i].tokens);
        texts[i].insert(texts[i].end(), fresh[i].tokens.begin(), fresh[i].tokens.end());
        texts[i].push_back(turn);
      }
    }
    // another text: only what they have in common is kept
    ModelCache one(config, 1);
    generate(model, {{1, 2, 3, 4, 5}}, {.tokens = 2, .model_cache = &one});
    EXPECT_EQ(one.keep_common(0, Ids{1, 2, 3, 9}), 3);
    EXPECT_EQ(one.tokens(0), (Ids{1, 2, 3}));
    EXPECT_EQ(generate(model, {{1, 2, 7}}, {.tokens = 6, .model_cache = &one})[0].tokens,
              generate(model, {{1, 2, 7}}, {.tokens = 6})[0].tokens);
  }
}

TEST(GenerateOptions, AnInt8CacheSaysTheSameInABatchAndStepByStep) {
  const LanguageModel model = lively(testing::tiny_llama());
  const std::vector<Ids> prompts = {{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 7}};
  ModelCache together(model.config, 3, Dtype::f32, KvStorage::int8);
  const auto all = generate(model, prompts, {.tokens = 30, .model_cache = &together});
  bool differs = false;
  for (std::size_t i = 0; i < 3; ++i) {
    ModelCache alone(model.config, 1, Dtype::f32, KvStorage::int8);
    Ids text = prompts[i];
    const Generated one = generate(model, {text}, {.tokens = 30, .model_cache = &alone})[0];
    EXPECT_EQ(one.tokens, all[i].tokens);
    differs = differs || one.tokens != generate(model, {text}, {.tokens = 30})[0].tokens;
  }
  EXPECT_TRUE(differs);  // else the cache was not int8
}

TEST(GenerateOptions, Errors) {
  const LanguageModel model = lively(testing::tiny_gpt2());
  ModelCache two(model.config, 2), half(model.config, 1, Dtype::bf16);
  const auto refused = [&](const GenerateOptions& options) {
    return error_of<Error>([&] { generate(model, {{1}}, options); });
  };
  EXPECT_EQ(refused({.samples = 0}), "generate: samples is 0; it must be at least 1");
  EXPECT_EQ(refused({.samples = std::numeric_limits<std::int64_t>::max()}),
            "generate: samples is 9223372036854775807; it must be at most 1048576");
  EXPECT_EQ(refused({.model_cache = &two}), "generate: model_cache has 2 sequences; it must have 1, one for each text");
  EXPECT_EQ(refused({.model_cache = &half}), "generate: model_cache is bf16; it must be f32 as the model");
  EXPECT_EQ(refused({.samples = 2, .cache = false, .model_cache = &two}),
            "generate: model_cache is given and cache is false");
}

}  // namespace
}  // namespace attn
