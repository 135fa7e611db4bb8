// tests/model/speculative_test.cc: speculative decoding says what the model says alone, token for token.
#include <attn/generate.h>
#include <attn/ops.h>

#include "model/lively.h"
#include "model/tiny_models.h"
#include "support/errors.h"

#include <gtest/gtest.h>

namespace attn {
namespace {

using testing::error_of, testing::lively;
using Ids = std::vector<std::int64_t>;

// the third is longer than a context of 12
const std::vector<Ids> prompts = {{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 7}, {1, 2, 1, 2, 1}};

std::vector<Ids> tokens_of(const std::vector<Generated>& generated) {
  std::vector<Ids> result;
  for (const Generated& one : generated) result.push_back(one.tokens);
  return result;
}

/// A model that says nearly the same.
LanguageModel near(const LanguageModel& model, double change) {
  Generator generator(3);
  LanguageModel result(model.config, model.dtype(), &generator);
  const auto to = result.parameters(), from = model.parameters();
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i].detach().copy_(from[i].detach());
    to[i].detach().add_(randn(to[i].sizes(), generator).to(model.dtype()), change);
  }
  return result;
}

std::int64_t guessed(const std::vector<Generated>& all, bool right) {
  std::int64_t total = 0;
  for (const Generated& one : all) total += right ? one.guessed_right : one.guessed;
  return total;
}

TEST(Speculative, SaysTheSameTokenForToken) {
  for (const ModelConfig& config : {testing::tiny_gpt2(), testing::tiny_llama(), testing::tiny_mistral()})
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const LanguageModel model = lively(config, dtype), other = near(model, 0.1);
      for (const SampleOptions& sample :
           {SampleOptions{.temperature = 0}, SampleOptions{},
            SampleOptions{.temperature = 0.8, .top_k = 7, .top_p = 0.9, .repetition_penalty = 1.3, .min_p = 0.05}}) {
        GenerateOptions options{.tokens = 40, .sample = sample, .seed = 3, .log_probabilities = true};
        const std::vector<Generated> alone = generate(model, prompts, options);
        EXPECT_EQ(guessed(alone, false), 0);
        for (const Draft& draft : {Draft{.model = &other}, Draft{.model = &model}, Draft{.ngram = 3},
                                   Draft{.ngram = 2, .tokens = 1}, Draft{.model = &other, .ngram = 3, .tokens = 30}}) {
          options.draft = draft;
          for (const bool cache : {true, false}) {
            options.cache = cache;
            const std::vector<Generated> drafted = generate(model, prompts, options);
            EXPECT_EQ(tokens_of(drafted), tokens_of(alone));
            for (std::size_t i = 0; i < prompts.size(); ++i) {
              EXPECT_EQ(drafted[i].log_probabilities, alone[i].log_probabilities);
              const Generated one = generate(model, {prompts[i]}, options)[0];
              EXPECT_EQ(one.tokens, alone[i].tokens);
              EXPECT_EQ(one.guessed, drafted[i].guessed);
              EXPECT_EQ(one.guessed_right, drafted[i].guessed_right);
            }
            const std::int64_t all = guessed(drafted, false), right = guessed(drafted, true);
            EXPECT_GT(right, 0);
            // the model itself guesses everything right, the random numbers too
            if (draft.model == &model) EXPECT_EQ(right, all);
            else EXPECT_LT(right, all);
          }
        }
      }
    }
}

TEST(Speculative, EndsWhereTheModelEnds) {
  const LanguageModel model = lively(testing::tiny_gpt2());
  const GenerateOptions greedy{.tokens = 12, .sample = {.temperature = 0}};
  const Ids all = generate(model, {{1}}, greedy)[0].tokens;
  for (const std::int64_t end : all) {
    GenerateOptions options = greedy;
    options.end_tokens = Ids{end};
    const Generated alone = generate(model, {{1}}, options)[0];
    options.draft = {.model = &model};
    const Generated drafted = generate(model, {{1}}, options)[0];
    EXPECT_EQ(drafted.tokens, alone.tokens);
    EXPECT_EQ(drafted.finish, Finish::end);
  }
  for (std::int64_t tokens = 0; tokens < 10; ++tokens) {
    GenerateOptions options = greedy;
    options.draft = {.model = &model};
    options.tokens = tokens;
    EXPECT_EQ(generate(model, {{1}}, options)[0].tokens, Ids(all.begin(), all.begin() + tokens));
    Ids said;
    options.tokens = 12;
    options.on_token = [&](std::size_t, std::int64_t token) {
      said.push_back(token);
      return std::ssize(said) <= tokens;
    };
    const Generated stopped = generate(model, {{1}}, options)[0];
    EXPECT_EQ(stopped.tokens, Ids(all.begin(), all.begin() + tokens + 1));
    EXPECT_EQ(stopped.tokens, said);
    EXPECT_EQ(stopped.finish, Finish::stopped);
  }
}

TEST(Speculative, RefusedTokensLeaveTheCache) {
  const LanguageModel model = lively(testing::tiny_llama()), other = near(model, 0.3);
  for (const KvStorage storage : {KvStorage::same, KvStorage::int8}) {
    ModelCache plain(model.config, 2, Dtype::f32, storage), drafted(model.config, 2, Dtype::f32, storage);
    GenerateOptions options{.tokens = 7, .model_cache = &plain};
    std::vector<Ids> texts = {{1, 2, 3}, {4}};
    for (int turn = 0; turn < 3; ++turn) {
      options.model_cache = &plain;
      options.draft = {};
      const auto alone = generate(model, texts, options);
      options.model_cache = &drafted;
      options.draft = {.model = &other, .ngram = 1};
      EXPECT_EQ(tokens_of(generate(model, texts, options)), tokens_of(alone));
      for (std::size_t i = 0; i < texts.size(); ++i) {
        texts[i].insert(texts[i].end(), alone[i].tokens.begin(), alone[i].tokens.end());
        const auto sequence = static_cast<std::int64_t>(i);
        EXPECT_EQ(drafted.tokens(sequence), plain.tokens(sequence));
        EXPECT_EQ(drafted.length(sequence), std::ssize(drafted.tokens(sequence)));
        if (texts[i].size() <= 12) { EXPECT_EQ(drafted.tokens(sequence), Ids(texts[i].begin(), texts[i].end() - 1)); }
      }
    }
  }
}

// the draft may know fewer tokens, or more, or have a shorter context
TEST(Speculative, AnyModelMayGuess) {
  ModelConfig config = testing::tiny_llama();
  const LanguageModel model = lively(config);
  const GenerateOptions plain{.tokens = 40};
  const auto alone = tokens_of(generate(model, prompts, plain));
  for (const std::int64_t vocab_size : {5, 13, 40})
    for (const std::int64_t context : {2, 12, 30}) {
      config.vocab_size = vocab_size;
      config.context = context;
      const LanguageModel other = lively(config);
      GenerateOptions options = plain;
      options.draft = {.model = &other};
      EXPECT_EQ(tokens_of(generate(model, prompts, options)), alone) << vocab_size << ", " << context;
    }
}

TEST(Speculative, LeavesTheDraftAsItWas) {
  ModelConfig config = testing::tiny_gpt2();
  config.dropout = 0.5;
  const LanguageModel model = lively(config), other = near(model, 0.1);
  const Generated first = generate(model, {{1}}, {.tokens = 8, .draft = {.model = &other}})[0];
  EXPECT_EQ(generate(model, {{1}}, {.tokens = 8, .draft = {.model = &other}})[0].guessed_right, first.guessed_right);
  EXPECT_TRUE(other.is_training());
  EXPECT_TRUE(model.is_training());
}

TEST(Speculative, Errors) {
  const LanguageModel model = lively(testing::tiny_gpt2());
  const auto refused = [&](const Draft& draft) {
    return error_of<ValueError>([&] { generate(model, {{1}}, {.draft = draft}); });
  };
  EXPECT_EQ(refused({.tokens = 0}), "generate: draft.tokens is 0; it must be at least 1");
  EXPECT_EQ(refused({.ngram = -1}), "generate: draft.ngram is -1; it must be 0 or more");
}

}  // namespace
}  // namespace attn
