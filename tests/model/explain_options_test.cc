// tests/model/explain_options_test.cc: the options of an explanation, written as JSON and read again.
#include "support/errors.h"

#include <attn/explain_model.h>

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
          "vocabulary": 60, "output_projection": true, "learned_query": false, "only": ["weights", "output"],
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
  EXPECT_EQ(mistake(R"({"only": "weights"})"), "explain_options: only is \"weights\"; a list of names is needed");
  EXPECT_EQ(mistake(R"({"only": [1]})"), "explain_options: only is 1; a text is needed");
  EXPECT_EQ(mistake(R"({"to": ["a"]})"), "explain_options: to is a list; a text is needed");
  EXPECT_NE(mistake(R"({"mask": "casual"})").find("Mask::parse: \"casual\""), std::string::npos);
  EXPECT_NE(mistake(R"({"sead": 1})").find("there is no option \"sead\"; there are to, score, mask"),
            std::string::npos);
  EXPECT_NE(error_of<FormatError>([&] { explain_options("{\"heads\": }"); }).find("explain_options: not JSON"),
            std::string::npos);
  EXPECT_NE(error_of<FormatError>([&] { explain_options("[1]"); }).find("a JSON object is needed"), std::string::npos);
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_NE(error_of<FormatError>([&] { explain_options("{\"heads\": " + deep + "}"); }).find("nested too deeply"),
            std::string::npos);
  EXPECT_NE(error_of<FormatError>([&] { explain_options("{\"sink\": 1e999}"); }).find("a number is too large"),
            std::string::npos);
}

}  // namespace
}  // namespace attn
