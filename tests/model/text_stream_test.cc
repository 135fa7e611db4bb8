// tests/model/text_stream_test.cc: text as it comes: whole characters, stop texts, whatever the cut.
#include "model/text_stream.h"

#include <gtest/gtest.h>

namespace attn {
namespace {

/// All pieces joined, each checked to be whole characters; `cut` bytes at a time.
std::string streamed(const std::string& bytes, std::size_t cut, const std::vector<std::string>& stop = {}) {
  TextStream stream(stop);
  std::string text;
  const auto take = [&](const std::string& piece) {
    EXPECT_TRUE(piece.empty() || (static_cast<unsigned char>(piece[0]) & 0xC0) != 0x80)
        << "a piece begins within a character";
    text += piece;
  };
  for (std::size_t at = 0; at < bytes.size(); at += cut) take(stream.add(bytes.substr(at, cut)));
  take(stream.finish());
  return text;
}

TEST(TextStream, CharactersAreWholeHoweverTheyCome) {
  const std::string text = "a\xC3\xA9 \xE6\x88\x91 \xF0\x9F\x98\x80!";
  for (std::size_t cut = 1; cut <= text.size(); ++cut) EXPECT_EQ(streamed(text, cut), text);
  TextStream stream({});
  EXPECT_EQ(stream.add("\xF0\x9F\x98"), "");
  EXPECT_EQ(stream.add("\x80z"), "\xF0\x9F\x98\x80z");
}

TEST(TextStream, BytesThatAreNoTextAreReplaced) {
  for (std::size_t cut = 1; cut <= 3; ++cut) {
    EXPECT_EQ(streamed("a\xFF"
                       "b",
                       cut),
              "a\xEF\xBF\xBD"
              "b");
    EXPECT_EQ(streamed("\x80", cut), "\xEF\xBF\xBD");
    EXPECT_EQ(streamed("x\xE6\x88", cut), "x\xEF\xBF\xBD");  // cut off
    EXPECT_EQ(streamed("\xE6\x88z", cut), "\xEF\xBF\xBDz");  // broken off
    // a surrogate, of which no byte begins a character
    EXPECT_EQ(streamed("\xED\xA0\x80", cut), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    EXPECT_EQ(streamed("\xF4\x90z", cut), "\xEF\xBF\xBD\xEF\xBF\xBDz");  // beyond the last code point
    EXPECT_EQ(streamed("\xF0\x8F\xE2\x82", cut), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    EXPECT_EQ(streamed("\xC0\xAF", cut), "\xEF\xBF\xBD\xEF\xBF\xBD");  // overlong
  }
}

TEST(TextStream, EndsBeforeAStopText) {
  for (std::size_t cut = 1; cut <= 12; ++cut) {
    EXPECT_EQ(streamed("one two three", cut, {"two"}), "one ");
    EXPECT_EQ(streamed("ababac", cut, {"abac"}), "ab");
    EXPECT_EQ(streamed("one tw", cut, {"two"}), "one tw");  // it never came
    EXPECT_EQ(streamed("one", cut, {"", "x"}), "one");
    EXPECT_EQ(streamed("abc", cut, {"abcx", "c"}), "ab");  // what the first may take back is text after all
    EXPECT_EQ(streamed("abc", cut, {"c", "abcx"}), "ab");
    EXPECT_EQ(streamed("abcx", cut, {"abcx", "c"}), "ab");  // the one that is complete first
    EXPECT_EQ(streamed("one User: x", cut, {"one User:", "User"}), "one ");
    EXPECT_EQ(streamed("abc", cut, {"bc", "abc"}), "");
    EXPECT_EQ(streamed("\xE6\x88\x91\xE6\x88\x92", cut, {"\xE6\x88\x92"}), "\xE6\x88\x91");
  }
  TextStream stream({"END"});
  EXPECT_EQ(stream.add("go E"), "go ");
  EXPECT_EQ(stream.add("N"), "");
  EXPECT_EQ(stream.add("x"), "ENx");
  EXPECT_EQ(stream.add(" END more"), " ");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.add("more"), "");
  EXPECT_EQ(stream.finish(), "");
}

}  // namespace
}  // namespace attn
