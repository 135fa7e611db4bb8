// tests/explain/json_test.cc: what the JSON of an explanation tells a program.
#include "support/errors.h"

#include <attn/explain.h>
#include <attn/ops.h>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace attn {
namespace {

using testing::error_of;
using Json = nlohmann::json;

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
