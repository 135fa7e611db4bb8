// tests/model/text_generation_test.cc: generation in steps, and the function that is called between passes.
#include <attn/autograd.h>
#include <attn/generate.h>
#include <attn/ops.h>

#include "model/lively.h"
#include "model/tiny_models.h"
#include "support/errors.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace attn {
namespace {

using testing::error_of, testing::lively;
using Ids = std::vector<std::int64_t>;

Tokenizer letters() { return Tokenizer::train("abcdefghijklm", Tokenizer::Kind::characters); }  // 13, as the model has

std::vector<Ids> encoded(const std::vector<std::string>& prompts) {
  std::vector<Ids> ids;
  for (const std::string& prompt : prompts) ids.push_back(letters().encode(prompt));
  return ids;
}

TEST(TextGeneration, IsGenerateTextInSteps) {
  const LanguageModel model = lively(testing::tiny_llama());
  const std::vector<std::string> prompts = {"abc", "d", "abababab"};
  const std::vector<GenerateTextOptions> all = {
      {.tokens = {.tokens = 20, .seed = 3, .log_probabilities = true}},
      {.tokens = {.tokens = 20, .samples = 2}},
      {.tokens = {.tokens = 20, .sample = {.temperature = 0.5}, .draft = {.ngram = 3}}},
      {.tokens = {.tokens = 20, .seed = 1}, .stop = {"a", "ef"}},
      {.tokens = {.tokens = 20, .end_tokens = Ids{2, 5}, .cache = false}},
      {.tokens = {.tokens = 0}}};
  for (GenerateTextOptions options : all) {
    std::vector<std::string> heard(6), heard_in_steps(6);
    options.on_text = [&](std::size_t i, std::string_view piece) {
      heard[i] += piece;
      return true;
    };
    const auto expected = generate_text(model, letters(), prompts, options);
    options.on_text = [&](std::size_t i, std::string_view piece) {
      heard_in_steps[i] += piece;
      return true;
    };
    TextGeneration run(model, letters(), encoded(prompts), options);
    std::int64_t steps = 0;
    while (run.step()) {
      ++steps;
      const auto so_far = run.texts();
      ASSERT_EQ(so_far.size(), expected.size());
      bool open = false;
      for (std::size_t i = 0; i < so_far.size(); ++i) {
        EXPECT_TRUE(expected[i].text.starts_with(so_far[i].text));
        EXPECT_LE(so_far[i].tokens.size(), expected[i].tokens.size());
        open = open || so_far[i].finish == Finish::stopped;
      }
      EXPECT_TRUE(open);
    }
    EXPECT_FALSE(run.step());
    EXPECT_LE(steps, options.tokens.tokens);
    const auto texts = run.texts();
    ASSERT_EQ(texts.size(), expected.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(texts[i].text, expected[i].text);
      EXPECT_EQ(texts[i].tokens, expected[i].tokens);
      EXPECT_EQ(texts[i].finish, expected[i].finish);
      EXPECT_EQ(texts[i].log_probabilities, expected[i].log_probabilities);
      EXPECT_EQ(texts[i].guessed, expected[i].guessed);
      EXPECT_EQ(texts[i].guessed_right, expected[i].guessed_right);
    }
    EXPECT_EQ(heard_in_steps, heard);
  }
}

TEST(TextGeneration, WithoutATokenizerThereAreTokensAlone) {
  const LanguageModel model = lively(testing::tiny_gpt2());
  TextGeneration run(model, Tokenizer(), {{1, 2, 3}}, {.tokens = {.tokens = 7}});
  while (run.step()) {}
  EXPECT_EQ(run.texts()[0].text, "");
  EXPECT_EQ(run.texts()[0].tokens, generate(model, {{1, 2, 3}}, {.tokens = 7})[0].tokens);
  EXPECT_EQ(error_of<ValueError>([&] { TextGeneration(model, Tokenizer(), {{1, 99}}); }),
            "generate: the prompt holds the token 99; it must be from 0 to 12");
  EXPECT_EQ(error_of<ValueError>([&] { TextGeneration(model, letters(), {{1}}, {.stop = {""}}); }),
            "generate: a stop text is empty; each must have a character");
}

TEST(TextGeneration, AStepThatThrowsMayBeRepeated) {
  const LanguageModel model = lively(testing::tiny_llama());
  for (const std::int64_t samples : {1, 3})
    for (const std::int64_t ngram : {0, 3}) {
      GenerateTextOptions options{.tokens = {.tokens = 20, .samples = samples, .draft = {.ngram = ngram}}};
      const auto expected = generate_text(model, letters(), {"abcabc", "d"}, options);
      int passes = 0, choices = 0, thrown = 0;
      const auto sometimes = [&](int& n) {
        if (++n == 1 || n == 4 || n == 13 || n == 22) {
          ++thrown;
          throw std::runtime_error("interrupted");
        }
      };
      options.tokens.on_pass = [&] { sometimes(passes); };
      options.tokens.on_logits = [&](std::size_t, const Ids&, const Tensor&) { sometimes(choices); };
      TextGeneration run(model, letters(), encoded({"abcabc", "d"}), options);
      for (bool more = true; more;) {
        try {
          more = run.step();
        } catch (const std::runtime_error&) {}
      }
      EXPECT_GE(thrown, 7);
      const auto texts = run.texts();
      for (std::size_t i = 0; i < texts.size(); ++i) {
        EXPECT_EQ(texts[i].text, expected[i].text);
        EXPECT_EQ(texts[i].tokens, expected[i].tokens);
      }
    }
}

/// The same prompt, computed at once before the call, gives what the call says of it in passes.
TEST(OnPass, ALongPromptIsComputedInPartsWithTheSameBits) {
  ModelConfig config = testing::tiny_llama();
  config.context = 2000;
  ModelConfig dynamic = config;  // a text of other length has other frequencies: it is computed at once
  dynamic.rotary_scaling.emplace();
  dynamic.rotary_scaling->kind = nn::RotaryScaling::Kind::dynamic;
  dynamic.rotary_scaling->factor = 2;
  dynamic.rotary_scaling->original_context = 1000;
  Ids prompt;
  for (std::int64_t i = 0; i < 1300; ++i) prompt.push_back((i * i + i / 7) % 13);
  for (const ModelConfig& each : {config, dynamic}) {
    const LanguageModel model = lively(each);
    for (const ModelCacheOptions& cache_options :
         {ModelCacheOptions{}, ModelCacheOptions{.storage = KvStorage::int8},
          ModelCacheOptions{.window = 100, .sinks = 2}, ModelCacheOptions{.sequences = 2, .page_rows = 64}}) {
      GenerateOptions options{.tokens = 8, .samples = cache_options.sequences, .log_probabilities = true};
      ModelCache cache(each, cache_options), cache_of_parts(each, cache_options);
      options.model_cache = &cache;
      const NoGrad no_grad;
      model.hidden(tensor<std::int64_t>(Ids(prompt.begin(), prompt.end() - 1)).unsqueeze(0), cache, {0});
      const auto expected = generate(model, {prompt}, options);
      int passes = 0;
      options.model_cache = &cache_of_parts;
      options.on_pass = [&] { ++passes; };
      const auto found = generate(model, {prompt}, options);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(found[i].tokens, expected[i].tokens);
        EXPECT_EQ(found[i].log_probabilities, expected[i].log_probabilities);
      }
      const int samples = static_cast<int>(cache_options.sequences);
      EXPECT_TRUE(each.rotary_scaling || passes == (samples == 1 ? 13 : 14)) << passes;
      EXPECT_EQ(cache_of_parts.tokens(0), cache.tokens(0));
    }
  }
}

}  // namespace
}  // namespace attn
