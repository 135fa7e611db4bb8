// tests/explain/options_test.cc: the options of an explanation as JSON, and what else its JSON tells a program.
#include "support/errors.h"

#include <attn/explain.h>
#include <attn/ops.h>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace attn {
namespace {

using testing::error_of;
using Json = nlohmann::json;

TEST(ExplainOptionsJson, WhatIsToldIsReadAgain) {
  const std::string every =
      R"json({"to": "eat \"dessert\" 人生", "score": "additive",
          "mask": "causal(top_left) & window(2, 0, top_left)", "heads": 2, "dim": 4, "dk": 6, "dv": 5,
          "seed": 18446744073709551615, "positions": "rotary", "tokens": "characters", "softcap": 1.5,
          "temperature": 0.1, "bias": "alibi_symmetric", "score_mod": "s - 0.5 * (i - j)", "sink": -0.25,
          "dropout_p": 0.125, "weights": "top_k(2)", "packed": false, "cache": "int8", "query": 2,
          "gradients": true, "language": "zh"})json";
  const Explanation told = explain("Life is short", explain_options(every));
  EXPECT_EQ(Json::parse(told.options), Json::parse(every));
  EXPECT_EQ(Json::parse(to_json(told)).at("options"), Json::parse(every));
  EXPECT_EQ(to_json(explain("Life is short", explain_options(told.options))), to_json(told));

  const Explanation plain = explain("Life is short");
  EXPECT_EQ(to_json(explain("Life is short", explain_options(plain.options))), to_json(plain));
  EXPECT_EQ(to_json(explain("Life is short", explain_options("{}"))), to_json(plain));
}

TEST(ExplainOptionsJson, MistakesAreNamed) {
  const auto mistake = [](const std::string& json) { return error_of<ValueError>([&] { explain_options(json); }); };
  EXPECT_EQ(mistake(R"({"score": "cosine"})"),
            "explain_options: score is \"cosine\"; one of scaled_dot, dot, general, additive is needed");
  EXPECT_EQ(mistake(R"({"heads": "2"})"), "explain_options: heads is \"2\"; a whole number is needed");
  EXPECT_EQ(mistake(R"({"heads": 1.5})"), "explain_options: heads is 1.5; a whole number is needed");
  EXPECT_EQ(mistake(R"({"heads": 9223372036854775808})"),
            "explain_options: heads is 9223372036854775808; a whole number is needed");
  EXPECT_EQ(mistake(R"({"seed": -1})"), "explain_options: seed is -1; a whole number from 0 to 2^64 - 1 is needed");
  EXPECT_EQ(mistake(R"({"packed": 1})"), "explain_options: packed is 1; true or false is needed");
  EXPECT_EQ(mistake(R"({"to": ["a"]})"), "explain_options: to is a list; a text is needed");
  EXPECT_NE(mistake(R"({"mask": "casual"})").find("Mask::parse: \"casual\""), std::string::npos);
  EXPECT_NE(mistake(R"({"sead": 1})").find("there is no option \"sead\"; there are to, score, mask"),
            std::string::npos);
  EXPECT_NE(error_of<FormatError>([&] { explain_options("{\"heads\": }"); }).find("explain_options: not JSON"),
            std::string::npos);
  EXPECT_NE(error_of<FormatError>([&] { explain_options("[1]"); }).find("a JSON object is needed"), std::string::npos);
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_EQ(mistake("{\"heads\": " + deep + "}"), "explain_options: heads is a list; a whole number is needed");
}

TEST(ExplainJson, TokensTellTheirPlaces) {
  const std::string text = "Wert 1,000 é 人生很短, ok";
  const Json told = Json::parse(to_json(explain(text))).at("steps").at(0);
  EXPECT_EQ(told.at("values"), Json::parse(R"(["Wert", "1000", "é", "人", "生", "很", "短", "ok"])"));
  EXPECT_EQ(told.at("places"),
            Json::parse("[[0, 4], [5, 10], [11, 12], [13, 14], [14, 15], [15, 16], [16, 17], [19, 21]]"));
  ExplainOptions options;
  options.tokens = text::Tokens::words;
  options.cut_words = [](const std::string&) { return std::vector<std::string>{"Wert", "other", "ok"}; };
  const Json own = Json::parse(to_json(explain(text, options))).at("steps").at(0);
  EXPECT_EQ(own.at("places"), Json::parse("[[0, 4], null, [19, 21]]"));
  options = {};
  const Json batch = Json::parse(to_json(explain_batch({"a b", "b"}, options))).at("steps").at(0);
  EXPECT_EQ(batch.at("places"), Json::parse("[[[0, 1], [2, 3]], [[0, 1]]]"));
}

TEST(ExplainJson, AStepTellsItsKindItsShadesAndItsSums) {
  ExplainOptions options;
  options.heads = 2;
  options.query = 1;
  options.mask = Mask::causal();
  const Json told = Json::parse(to_json(explain_batch({"Life is short", "eat dessert"}, options)));
  for (const Json& step : told.at("steps")) {
    if (step.at("kind") != "checks") { EXPECT_EQ(step.at("batch"), 2) << step.at("name"); }
    if (step.at("name") == "weights") {
      EXPECT_EQ(step.at("kind"), "weights");
      EXPECT_EQ(step.at("heads"), 2);
      EXPECT_EQ(step.at("shades").at(0).at(0).at(0), Json::parse("[4, null, null]"));
    }
    if (step.at("name") == "query_scores") {
      EXPECT_EQ(step.at("total").size(), 2U);
      EXPECT_EQ(step.at("total").at(0).size(), 2U);
      EXPECT_GE(step.at("total").at(0).at(0).get<double>(), 1);
    }
  }
}

TEST(WeightsText, IsReadAgain) {
  for (const char* text : {"none", "full", "head_average", "column_sums", "rows(0, -1)", "top_k(3)", "rows()"})
    EXPECT_EQ(Weights::parse(text).to_string(), text);
  const auto mistake = [](const char* text) { return error_of<ValueError>([&] { Weights::parse(text); }); };
  EXPECT_EQ(mistake("ful"),
            "Weights::parse: there is no \"ful\"; there are none, full, head_average, column_sums, rows, top_k");
  EXPECT_EQ(mistake("rows(1, x)"), "Weights::parse: rows(1, x): a number must be a whole number, not \"x\"");
  for (const char* text : {"rows", "full(3)", "top_k(", "full("})
    EXPECT_NE(mistake(text).find("the others nothing"), std::string::npos) << text;
  EXPECT_EQ(mistake("top_k(1, 2)"), "Weights::parse: \"top_k(1, 2)\"; top_k takes one number");
}

}  // namespace
}  // namespace attn
