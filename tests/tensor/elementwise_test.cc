// tests/tensor/elementwise_test.cc: operations on random shapes and strides against plain loops over indices.
#include "support/errors.h"
#include "support/random_shapes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace attn::testing {
namespace {

constexpr Dtype all_dtypes[] = {Dtype::f32, Dtype::f64, Dtype::bf16,   Dtype::f16,
                                Dtype::i64, Dtype::i32, Dtype::boolean};

struct Binary {
  const char* name;
  Tensor (*operation)(const Tensor&, const Tensor&);
  double (*element)(double, double);
};

/// Exact on quarters from -2 to 2 and small whole numbers in every dtype but bool.
const Binary exact[] = {
    {"add", [](const Tensor& a, const Tensor& b) { return add(a, b); }, [](double a, double b) { return a + b; }},
    {"sub", [](const Tensor& a, const Tensor& b) { return sub(a, b); }, [](double a, double b) { return a - b; }},
    {"mul", [](const Tensor& a, const Tensor& b) { return mul(a, b); }, [](double a, double b) { return a * b; }},
    {"maximum", [](const Tensor& a, const Tensor& b) { return maximum(a, b); },
     [](double a, double b) { return std::max(a, b); }},
    {"minimum", [](const Tensor& a, const Tensor& b) { return minimum(a, b); },
     [](double a, double b) { return std::min(a, b); }},
    {"eq", [](const Tensor& a, const Tensor& b) { return eq(a, b); },
     [](double a, double b) { return double(a == b); }},
    {"ne", [](const Tensor& a, const Tensor& b) { return ne(a, b); },
     [](double a, double b) { return double(a != b); }},
    {"lt", [](const Tensor& a, const Tensor& b) { return lt(a, b); }, [](double a, double b) { return double(a < b); }},
    {"le", [](const Tensor& a, const Tensor& b) { return le(a, b); },
     [](double a, double b) { return double(a <= b); }},
    {"gt", [](const Tensor& a, const Tensor& b) { return gt(a, b); }, [](double a, double b) { return double(a > b); }},
    {"ge", [](const Tensor& a, const Tensor& b) { return ge(a, b); },
     [](double a, double b) { return double(a >= b); }},
    {"logical_and", [](const Tensor& a, const Tensor& b) { return logical_and(a, b); },
     [](double a, double b) { return double(a != 0 && b != 0); }},
    {"logical_or", [](const Tensor& a, const Tensor& b) { return logical_or(a, b); },
     [](double a, double b) { return double(a != 0 || b != 0); }},
};

TEST(Elementwise, BroadcastsRandomShapesAndStrides) {
  Random random(1);
  for (int round = 0; round < 400; ++round) {
    const Binary& binary = exact[round % std::size(exact)];
    const Dtype dtype = all_dtypes[pick(random, 0, 5)];  // bool has its own test
    const Dims sizes = random_sizes(random);
    Tensor a = random_tensor(random, sizes, dtype), b = random_tensor(random, random_partner(random, sizes), dtype);
    if (round % 2) std::swap(a, b);
    SCOPED_TRACE(std::string(binary.name) + " " + to_string(a.sizes()) + " " + to_string(b.sizes()) + " " +
                 std::string(name_of(dtype)));
    const Tensor result = binary.operation(a, b);
    ASSERT_EQ(result.sizes(), broadcast_shapes("test", a.sizes(), b.sizes()));
    ASSERT_TRUE(result.is_contiguous());
    for_each_index(result.sizes(), [&](const Dims& index) {
      ASSERT_EQ(at(result, index), binary.element(at_broadcast(a, index), at_broadcast(b, index))) << to_string(index);
    });
  }
}

TEST(Elementwise, DividesAsIeeeDoes) {
  Random random(2);
  for (int round = 0; round < 60; ++round) {
    const Dims sizes = random_sizes(random, 0, 5);
    const Tensor a = random_tensor(random, sizes), b = random_tensor(random, random_partner(random, sizes));
    const Tensor result = div(a, b);
    for_each_index(sizes, [&](const Dims& index) {
      const float expected = static_cast<float>(at(a, index)) / static_cast<float>(at_broadcast(b, index));
      const float given = static_cast<float>(at(result, index));
      ASSERT_TRUE(given == expected || (std::isnan(given) && std::isnan(expected)));
    });
  }
}

TEST(Elementwise, BoolsAddAsOrAndMultiplyAsAnd) {
  const Tensor a = tensor<bool>({true, true, false, false}), b = tensor<bool>({true, false, true, false});
  EXPECT_EQ(add(a, b).dtype(), Dtype::boolean);
  EXPECT_EQ(add(a, b).to_int_vector(), (std::vector<std::int64_t>{1, 1, 1, 0}));
  EXPECT_EQ(mul(a, b).to_int_vector(), (std::vector<std::int64_t>{1, 0, 0, 0}));
  EXPECT_EQ(maximum(a, b).to_int_vector(), (std::vector<std::int64_t>{1, 1, 1, 0}));
  EXPECT_EQ(logical_not(a).to_int_vector(), (std::vector<std::int64_t>{0, 0, 1, 1}));
}

TEST(Elementwise, UnaryOnRandomStrides) {
  Random random(3);
  for (int round = 0; round < 100; ++round) {
    const Dtype dtype = all_dtypes[pick(random, 0, 5)];
    const Tensor x = random_tensor(random, random_sizes(random), dtype);
    const Tensor negative = neg(x), size = abs(x), positive = relu(x), no = logical_not(x), copy = x.clone(),
                 root = sqrt(x.to(Dtype::f64));
    for_each_index(x.sizes(), [&](const Dims& index) {
      const double value = at(x, index);
      ASSERT_EQ(at(negative, index), -value);
      ASSERT_EQ(at(size, index), std::fabs(value));
      ASSERT_EQ(at(positive, index), std::max(value, 0.0));
      ASSERT_EQ(at(no, index), value == 0);
      ASSERT_EQ(at(copy, index), value);
      if (value >= 0) { ASSERT_EQ(at(root, index), std::sqrt(value)); }
    });
  }
}

TEST(Elementwise, WhereAndMaskedFillBroadcast) {
  Random random(4);
  for (int round = 0; round < 150; ++round) {
    const Dtype dtype = all_dtypes[pick(random, 0, 6)];
    const Dims sizes = random_sizes(random);
    const Tensor condition = random_tensor(random, random_partner(random, sizes), Dtype::boolean);
    const Tensor a = random_tensor(random, sizes, dtype),
                 b = random_tensor(random, random_partner(random, sizes), dtype);
    const Tensor chosen = where(condition, a, b), filled = masked_fill(a, condition, 1),
                 left = where(condition, a, Scalar(true));
    for_each_index(sizes, [&](const Dims& index) {
      const bool first = at_broadcast(condition, index) != 0;
      ASSERT_EQ(at(chosen, index), first ? at(a, index) : at_broadcast(b, index));
      ASSERT_EQ(at(filled, index), first ? 1 : at(a, index));
      ASSERT_EQ(at(left, index), first ? at(a, index) : 1);
    });
  }
}

TEST(Elementwise, Triangles) {
  Random random(5);
  for (int round = 0; round < 100; ++round) {
    const Tensor x = random_tensor(random, random_sizes(random, 2, 5), all_dtypes[round % 7]);
    const std::int64_t diagonal = round == 0   ? std::numeric_limits<std::int64_t>::max()
                                  : round == 1 ? std::numeric_limits<std::int64_t>::min()
                                               : pick(random, -5, 5);
    const Tensor lower = tril(x, diagonal), upper = triu(x, diagonal);
    for_each_index(x.sizes(), [&](const Dims& index) {
      const std::int64_t distance = index[x.dim() - 1] - index[x.dim() - 2];
      ASSERT_EQ(at(lower, index), distance <= diagonal ? at(x, index) : 0);
      ASSERT_EQ(at(upper, index), distance >= diagonal ? at(x, index) : 0);
    });
  }
}

TEST(Elementwise, ScalarsKeepTheDtype) {
  const Tensor x = tensor<float>({1, 2}).to(Dtype::bf16);
  EXPECT_EQ((x + 1.0).dtype(), Dtype::bf16);
  EXPECT_EQ((2 * x).to_vector(), (std::vector<double>{2, 4}));
  EXPECT_EQ((1 - x).to_vector(), (std::vector<double>{0, -1}));
  EXPECT_EQ((1 / x).to_vector(), (std::vector<double>{1, 0.5}));
  EXPECT_EQ((tensor<std::int64_t>({1, 2}) + 0.5).dtype(), Dtype::f32);
  EXPECT_EQ((-x).to_vector(), (std::vector<double>{-1, -2}));
  EXPECT_EQ(pow(tensor<double>({1.5}), 2.5).item(), std::pow(1.5, 2.5));
}

TEST(Elementwise, OutReceivesTheResult) {
  const Tensor a = tensor<float>({1, 2, 3, 4}, {2, 2}), b = tensor<float>({10, 20});
  Tensor memory = zeros({2, 4});
  const Tensor out = memory.slice(1, 0, 4, 2);  // strided
  const Tensor result = add(a, b, out);
  EXPECT_EQ(result.data(), out.data());
  EXPECT_EQ(memory.to_vector(), (std::vector<double>{11, 0, 22, 0, 13, 0, 24, 0}));
  EXPECT_EQ(memory.version(), 1u);
  sqrt(tensor<float>({1, 4, 9, 16}, {2, 2}), out);
  EXPECT_EQ(out.to_vector(), (std::vector<double>{1, 2, 3, 4}));
  Tensor leaf = ones({2, 2});
  leaf.requires_grad_();
  const Tensor flags = zeros({2, 2}, Dtype::boolean), three = full({2, 2}, 3);
  EXPECT_EQ(lt(out, three, flags).data(), flags.data());
  EXPECT_EQ(flags.to_vector(), (std::vector<double>{1, 1, 0, 0}));
  logical_not(flags, flags);
  EXPECT_EQ(flags.to_vector(), (std::vector<double>{0, 0, 1, 1}));
  where(flags, three, out, out);
  EXPECT_EQ(out.to_vector(), (std::vector<double>{1, 2, 3, 3}));
  pow(out, 2, out);
  EXPECT_EQ(maximum(out, three, out).to_vector(), (std::vector<double>{3, 4, 9, 9}));
  EXPECT_TRUE(add(leaf, out, out).requires_grad());  // the result has the history, the memory given has none
  EXPECT_FALSE(out.requires_grad());
  EXPECT_THROW(add(out, out, leaf), ValueError);
}

TEST(Elementwise, OutMayOverlapTheInputs) {
  const Tensor x = tensor<float>({1, 2, 3, 4}, {2, 2});
  add(x, x.t(), x);  // reads what it would overwrite
  EXPECT_EQ(x.to_vector(), (std::vector<double>{2, 5, 5, 8}));
  mul(x, x, x);
  EXPECT_EQ(x.to_vector(), (std::vector<double>{4, 25, 25, 64}));
  const Tensor line = tensor<float>({1, 2, 3, 4, 5});
  neg(line);
  add(line.slice(0, 0, 4), tensor<float>({10, 10, 10, 10}), line.slice(0, 1));
  EXPECT_EQ(line.to_vector(), (std::vector<double>{1, 11, 12, 13, 14}));
}

TEST(Elementwise, Errors) {
  const Tensor a = zeros({2, 3}), b = zeros({4, 3}), flags = zeros({2, 3}, Dtype::boolean);
  EXPECT_EQ(error_of<ShapeError>([&] { add(a, b); }),
            "add: shapes [2, 3] and [4, 3] do not broadcast; sizes must be equal or 1, counted from the last dim");
  EXPECT_EQ(error_of<ShapeError>([&] { mul(a, a, b); }), "mul: out has shape [4, 3]; it must be [2, 3]");
  EXPECT_EQ(error_of<DtypeError>([&] { div(a, a, zeros({2, 3}, Dtype::f64)); }), "div: out is f64; it must be f32");
  EXPECT_EQ(error_of<DtypeError>([&] { sub(a, flags); }),
            "sub: given f32 and bool; bool cannot be subtracted, use ne or logical_not");
  EXPECT_EQ(error_of<DtypeError>([&] { neg(flags); }), "neg: x is bool; it must be a number");
  EXPECT_EQ(error_of<DtypeError>([&] { masked_fill(a, a, 0); }), "masked_fill: mask is f32; it must be bool");
  EXPECT_EQ(error_of<DtypeError>([&] { where(a, a, a); }), "where: condition is f32; it must be bool");
  EXPECT_EQ(error_of<ShapeError>([&] { tril(zeros({3})); }), "tril: x has shape [3]; it must have rank 2 or more");
  EXPECT_EQ(error_of<ValueError>([&] { pow(zeros({2}, Dtype::i64), -1); }),
            "pow: an integer tensor to the power -1; the exponent must not be negative");
  EXPECT_EQ(error_of<ValueError>([&] { add(Tensor(), a); }),
            "Tensor: the tensor is undefined, made by Tensor() or a result that was not asked for; it has no memory, "
            "sizes or dtype");
}

TEST(Fill,
     NumbersThatTheDtypeDoesNotHoldAreRefused) {  // as torch: "value cannot be converted to type ... without overflow"
  const Tensor ints = tensor<std::int64_t>({1, 2}), mask = ones({2}, Dtype::boolean);
  EXPECT_EQ(error_of<ValueError>([&] { masked_fill(ints, mask, std::nan("")); }),
            "masked_fill: the value nan cannot be kept in i64");
  EXPECT_EQ(error_of<ValueError>([&] { ints.fill_(1e30); }), "fill_: the value 1e+30 cannot be kept in i64");
  EXPECT_EQ(error_of<ValueError>([&] { full({1}, std::int64_t{1} << 31, Dtype::i32); }),
            "full: the value 2147483648 cannot be kept in i32");
  EXPECT_EQ(error_of<ValueError>([&] { masked_fill(ones({2}), mask, -1e300); }),
            "masked_fill: the value -1e+300 cannot be kept in f32");
  EXPECT_EQ(ints.to_int_vector(), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(ints.version(), 0u);
  EXPECT_EQ((ones({1}) * 1e300).item(), HUGE_VAL);  // arithmetic rounds, and wraps around
  EXPECT_EQ((tensor<int>({1}) + ((std::int64_t{1} << 32) + 1)).item_int(), 2);
  EXPECT_EQ(full({1}, std::numeric_limits<std::int64_t>::max(), Dtype::i64).item_int(),
            std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(full({1}, -HUGE_VAL).item(), -HUGE_VAL);
  EXPECT_EQ(ints.fill_(2.7).to_int_vector(), (std::vector<std::int64_t>{2, 2}));
}

}  // namespace
}  // namespace attn::testing
