// tests/model/train_translation_test.cc: a translation trained from scratch: numbers in English words and in Chinese,
// made by a grammar, with pairs that the training has not seen.
#include <attn/random.h>
#include <attn/train.h>
#include <attn/translation.h>

#include <gtest/gtest.h>

#include <set>

namespace attn {
namespace {

std::string in_english(std::int64_t n) {
  static const char* const ones[] = {"zero",     "one",     "two",     "three",     "four",     "five",    "six",
                                     "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",  "thirteen",
                                     "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
  static const char* const tens[] = {"",      "",      "twenty",  "thirty", "forty",
                                     "fifty", "sixty", "seventy", "eighty", "ninety"};
  if (n < 20) return ones[n];
  if (n < 100) return tens[n / 10] + (n % 10 ? std::string(" ") + ones[n % 10] : "");
  const std::int64_t unit = n < 1000 ? 100 : 1000, rest = n % unit;
  return in_english(n / unit) + (unit == 100 ? " hundred" : " thousand") +
         (rest ? (rest < 100 ? " and " : " ") + in_english(rest) : "");
}

/// Up to 9999; a zero between digits is said once.
std::string four_in_chinese(std::int64_t n) {
  static const char* const digits[] = {"零", "一", "二", "三", "四", "五", "六", "七", "八", "九"};
  static const std::pair<std::int64_t, const char*> units[] = {{1000, "千"}, {100, "百"}, {10, "十"}, {1, ""}};
  std::string text;
  bool gap = false;
  for (const auto& [unit, name] : units) {
    const std::int64_t digit = n / unit % 10;
    if (digit != 0) {
      if (gap && !text.empty()) text += digits[0];
      text += std::string(digits[digit]) + name;
    }
    gap = digit == 0;
  }
  return text;
}

std::string in_chinese(std::int64_t n) {
  if (n == 0) return "零";
  const std::int64_t high = n / 10000, low = n % 10000;
  std::string text = high ? four_in_chinese(high) + "万" : "";
  if (high && low && low < 1000) text += "零";
  text += low ? four_in_chinese(low) : "";
  return text.starts_with("一十") ? text.substr(std::string("一").size()) : text;
}

TEST(TrainTranslation, TheGrammar) {
  EXPECT_EQ(in_english(305017), "three hundred and five thousand and seventeen");
  EXPECT_EQ(in_chinese(305017), "三十万五千零一十七");
  EXPECT_EQ(in_chinese(10), "十");
  EXPECT_EQ(in_chinese(200304), "二十万零三百零四");
}

// Half a minute: a model of the size nano, as attn train --pairs trains it, with fewer steps.
TEST(LongTrainTranslation, UnseenNumbersAreTranslated) {
  manual_seed(1);
  std::set<std::int64_t> seen;
  std::vector<TextPair> pairs;
  for (const std::int64_t n : randint(0, 1000000, {12600}).to_int_vector())
    if (seen.insert(n).second) pairs.push_back({in_english(n), in_chinese(n)});
  const std::vector<TextPair> unseen(pairs.end() - 400, pairs.end());
  pairs.resize(12000);
  const Tokenizer tokenizer = train_pair_tokenizer(pairs, Tokenizer::Kind::words);
  TrainOptions o;
  o.encoder_decoder = EncoderDecoderConfig::nano(tokenizer.size());
  o.batch = 64, o.steps = 800;
  Trainer trainer = Trainer::of_pairs(encode_pairs(tokenizer, pairs), o);
  while (!trainer.done()) trainer.advance();
  trainer.encoder_decoder().eval();
  std::vector<std::vector<std::int64_t>> sources;
  for (const TextPair& pair : unseen) sources.push_back(tokenizer.encode(pair.source, true));
  const auto said =
      translate(trainer.encoder_decoder(), sources,
                {.tokens = 40, .start = o.encoder_decoder->padding_id, .end_tokens = {*tokenizer.find("</s>")}});
  double right = 0;
  for (std::size_t i = 0; i < unseen.size(); ++i) right += tokenizer.decode(said[i][0].tokens) == unseen[i].target;
  RecordProperty("exact_match", std::to_string(right / 400));
  EXPECT_GT(right / 400, 0.95);
}

}  // namespace
}  // namespace attn
