// tests/model/tokenizer_words_test.cc: words of texts in which Chinese and Japanese letters stand by themselves, as
// Hugging Face's library cuts them.
#include "io/files.h"
#include "support/golden.h"
#include "text/tokenizer/cut.h"
#include "text/unicode.h"

#include <attn/tokenizer.h>

#include <gtest/gtest.h>

namespace attn {
namespace {

using Ids = std::vector<std::int64_t>;
const nlohmann::json& figures() { return testing::golden("tokenizer/words.json"); }

std::vector<std::string> pieces_of(std::string_view text) {
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text::piece_end(text::Cut::words, text, at);
    pieces.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

TEST(Words, AreCutAsHuggingFacesLibraryDoes) {
  EXPECT_EQ(text::patterns_of(text::Cut::words)[0],
            figures().at("tokenizer").at("pre_tokenizer").at("pattern").at("Regex").get<std::string>());
  for (std::size_t i = 0; i < figures().at("strings").size(); ++i) {
    const std::string string = figures().at("strings")[i];
    EXPECT_EQ(pieces_of(string), figures().at("pieces")[i].get<std::vector<std::string>>()) << string;
  }
}

TEST(Words, HaveHuggingFacesIds) {
  const Tokenizer tokenizer = Tokenizer::parse(figures().at("tokenizer").dump());
  EXPECT_EQ(tokenizer.kind(), Tokenizer::Kind::words);
  const Tokenizer ours = Tokenizer::train(figures().at("text").get<std::string>(), Tokenizer::Kind::words, 200);
  EXPECT_EQ(nlohmann::json::parse(ours.to_json()).at("model").at("vocab"),
            figures().at("tokenizer").at("model").at("vocab"));
  EXPECT_EQ(nlohmann::json::parse(ours.to_json()).at("pre_tokenizer"), figures().at("tokenizer").at("pre_tokenizer"));
  for (std::size_t i = 0; i < figures().at("strings").size(); ++i) {
    const std::string string = figures().at("strings")[i];
    EXPECT_EQ(tokenizer.encode(string), figures().at("ids")[i].get<Ids>()) << string;
    EXPECT_EQ(ours.encode(string), figures().at("ids")[i].get<Ids>()) << string;
  }
}

/// The brackets of the pattern hold the letters that attn explain cuts one by one.
TEST(Words, StandAloneWhereExplainCutsToo) {
  std::vector<std::pair<char32_t, char32_t>> ranges;
  std::string_view pattern = text::patterns_of(text::Cut::words)[0];
  pattern = pattern.substr(pattern.find("[\\x{") + 1);
  pattern = pattern.substr(0, pattern.find(']'));
  const auto number = [&] {
    return static_cast<char32_t>(std::stoul(std::string(pattern.substr(pattern.find('{') + 1)), nullptr, 16));
  };
  while (!pattern.empty()) {
    const char32_t first = number();
    pattern = pattern.substr(pattern.find('-') + 1);
    ranges.emplace_back(first, number());
    pattern = pattern.substr(pattern.find('}') + 1);
  }
  EXPECT_EQ(ranges.size(), 11u);
  for (char32_t c = 0x80; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string one;
    if (c >= 0x10000)
      one = {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3F)),
             static_cast<char>(0x80 | (c >> 6 & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
    else if (c >= 0x800)
      one = {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
             static_cast<char>(0x80 | (c & 0x3F))};
    else one = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
    const bool letter = text::piece_end(text::Cut::gpt2, "a" + one, 0) > 1;
    if (!letter) continue;
    const bool alone = text::piece_end(text::Cut::words, "a" + one, 0) == 1;
    const bool in_brackets = std::any_of(ranges.begin(), ranges.end(),
                                         [&](const auto& range) { return range.first <= c && c <= range.second; });
    ASSERT_EQ(alone, text::is_han_or_kana(c)) << std::hex << static_cast<std::uint32_t>(c);
    ASSERT_EQ(alone, in_brackets) << std::hex << static_cast<std::uint32_t>(c);
  }
}

TEST(Words, FilesOfBeforeAreReadAsTheyWere) {
  std::string json = Tokenizer::train("人生 life", Tokenizer::Kind::words).to_json();
  EXPECT_EQ(Tokenizer::parse(json).encode("人生").size(), 2u);
  nlohmann::json before = nlohmann::json::parse(json);
  before["pre_tokenizer"]["pattern"]["Regex"] = std::string(text::patterns_of(text::Cut::gpt2)[0]);
  EXPECT_EQ(Tokenizer::parse(before.dump()).encode("人生"), Ids{0}) << "one word, which its vocabulary does not have";
}

}  // namespace
}  // namespace attn
