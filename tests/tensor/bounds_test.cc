// tests/tensor/bounds_test.cc: sizes beyond 64 bits, options of printing without sense, reductions without a copy of
// what they read.
#include <attn/ops.h>

#include "support/errors.h"
#include "support/resident.h"
#include "support/sanitized.h"

#include <gtest/gtest.h>

#include <limits>

namespace attn::testing {
namespace {

constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max(), near = std::numeric_limits<std::int64_t>::min();

TEST(Bounds, SizesBeyond64BitsAreErrors) {
  const Tensor wide = empty({0, far / 2 + 1}), one = ones({1, 1});
  EXPECT_EQ(error_of<ShapeError>([&] { cat({wide, wide}, 1); }), "cat: dim 1 of all together is beyond 64 bits");
  EXPECT_EQ(error_of<ShapeError>([&] { one.expand({std::int64_t{1} << 40, std::int64_t{1} << 40}); }),
            "Dims: the product of [1099511627776, 1099511627776] is beyond 64 bits");
  EXPECT_TRUE(empty({0, far, far}).is_contiguous());
  EXPECT_THROW(empty({0, far, far}).flatten(1, 2), ShapeError);
  EXPECT_THROW(sum(empty({0, far, far}), {0}), ShapeError);
  EXPECT_THROW(empty({far, far, 0}).index_select(2, zeros({1}, Dtype::i64)), Error);
  EXPECT_THROW(zeros({far}), ShapeError);
  EXPECT_THROW(zeros({std::int64_t{1} << 50}), std::bad_alloc);
  EXPECT_THROW(ones({1}).expand({std::int64_t{1} << 50}).to_vector(), std::bad_alloc);
  EXPECT_THROW(ones({1}).expand({far}).to_vector(), ShapeError);
  EXPECT_THROW(empty({0}).chunk(far, 0), ValueError);
  EXPECT_THROW(sum(ones({2, 2}), {std::int64_t{1} << 32}), ShapeError);
  float memory[4] = {};
  EXPECT_EQ(error_of<ShapeError>([&] { Tensor::from_blob(memory, {3, 3}, Dtype::f32, {far, 1}); }),
            "from_blob: strides [9223372036854775807, 1] of sizes [3, 3] reach beyond 64 bits");
  EXPECT_THROW(Tensor::from_blob(memory, {far, far}, Dtype::f32), ShapeError);
}

TEST(Bounds, StepsAndPlacesAtTheEndsOf64Bits) {
  EXPECT_EQ(arange(near, far, std::int64_t{1} << 62).to_int_vector(),
            (std::vector<std::int64_t>{near, near / 2, 0, far / 2 + 1}));
  const Tensor x = tensor<float>({1, 2, 3, 4, 5}).requires_grad_();
  const Tensor y = x.slice(0, 2, far, far);
  EXPECT_EQ(y.to_vector(), std::vector<double>{3});
  y.backward(ones({1}));
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{0, 0, 1, 0, 0}));
  EXPECT_EQ(x.slice(0, near, near, far).numel(), 0);
  EXPECT_EQ(empty({std::int64_t{1} << 40, std::int64_t{1} << 40, 0}).unsqueeze(0).numel(), 0);
}

TEST(Bounds, PlacesThatNoElementHas) {
  // Sizes of an empty tensor and strides of one row may be anything: every place computed from them is in bounds.
  const std::int64_t huge = std::int64_t{1} << 62;
  for (const Dims& sizes : {Dims{0, huge}, Dims{huge, 0, huge}, Dims{huge, huge, 0, 3}, Dims{2, 3, 0, far}}) {
    const Tensor x = zeros(sizes, Dtype::f64);
    for (int d = 0; d < x.dim(); ++d) {
      EXPECT_LE(x.stride(d), far / 16 / std::max<std::int64_t>(x.size(d), 1)) << sizes << " " << d;
      if (x.size(d) != 0) { EXPECT_EQ(x.select(d, x.size(d) - 1).dim(), x.dim() - 1) << sizes << " " << d; }
      EXPECT_EQ(x.transpose(d, 0).clone().numel(), 0);
    }
    EXPECT_EQ((x + x).sizes(), sizes);
  }
  EXPECT_EQ(zeros({2, 0, 3}).strides(), (Dims{3, 3, 1}));  // PyTorch's
  EXPECT_EQ(one_hot(empty({0}, Dtype::i64), far - 1).sizes(), (Dims{0, far - 1}));
  double memory[2] = {1, 2};
  const Tensor row = Tensor::from_blob(memory, {1, 2}, Dtype::f64, {far, 1});
  EXPECT_EQ((row + row).to_vector(), (std::vector<double>{2, 4}));
  EXPECT_EQ(row.select(0, 0).sum().item(), 3);
  EXPECT_EQ(Tensor::from_blob(memory, {0, 2}, Dtype::f64, {near, far}).clone().numel(), 0);
}

TEST(Bounds, RowsWithoutElementsTakeNoTime) {
  const std::int64_t many = std::int64_t{1} << 40;
  for (const Dims& sizes : {Dims{many, 0}, Dims{many, 3, 0}, Dims{0, many}, Dims{many, 0, 2}}) {
    const Tensor x = zeros(sizes);
    for (int d = 0; d < x.dim(); ++d) {
      EXPECT_EQ(cumsum(x, d).sizes(), sizes);
      EXPECT_EQ(softmax(x, d).sizes(), sizes);
      EXPECT_EQ(log_softmax(x, d).sizes(), sizes);
      EXPECT_EQ(cat({x, x}, d).numel(), 0);
      EXPECT_EQ(x.index_select(d, tensor<std::int64_t>({})).numel(), 0);
    }
    EXPECT_EQ(x.transpose(0, 1).contiguous().numel(), 0);
    EXPECT_EQ((x + 1).to(Dtype::bf16).numel(), 0);
    EXPECT_EQ(layer_norm(x, {x.size(-1)}).sizes(), sizes);
    const Tensor leaf = zeros(sizes).requires_grad_();
    leaf.index_select(-1, tensor<std::int64_t>({})).sum().backward();
    EXPECT_EQ(leaf.grad().sizes(), sizes);
  }
  EXPECT_EQ(matmul(zeros({many, 0, 3}), zeros({3, 4})).numel(), 0);
  EXPECT_EQ(matmul(zeros({many, 0, 3}, Dtype::i64), zeros({3, 4}, Dtype::i64)).numel(), 0);
}

TEST(Bounds, PrintOptions) {
  const Tensor x = arange(40.0f).reshape({20, 2});
  const std::string all = to_string(x, {.threshold = far});
  for (const int edge : {20, 1 << 30, (1 << 30) + 1, std::numeric_limits<int>::max()})
    EXPECT_EQ(to_string(x, {.threshold = 0, .edge_items = edge}), all) << edge;
  EXPECT_EQ(to_string(tensor<float>({1, 2}), {.line_width = std::numeric_limits<int>::max()}), "tensor([1., 2.])");
  for (const int least : {-1, std::numeric_limits<int>::min()}) {
    const std::string end = " is " + std::to_string(least) + "; it must be at least 0";
    EXPECT_EQ(error_of<ValueError>([&] { to_string(x, {.precision = least}); }), "to_string: precision" + end);
    EXPECT_EQ(error_of<ValueError>([&] { to_string(x, {.threshold = least}); }), "to_string: threshold" + end);
    EXPECT_EQ(error_of<ValueError>([&] { to_string(x, {.edge_items = least}); }), "to_string: edge_items" + end);
    EXPECT_EQ(error_of<ValueError>([&] { to_string(x, {.line_width = least}); }), "to_string: line_width" + end);
  }
  EXPECT_EQ(error_of<ValueError>([&] { to_string(x, {.precision = std::numeric_limits<int>::max()}); }),
            "to_string: precision is 2147483647; it must be at most 1000");
  EXPECT_FALSE(to_string(x, {.precision = 0, .threshold = 0, .edge_items = 0, .line_width = 0}).empty());
}

/// Bytes that `reduce` adds to the process at most.
template <typename F>
std::size_t most_beside(F&& reduce) {
  Resident::reset();
  const std::size_t before = Resident::now();
  reduce();
  const std::size_t most = Resident::most();
  return most > before ? most - before : 0;
}

TEST(Bounds, ReductionsOfSmallTypesReadThemAsTheyAre) {
  constexpr std::int64_t n = 64 << 20, part = 1 << 12;
  for (const Dtype dtype : {Dtype::boolean, Dtype::i32, Dtype::i64, Dtype::bf16, Dtype::f16, Dtype::f32}) {
    if (sanitized && dtype != Dtype::boolean) continue;
    Tensor x = zeros({n / part, part}, dtype);
    x.select(0, 5).fill_(1);
    SCOPED_TRACE(name_of(dtype));
    const std::size_t some = most_beside([&] {
      EXPECT_EQ(sum(x).item(), part);
      EXPECT_EQ(sum(x, {1}).select(0, 5).item(), part);
      EXPECT_TRUE(any(x));
      EXPECT_FALSE(all(x));
      EXPECT_EQ(max(x).item(), 1);
      EXPECT_EQ(min(x).item(), 0);
      EXPECT_EQ(argmax(x).item_int(), 5 * part);
      EXPECT_EQ(max(x, 1).second.numel(), n / part);
      if (is_floating(dtype)) { EXPECT_EQ(mean(x, {1}).select(0, 5).item(), 1); }
    });
    const std::size_t columns = most_beside([&] {
      if (!is_floating(dtype)) { EXPECT_EQ(sum(x, {0}).select(0, 9).item(), 1); }
    });
    if (!sanitized) {
      EXPECT_LT(some, std::size_t{16} << 20);
      EXPECT_LT(columns, std::size_t{16} << 20);
    }
  }
}

TEST(Bounds, SumsOfIntegersWrapAndKeepTheirSign) {
  const Tensor x = tensor<std::int64_t>({-1, -2, 3, -2147483648, 7, 0}, {2, 3}).to(Dtype::i32);
  EXPECT_EQ(sum(x).item_int(), -2147483641);
  EXPECT_EQ(sum(x, {0}).to_int_vector(), (std::vector<std::int64_t>{-2147483649, 5, 3}));
  EXPECT_EQ(sum(x.t(), {0}).to_int_vector(), (std::vector<std::int64_t>{0, -2147483641}));
  EXPECT_EQ(cumsum(x, 1).to_int_vector(),
            (std::vector<std::int64_t>{-1, -3, 0, -2147483648, -2147483641, -2147483641}));
  EXPECT_EQ(cumsum(ne(x, 0), 1).to_int_vector(), (std::vector<std::int64_t>{1, 2, 3, 1, 2, 2}));
  EXPECT_EQ(sum(tensor<std::int64_t>({far, 1})).item_int(), near);
  EXPECT_EQ(sum(empty({0, 3}, Dtype::boolean), {0}).to_int_vector(), (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_TRUE(all(empty({0}, Dtype::boolean)));
  EXPECT_FALSE(any(empty({0}, Dtype::boolean)));
  EXPECT_TRUE(any(tensor<float>({0, std::numeric_limits<float>::quiet_NaN()})));
  EXPECT_TRUE(any(tensor<float>({1e-45f})));
}

TEST(Bounds, TextsOfErrorsAreOneLineThatIsSafeToPrint) {
  EXPECT_EQ(error_of<ValueError>([] {
              throw ValueError(
                  "a\x1b[31m\n\xff"
                  "b\u202E\u2028 é 我");
            }),
            "a\\x1B[31m\\x0A\\xFFb\\u202E\\u2028 é 我");
  EXPECT_EQ(error_of<ValueError>([] { throw ValueError(std::string("a\0b", 3)); }), "a\\x00b");
  for (const char* piece : {"x", "我", "\x80", "\x1b"}) {
    std::string text = "begins ";
    for (int n = 0; n < 100000; ++n) text += piece;
    const std::string shown = error_of<ValueError>([&] { throw ValueError(text + " ends"); });
    EXPECT_LE(shown.size(), 1000u);
    EXPECT_TRUE(shown.starts_with("begins ") && shown.ends_with(" ends")) << shown;
    EXPECT_NE(shown.find(" ... "), std::string::npos);
    EXPECT_EQ(error_of<ValueError>([&] { throw ValueError(shown); }), shown);
  }
}

}  // namespace
}  // namespace attn::testing
