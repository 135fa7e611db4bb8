// tests/model/tokenizer_splits_test.cc: pre-tokenizers of several steps and of patterns split as Hugging Face's do.
#include "model/tokenizer_ids.h"
#include "support/errors.h"
#include "support/golden.h"
#include "text/tokenizer/cut.h"

#include <attn/tokenizer.h>

#include <gtest/gtest.h>

namespace attn {
namespace {

using testing::error_of;
using testing::expect_ids;
using testing::golden;
using Json = nlohmann::json;

void expect_ids_of_folders(const Json& figures) {
  for (const Json& c : figures.at("cases")) {
    const Tokenizer tokenizer = Tokenizer::parse(c.at("tokenizer").dump()),
                    again = Tokenizer::parse(tokenizer.to_json());
    EXPECT_EQ(again.to_json(), tokenizer.to_json());
    expect_ids(tokenizer, figures.at("strings"), c.at("ids"), c.at("name"));
    expect_ids(again, figures.at("strings"), c.at("ids"), c.at("name"));
  }
}

TEST(Tokenizer, SplitsInSeveralSteps) { expect_ids_of_folders(golden("tokenizer/cuts.json")); }

TEST(Tokenizer, SplitsWordsWhereTheCaseChanges) {
  const Json& figures = golden("tokenizer/cases.json");
  expect_ids_of_folders(figures);
  for (const Json& c : figures.at("cases"))
    for (std::size_t i = 0; i < figures.at("strings").size(); ++i) {
      const std::string text = figures.at("strings")[i];
      std::vector<std::string> pieces;
      for (std::size_t at = 0; at < text.size();) {
        const text::Cut cut = c.at("name") == "tekken" ? text::Cut::tekken : text::Cut::o200k;
        const std::size_t end = text::piece_end(cut, text, at);
        pieces.push_back(text.substr(at, end - at));
        at = end;
      }
      EXPECT_EQ(pieces, c.at("pieces")[i].get<std::vector<std::string>>()) << c.at("name") << ": " << text;
    }
}

TEST(Tokenizer, ASplitThatRemovesMustMatchEverything) {
  Json file = golden("tokenizer/cases.json").at("cases")[0].at("tokenizer");
  Json& split = file["pre_tokenizer"]["pretokenizers"][0];
  EXPECT_EQ(split.at("behavior"), "Removed");
  const auto refused = [&] { return error_of<FormatError>([&] { Tokenizer::parse(file.dump()); }); };
  split["invert"] = false;
  EXPECT_NE(refused().find("a Split must be Isolated, or Removed and inverted"), std::string::npos) << refused();
  split["invert"] = true;
  split["pattern"]["Regex"] = R"(\p{N})";
  EXPECT_NE(refused().find(R"(the Split by \p{N} must be Isolated and not inverted)"), std::string::npos) << refused();
}

}  // namespace
}  // namespace attn
