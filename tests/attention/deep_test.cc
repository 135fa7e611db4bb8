// tests/attention/deep_test.cc: deep texts and trees on a stack of 256 KiB: an error in one line, or a result.
#include <attn/attention.h>
#include <attn/ops.h>
#include <attn/safetensors.h>

#include "attention/calls.h"
#include "support/errors.h"
#include "support/golden.h"
#include "support/small_stack.h"

#include <gtest/gtest.h>

#include <string>

namespace attn::testing {
namespace {

std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int n = 0; n < times; ++n) result += text;
  return result;
}

std::string nested(const std::string& open, int times, const std::string& inside) {
  return repeated(open, times) + inside + std::string(static_cast<std::size_t>(times), ')');
}

/// All that walks over a mask.
void look_at(const Mask& mask) {
  EXPECT_FALSE(mask.to_string().empty());
  EXPECT_EQ(mask.dense(1, 1, 3, 3).numel(), 9);
  EXPECT_FALSE(mask.print(3, 3).empty());
  mask.check(1, 1, 3, 3);
  const Tensor q = normal({1, 1, 3, 4}, 1);
  EXPECT_EQ(attention(q, q, q, {.mask = mask}).output.numel(), 12);
}

TEST(Deep, MasksOfText) {
  on_small_stack([] {
    for (const int times : {101, 190, 999, 100000})
      EXPECT_NE(
          error_of<ValueError>([&] { Mask::parse(nested("(", times, "causal")); }).find("nested more than 100 deep"),
          std::string::npos);
    look_at(Mask::parse(nested("(", 100, "causal")));
    look_at(Mask::parse(nested("~(", 100, "causal & prefix(1)")));
    const Mask even = Mask::parse(repeated("~", 900) + "causal");
    look_at(even);
    EXPECT_TRUE(same_bits(even.dense(1, 1, 3, 3), Mask::causal().dense(1, 1, 3, 3)));
    look_at(Mask::parse("causal" + repeated(" | prefix(1) & causal", 400)));
    EXPECT_NE(error_of<ValueError>([] { Mask::parse(repeated("~", 100000)); }).find("more than 1000 terms"),
              std::string::npos);
  });
}

TEST(Deep, MasksOfOperators) {
  on_small_stack([] {
    for (int kind = 0; kind < 5; ++kind) {
      Mask mask = Mask::causal();
      const std::string error = error_of<ValueError>([&] {
        for (int n = 0; n < 100000; ++n) {
          if (kind == 0) mask = mask & Mask::prefix(2);
          if (kind == 1) mask = Mask::prefix(2) | mask;
          if (kind == 2) mask = ~mask;
          if (kind == 3) mask = n % 2 ? mask & Mask::prefix(4) : ~mask;
          if (kind == 4) mask = n % 2 ? Mask::window(1, 1) & mask : mask | Mask::prefix(1);
        }
      });
      EXPECT_EQ(error,
                "Mask: the expression is more than 2000 levels deep; join many masks in pairs, or as one tensor");
      look_at(mask);
    }
  });
}

/// All that walks over an expression.
void look_at(const ScoreExpression& expression) {
  EXPECT_FALSE(expression.to_string().empty());
  const ScoreExpression there = expression.aligned(Align::bottom_right);
  EXPECT_FALSE(there.to_string().empty());
  there.lookups();
  const Tensor scores = normal({1, 1, 3, 3}, 1), q = normal({1, 1, 3, 4}, 2);
  EXPECT_TRUE(same_bits(there.apply(scores), expression.apply(scores)));
  EXPECT_EQ(attention(q, q, q, {.score_mod = expression}).output.numel(), 12);
}

TEST(Deep, ScoresOfText) {
  on_small_stack([] {
    for (const std::string open : {"(", "-(", "exp(", "min(s, ", "where(i < j, s, "})
      for (const int times : {101, 190, 100000})
        EXPECT_NE(error_of<ValueError>([&] {
                    ScoreExpression::parse(nested(open, times, "s"));
                  }).find("nested more than 100 deep"),
                  std::string::npos)
            << open << times;
    look_at(ScoreExpression::parse(nested("(", 99, "s")));
    look_at(ScoreExpression::parse(nested("max(s, ", 90, "s")));
    look_at(ScoreExpression::parse("s" + repeated(" + 1e-3 * s", 900)));
    look_at(ScoreExpression::parse("s + 0 * (i" + repeated(" - j", 900) + ")"));
    EXPECT_NE(error_of<ValueError>([] {
                ScoreExpression::parse("s" + repeated(" + s", 100000));
              }).find("more than 1000 levels deep"),
              std::string::npos);
  });
}

TEST(Deep, ScoresOfOperators) {
  on_small_stack([] {
    for (int kind = 0; kind < 4; ++kind) {
      ScoreExpression all = ScoreExpression::score();
      const std::string error = error_of<ValueError>([&] {
        for (int n = 0; n < 100000; ++n) {
          if (kind == 0) all = all + 1e-3;
          if (kind == 1) all = -(2.0 - all);
          if (kind == 2) all = where(all < 0.0, all, tanh(all));
          if (kind == 3) all = min(all, all + 1.0);
        }
      });
      EXPECT_EQ(error, "ScoreExpression: the expression is more than 1000 levels deep");
      look_at(all);
    }
    const ScoreExpression s = ScoreExpression::score();
    ScoreExpression sum = s;
    for (int n = 0; n < 900; ++n) sum = sum + s * 0.5;
    EXPECT_FALSE(derivative(sum, s).to_string().empty());
  });
}

TEST(Deep, ExpressionsEndOnAnotherThread) {
  for (int n = 0; n < 20; ++n) {
    Mask mask = Mask::causal();
    ScoreExpression score = ScoreExpression::score();
    for (int level = 0; level < 900; ++level) mask = ~mask, score = score + 1.0;
    on_small_stack([mask = std::move(mask), score = std::move(score)] { EXPECT_FALSE(mask.to_string().empty()); });
  }
}

TEST(Deep, OtherTextsAndTapes) {
  on_small_stack([] {
    EXPECT_THROW(einsum(repeated("(", 100000), {ones({2})}), ValueError);
    EXPECT_THROW(einsum(repeated("i,", 100000), {ones({2})}), ValueError);
    for (const std::string& json : {repeated("[", 100000), "{\"a\":" + repeated("{\"a\":", 100000),
                                    "{\"__metadata__\":" + repeated("[", 1000) + repeated("]", 1000) + "}"}) {
      std::string file(8, '\0');
      for (int byte = 0; byte < 8; ++byte)
        file[static_cast<std::size_t>(byte)] = static_cast<char>(json.size() >> 8 * byte & 255);
      file += json;
      EXPECT_THROW(parse_safetensors(std::as_bytes(std::span<const char>(file))), FormatError);
    }
    Tensor x = ones({2}).requires_grad_(), y = x;
    for (int n = 0; n < 100000; ++n) y = y * 1.0;
    y.backward(ones({2}));
    EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{1, 1}));
  });
}

}  // namespace
}  // namespace attn::testing
