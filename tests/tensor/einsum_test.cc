// tests/tensor/einsum_test.cc: einsum against plain nested loops in f64: chosen and random equations; its error texts.
#include "support/errors.h"
#include "support/golden.h"

#include <attn/random.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace attn {
namespace {

/// The sum by its definition: every assignment of the letters. Equations without "..." and spaces.
Tensor by_definition(const std::string& equation, const std::vector<Tensor>& operands) {
  const std::size_t arrow = equation.find("->");
  const std::string left = equation.substr(0, arrow), output = equation.substr(arrow + 2);
  std::vector<std::string> subscripts(1);
  for (const char c : left) c == ',' ? subscripts.emplace_back() : subscripts.back() += std::string(1, c);
  std::map<char, std::int64_t> sizes;
  for (std::size_t i = 0; i < operands.size(); ++i)
    for (std::size_t d = 0; d < subscripts[i].size(); ++d) {
      std::int64_t& size = sizes.try_emplace(subscripts[i][d], 1).first->second;
      size = std::max(size, operands[i].sizes()[static_cast<int>(d)]);
    }
  std::vector<std::vector<double>> values;
  for (const Tensor& x : operands) values.push_back(x.to_vector());
  Dims shape;
  for (const char c : output) shape.push_back(sizes[c]);
  std::vector<double> result(static_cast<std::size_t>(shape.product()), 0.0);
  std::map<char, std::int64_t> at;
  std::int64_t total = 1;
  for (const auto& [letter, size] : sizes) total *= size;
  for (std::int64_t index = 0; index < total; ++index) {
    std::int64_t rest = index;
    for (const auto& [letter, size] : sizes) {
      at[letter] = rest % size;
      rest /= size;
    }
    double product = 1;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      std::int64_t place = 0;
      for (std::size_t d = 0; d < subscripts[i].size(); ++d) {
        const std::int64_t size = operands[i].sizes()[static_cast<int>(d)];
        place = place * size + (size == 1 ? 0 : at[subscripts[i][d]]);
      }
      product *= values[i][static_cast<std::size_t>(place)];
    }
    std::int64_t place = 0;
    for (const char c : output) place = place * sizes[c] + at[c];
    result[static_cast<std::size_t>(place)] += product;
  }
  return tensor<double>(result, shape);
}

TEST(Einsum, RandomEquationsAgainstNestedLoops) {
  std::mt19937 random(20);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::string letters = "abcDEf";
  for (int trial = 0; trial < 200; ++trial) {
    std::map<char, std::int64_t> sizes;
    for (const char c : letters) sizes[c] = 1 + below(4);
    std::string equation, used;
    std::vector<Tensor> operands;
    const int count = 1 + below(4);
    for (int i = 0; i < count; ++i) {
      if (i > 0) equation += ',';
      Dims shape;
      std::string own;
      const int rank = below(4);
      for (int d = 0; d < rank; ++d) {
        const char c = letters[static_cast<std::size_t>(below(6))];
        const bool repeated = own.find(c) != std::string::npos;
        shape.push_back(!repeated && own.size() == static_cast<std::size_t>(d) && below(8) == 0 ? 1 : sizes[c]);
        if (repeated) shape[d] = shape[static_cast<int>(own.find(c))];
        own += c;
      }
      equation += own;
      used += own;
      Tensor x = randn(shape, Dtype::f64);
      if (rank > 1 && below(2) == 0) x = x.transpose(0, 1).contiguous().transpose(0, 1);
      operands.push_back(x);
    }
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    std::shuffle(used.begin(), used.end(), random);
    equation += "->" + used.substr(0, static_cast<std::size_t>(below(static_cast<int>(used.size()) + 1)));
    SCOPED_TRACE(equation);
    const Tensor ours = einsum(equation, operands), expected = by_definition(equation, operands);
    EXPECT_TRUE(
        testing::within(ours.sizes() == expected.sizes() ? ours : ours.expand(expected.sizes()), expected, 1e-11));
    EXPECT_EQ(ours.sizes(), expected.sizes());
  }
}

TEST(Einsum, ChosenEquations) {
  const Tensor a = randn({3, 4}), b = randn({4, 5}), square = randn({4, 4}), batch = randn({2, 3, 4}),
               q = randn({2, 3, 6, 8}), k = randn({2, 3, 7, 8});
  EXPECT_TRUE(testing::bits_equal(einsum("ij,jk->ik", {a, b}), matmul(a, b)));
  EXPECT_TRUE(testing::bits_equal(einsum(" i j , j k ", {a, b}), matmul(a, b)));
  EXPECT_TRUE(testing::bits_equal(einsum("ij->ji", {a}), a.t()));
  EXPECT_TRUE(testing::bits_equal(einsum("ba", {a}), a.t()));
  EXPECT_TRUE(testing::bits_equal(einsum("aB", {a}), a.t()));
  EXPECT_TRUE(testing::bits_equal(einsum("ij->", {a}), a.sum()));
  const Tensor truths = gt(a, 0);
  EXPECT_TRUE(testing::bits_equal(einsum("ij->i", {truths}), truths.sum(1)));  // torch's: how many
  EXPECT_EQ(einsum("ij->ji", {truths}).dtype(), Dtype::boolean);
  EXPECT_EQ(einsum("ii", {square}).sizes(), Dims{});
  EXPECT_EQ(einsum("ii->i", {square}).to_vector()[2], square[2][2].item());
  EXPECT_TRUE(testing::bits_equal(einsum("bhqd,bhkd->bhqk", {q, k}), matmul(q, k.transpose(-1, -2))));
  EXPECT_TRUE(testing::bits_equal(einsum("...qd,...kd->...qk", {q, k}), matmul(q, k.transpose(-1, -2))));
  EXPECT_TRUE(testing::bits_equal(einsum("...ij,jk", {batch, b}), matmul(batch, b)));
  EXPECT_TRUE(testing::bits_equal(einsum("...ij->...ji", {batch}), batch.transpose(1, 2)));
  EXPECT_EQ(einsum("...ij->ij", {batch}).sizes(), Dims({3, 4}));
  EXPECT_EQ(einsum("i,j", {randn({3}), randn({2})}).sizes(), Dims({3, 2}));
  EXPECT_EQ(einsum("i...,i...->...", {randn({3, 2, 1}), randn({3, 5})}).sizes(), Dims({2, 5}));
  EXPECT_EQ(
      einsum("ij,jk->ik", {tensor<std::int64_t>({1, 2, 3, 4}, {2, 2}), tensor<std::int64_t>({5, 6, 7, 8}, {2, 2})})
          .to_int_vector(),
      (std::vector<std::int64_t>{19, 22, 43, 50}));
}

TEST(Einsum, ErrorsSayWhatIsWrong) {
  const auto text = [](const char* equation, const std::vector<Tensor>& operands) {
    return testing::error_of<Error>([&] { einsum(equation, operands); });
  };
  const Tensor m = zeros({2, 3});
  EXPECT_EQ(text("ij,jk->ik", {m, zeros({4, 5})}),
            "einsum: equation \"ij,jk->ik\" gives 'j' the sizes 3 and 4 (operand 1 has shape [4, 5]); they must be "
            "equal or 1");
  EXPECT_EQ(text("ij->k", {m}), "einsum: equation \"ij->k\" has 'k' in the output but in no operand");
  EXPECT_EQ(text("ij->ii", {m}), "einsum: equation \"ij->ii\" has 'i' twice in the output; each may come once");
  EXPECT_EQ(text("ij,jk", {m}), "einsum: equation \"ij,jk\" has 2 subscripts for 1 operands; they must match");
  EXPECT_EQ(text("ijk", {m}), "einsum: equation \"ijk\" gives operand 0 3 letters; its shape is [2, 3]");
  EXPECT_EQ(text("ii", {m}),
            "einsum: equation \"ii\" repeats 'i' in one operand of shape [2, 3]; its sizes there must be equal");
  EXPECT_EQ(text("i.j", {m}), "einsum: equation \"i.j\" has a '.' that is not part of \"...\"");
  EXPECT_EQ(text("i1", {m}), "einsum: equation \"i1\" has '1'; subscripts are letters and \"...\"");
  EXPECT_EQ(text("", {}), "einsum: equation \"\" has no operands; at least one is needed");
}

}  // namespace
}  // namespace attn
