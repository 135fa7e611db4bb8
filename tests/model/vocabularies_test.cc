// tests/model/vocabularies_test.cc: a tokenizer whose ids are not those of the model: holes, ids that only one of the
// two has. Figures of transformers.
#include "model/tiny_models.h"
#include "support/errors.h"
#include "support/golden.h"

#include <attn/explain_model.h>
#include <attn/generate.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace attn {
namespace {

using testing::error_of;
using Ids = std::vector<std::int64_t>;

const nlohmann::json& figures() { return testing::golden("model/vocabularies.json"); }
Tokenizer tokenizer() { return Tokenizer::parse(figures().at("tokenizer").dump()); }
LanguageModel model() { return LanguageModel::load(testing::golden_folder("gpt2")); }

TEST(Vocabularies, IdsWithoutATokenDecodeToNothing) {
  for (const nlohmann::json& recorded : figures().at("decoded"))
    EXPECT_EQ(tokenizer().decode(recorded.at("ids").get<Ids>()), recorded.at("text").get<std::string>()) << recorded;
}

TEST(Vocabularies, AGenerationGoesOnOverHoles) {
  for (const nlohmann::json& recorded : figures().at("generated")) {
    const std::string prompt = recorded.at("prompt");
    EXPECT_EQ(tokenizer().encode(prompt), recorded.at("ids").get<Ids>());
    std::string streamed;
    const GenerateTextOptions options{.tokens = {.tokens = 8, .sample = {.temperature = 0}, .end_tokens = Ids{}},
                                      .on_text = [&](std::size_t, std::string_view piece) {
                                        streamed += piece;
                                        return true;
                                      }};
    const GeneratedText generated = generate_text(model(), tokenizer(), {prompt}, options)[0];
    EXPECT_EQ(generated.tokens, recorded.at("tokens").get<Ids>());
    EXPECT_EQ(generated.text, recorded.at("text").get<std::string>());
    EXPECT_EQ(streamed, generated.text);
    EXPECT_EQ(tokenizer().decode(generated.tokens), generated.text);
  }
}

TEST(Vocabularies, ATokenThatTheModelDoesNotHaveIsNamed) {
  const auto refused = [&](const std::vector<std::string>& prompts) {
    return error_of<ValueError>([&] { generate_text(model(), tokenizer(), prompts, {.tokens = {.tokens = 1}}); });
  };
  EXPECT_EQ(refused({"abz"}),
            "generate: the prompt has the token \"z\", whose id is 40; the model knows ids below 31 (vocab_size in "
            "config.json)");
  EXPECT_EQ(refused({"ab", "by"}),
            "generate: prompt 1 has the token \"y\", whose id is 31; the model knows ids below 31 (vocab_size in "
            "config.json)");
  EXPECT_EQ(error_of<ValueError>([&] { explain_model(model(), tokenizer(), "ab z", {}); }),
            "explain: the text has the token \"z\", whose id is 40; the model knows ids below 31 (vocab_size in "
            "config.json)");
}

}  // namespace
}  // namespace attn
