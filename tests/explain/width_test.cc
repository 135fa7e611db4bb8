// tests/explain/width_test.cc: terminal columns, cutting, padding, and the scale of the heat map.
#include "explain/numbers.h"
#include "explain/heat_colours.h"
#include "explain/utf8.h"

#include <gtest/gtest.h>

namespace attn::explain_detail {
namespace {

TEST(Width, ChineseTakesTwoColumns) {
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("我叫张三"), 8);
  EXPECT_EQ(display_width("한국 ñ"), 6);
  EXPECT_EQ(display_width("e\u0301"), 1);
  EXPECT_EQ(display_width("👍"), 2);
}

TEST(Width, CutsWithAnEllipsisInsideTheWidth) {
  EXPECT_EQ(cut("attention", 9), "attention");
  EXPECT_EQ(cut("attention", 5), "atte…");
  EXPECT_EQ(cut("我叫张三", 6), "我叫…");
  EXPECT_EQ(display_width(cut("我叫张三", 6)), 5);
  EXPECT_EQ(pad_right("我", 4), "我  ");
  EXPECT_EQ(pad_left("我", 4), "  我");
}

TEST(Width, WhatCouldSteerATerminalIsReplaced) {
  EXPECT_EQ(printable("a\x1b[31mb"), "a\uFFFD[31mb");
  EXPECT_EQ(printable("\xff\xc3"), "\uFFFD\uFFFD");
  EXPECT_EQ(printable("ok 我 \U0001F44D"), "ok 我 \U0001F44D");
  EXPECT_EQ(printable("\xed\xa0\x80").find('\xed'), std::string::npos);  // a lone surrogate
}

TEST(Width, LinesBreakAtSpacesAndChineseCommas) {
  EXPECT_EQ(wrapped("one two three", 8), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrapped("一二，三四", 7), (std::vector<std::string>{"一二，", "三四"}));
  EXPECT_EQ(wrapped("abcdefgh", 3), (std::vector<std::string>{"abc", "def", "gh"}));
  EXPECT_EQ(wrapped("fits", 4), std::vector<std::string>{"fits"});
}

TEST(Scale, AnEqualShareIsTheFirstShade) {
  for (const std::int64_t keys : {2, 6, 20, 500}) {
    EXPECT_EQ(shade_of(1.0f / static_cast<float>(keys), keys), 1) << keys;
    EXPECT_EQ(shade_of(0.99 / static_cast<double>(keys), keys), 0) << keys;
    EXPECT_EQ(shade_of(1.0, keys), 4) << keys;
    EXPECT_NEAR(heat(1.0 / static_cast<double>(keys), keys), 0.2, 1e-12);
  }
  EXPECT_EQ(shade_of(1.0, 1), 4);
  EXPECT_EQ(heat(0, 6), 0);
}

TEST(Scale, IsReadWithoutColour) {
  double before = -1;
  for (int i = 0; i <= 20; ++i) {
    const Rgb colour = colour_of(i / 20.0);
    const double grey = 0.2126 * colour.red + 0.7152 * colour.green + 0.0722 * colour.blue;
    EXPECT_GT(grey, before) << i;
    before = grey;
  }
}

TEST(Numbers, HaveFourDecimalsAndNoMinusZero) {
  EXPECT_EQ(format_number(-0.33741, 4), "-0.3374");
  EXPECT_EQ(format_number(-0.00001, 4), "0.0000");
  EXPECT_EQ(format_number(123456, 4), "1.23e+05");
  EXPECT_EQ(format_weight(0.1772, 2), ".18");
  EXPECT_EQ(format_weight(0.1772, 4), "0.1772");
  EXPECT_EQ(format_weight(1, 2), "1.0");
}

}  // namespace
}  // namespace attn::explain_detail
