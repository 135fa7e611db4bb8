// tests/text/text_test.cc: words and characters of several scripts, ids and back, columns, and bytes that are no text.
#include <attn/error.h>
#include <attn/text.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#if defined(ATTN_HAS_ICU)
#include "text/icu/word_break.h"
#endif

namespace attn::text {
namespace {

using Words = std::vector<std::string>;
using Ids = std::vector<std::int64_t>;

template <typename F>
std::string error_of(F call) {
  try {
    call();
  } catch (const ValueError& error) { return error.what(); }
  return "no error";
}

TEST(Split, WordsAsTheTutorials) {
  EXPECT_EQ(split("Life is short, eat dessert first", Tokens::words),
            (Words{"Life", "is", "short", "eat", "dessert", "first"}));
  EXPECT_EQ(split("  a\tb\n\nc　d e ", Tokens::words), (Words{"a", "b", "c", "d", "e"}));
  EXPECT_EQ(split("1,000 cats. Really!", Tokens::words), (Words{"1000", "cats.", "Really!"}));
  EXPECT_EQ(split("我叫张三，她叫李四。", Tokens::words), (Words{"我叫张三", "她叫李四。"}));
  EXPECT_EQ(split("", Tokens::words), Words{});
  EXPECT_EQ(split(" , ,, ", Tokens::words), Words{});
}

TEST(Split, Characters) {
  EXPECT_EQ(split("我叫张三", Tokens::characters), (Words{"我", "叫", "张", "三"}));
  EXPECT_EQ(split("ab c,d。", Tokens::characters), (Words{"a", "b", "c", "d", "。"}));
  EXPECT_EQ(split("e\u0301a", Tokens::characters), (Words{"e\u0301", "a"}));
  EXPECT_EQ(split("👨‍👩‍👧👍🏽🇨🇳🇯🇵", Tokens::characters),
            (Words{"👨‍👩‍👧", "👍🏽", "🇨🇳", "🇯🇵"}));
  EXPECT_EQ(split("か\u3099き", Tokens::characters), (Words{"か\u3099", "き"}));
}

TEST(Split, AutomaticFollowsTheScript) {
  EXPECT_EQ(split("Life is short, eat dessert first"), (Words{"Life", "is", "short", "eat", "dessert", "first"}));
  EXPECT_EQ(split("我叫张三"), (Words{"我", "叫", "张", "三"}));
  EXPECT_EQ(split("我爱C++语言，真的！"), (Words{"我", "爱", "C++", "语", "言", "真", "的", "！"}));
  EXPECT_EQ(split("東京タワーへ行く"), (Words{"東", "京", "タ", "ワ", "ー", "へ", "行", "く"}));
  EXPECT_EQ(split("私はAIが好き、2人で。"), (Words{"私", "は", "AI", "が", "好", "き", "2", "人", "で", "。"}));
  EXPECT_EQ(split("나는 학생 입니다"), (Words{"나는", "학생", "입니다"}));
  EXPECT_EQ(split("𠮷野家"), (Words{"𠮷", "野", "家"}));
  EXPECT_EQ(split("ｶﾀｶﾅ､ok"), (Words{"ｶ", "ﾀ", "ｶ", "ﾅ", "ok"}));
  EXPECT_EQ(split("\xEF\xBB\xBF"
                  "first line"),
            (Words{"first", "line"}));
}

TEST(Split, BytesThatAreNotUtf8AreNamed) {
  EXPECT_EQ(error_of([] { split("abc\xFF"); }), "split: byte 0xFF at offset 3 is not UTF-8");
  EXPECT_EQ(error_of([] { split("\xE6\x88"); }), "split: byte 0xE6 at offset 0 is not UTF-8");
}

TEST(Utf8, OnlyTheShortestFormsOfCharactersAreValid) {
  for (const char* valid : {"", "a", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                            "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
    EXPECT_FALSE(invalid_utf8(valid)) << valid;
  const struct {
    const char* bytes;
    std::size_t offset;
  } invalid[] = {{"\x80", 0},
                 {"a\xBF", 1},
                 {"\xC0\x80", 0},
                 {"\xC1\xBF", 0},
                 {"\xC2", 0},
                 {"\xC2 ", 0},
                 {"\xE0\x9F\xBF", 0},
                 {"\xED\xA0\x80", 0},
                 {"\xED\xBF\xBF", 0},
                 {"\xEF\xBF", 0},
                 {"\xF0\x8F\xBF\xBF", 0},
                 {"\xF4\x90\x80\x80", 0},
                 {"\xF5\x80\x80\x80", 0},
                 {"ok\xF0\x90\x80", 2},
                 {"\xFE", 0}};
  for (const auto& c : invalid) EXPECT_EQ(invalid_utf8(c.bytes), c.offset) << ::testing::PrintToString(c.bytes);
}

TEST(VocabularyTest, TheFirstTutorial) {
  const Words words = split("Life is short, eat dessert first");
  const Vocabulary vocabulary(words);
  EXPECT_EQ(vocabulary.size(), 6);
  EXPECT_EQ(vocabulary.encode(words), (Ids{0, 4, 5, 2, 1, 3}));
  EXPECT_EQ(vocabulary.decode({0, 4, 5, 2, 1, 3}), words);
  EXPECT_EQ(join(words), "Life is short eat dessert first");
}

TEST(VocabularyTest, SortsByCodePointAndOnce) {
  // Python: sorted({'张', 'b', 'Z', 'a', 'é', '三', '😀', 'ｚ'})
  const Vocabulary vocabulary({"张", "b", "Z", "a", "é", "三", "😀", "a", "ｚ", "张"});
  EXPECT_EQ(vocabulary.tokens(), (Words{"Z", "a", "b", "é", "三", "张", "ｚ", "😀"}));
  EXPECT_EQ(vocabulary.find("é"), 3);
  EXPECT_EQ(vocabulary.find("c"), std::nullopt);
}

TEST(VocabularyTest, ErrorsNameWhatIsUnknown) {
  const Vocabulary vocabulary = Vocabulary::of("Life is short, eat dessert first");
  EXPECT_EQ(error_of([&] { vocabulary.encode({"Life", "cat"}); }),
            "encode: \"cat\" is not in the vocabulary of 6 words");
  EXPECT_EQ(error_of([&] { vocabulary.decode({0, 6}); }), "decode: id 6 is not in the vocabulary of 6 words");
  EXPECT_EQ(error_of([&] { vocabulary.token(-1); }), "decode: id -1 is not in the vocabulary of 6 words");
  EXPECT_EQ(error_of([&] { Vocabulary({"a"}).encode({"b"}); }), "encode: \"b\" is not in the vocabulary of 1 word");
  EXPECT_EQ(error_of([&] { Vocabulary({"a", "\xC3("}); }), "Vocabulary: byte 0xC3 at offset 0 is not UTF-8");
}

TEST(Join, PutsSpacesBetweenWordsOnly) {
  EXPECT_EQ(join(split("我爱C++语言")), "我爱C++语言");
  EXPECT_EQ(join({"a", "b", "我", "c", "d"}), "a b我c d");
  EXPECT_EQ(join({}), "");
}

TEST(Width, OfScripts) {
  EXPECT_EQ(display_width(""), 0);
  EXPECT_EQ(display_width("short"), 5);
  EXPECT_EQ(display_width("我叫张三"), 8);
  EXPECT_EQ(display_width("カタカナ"), 8);
  EXPECT_EQ(display_width("ｶﾀｶﾅ"), 4);
  EXPECT_EQ(display_width("학생"), 4);
  EXPECT_EQ(display_width("ｆ，"), 4);
  EXPECT_EQ(display_width("e\u0301é"), 2);
  EXPECT_EQ(display_width("😀👍🏽"), 4);
  EXPECT_EQ(display_width("👨‍👩‍👧"), 2);
  EXPECT_EQ(display_width("🇨🇳"), 2);
  EXPECT_EQ(display_width("❤️"), 2);
  EXPECT_EQ(display_width("░▒█…"), 4);
  EXPECT_EQ(display_width("a\xFFz"), 3);
}

TEST(Width, TruncationKeepsWithinItsColumns) {
  EXPECT_EQ(truncate_to_width("dessert", 7), "dessert");
  EXPECT_EQ(truncate_to_width("dessert", 6), "desse…");
  EXPECT_EQ(truncate_to_width("我叫张三", 8), "我叫张三");
  EXPECT_EQ(truncate_to_width("我叫张三", 7), "我叫张…");
  EXPECT_EQ(truncate_to_width("我叫张三", 6), "我叫…");
  EXPECT_EQ(truncate_to_width("我叫", 1), "…");
  EXPECT_EQ(truncate_to_width("我叫", 0), "");
  EXPECT_EQ(truncate_to_width("ae\u0301\u0302", 2), "ae\u0301\u0302");
  const std::string mixed = "ab我e\u0301👨‍👩‍👧 c张三";
  for (int columns = 0; columns < 20; ++columns) {
    const std::string cut = truncate_to_width(mixed, columns);
    EXPECT_LE(display_width(cut), columns);
    EXPECT_FALSE(invalid_utf8(cut));
  }
}

#if defined(ATTN_HAS_ICU)
TEST(IcuWords, CutsChineseAndJapaneseByDictionary) {
  EXPECT_EQ(icu_words("我们喜欢学习，真的。", "zh"), (Words{"我们", "喜欢", "学习", "真的", "。"}));
  EXPECT_EQ(icu_words("東京タワーへ行く", "ja"), (Words{"東京タワー", "へ", "行く"}));
  EXPECT_EQ(icu_words("Life is short, eat dessert first", "en"),
            (Words{"Life", "is", "short", "eat", "dessert", "first"}));
  EXPECT_EQ(icu_words("", ""), Words{});
  EXPECT_EQ(error_of([] { icu_words("\xFF", "zh"); }), "icu_words: byte 0xFF at offset 0 is not UTF-8");
}
#endif

}  // namespace
}  // namespace attn::text
