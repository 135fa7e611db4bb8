// tests/tensor/views_test.cc: every view shows the elements that plain index arithmetic finds, and shares the memory.
#include "support/errors.h"
#include "support/random_shapes.h"

#include <gtest/gtest.h>

#include <limits>

namespace attn::testing {
namespace {

bool shares_memory(const Tensor& a, const Tensor& b) { return a.numel() == 0 || a.data() == b.data(); }

TEST(Views, RandomViewsShowTheRightElements) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    const Tensor x = random_tensor(random, random_sizes(random, 1, 6), round % 2 ? Dtype::f32 : Dtype::i64);
    SCOPED_TRACE(to_string(x.sizes()) + " " + to_string(x.strides()));
    const int rank = x.dim();
    const int d = static_cast<int>(pick(random, 0, rank - 1)), e = static_cast<int>(pick(random, 0, rank - 1));

    const Tensor swapped = x.transpose(d, e - rank);
    EXPECT_TRUE(shares_memory(swapped, x));
    for_each_index(swapped.sizes(), [&](Dims index) {
      const double value = at(swapped, index);
      std::swap(index[d], index[e]);
      ASSERT_EQ(value, at(x, index));
    });

    std::vector<std::int64_t> order(static_cast<std::size_t>(rank));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    const Tensor permuted = x.permute(order);
    for_each_index(permuted.sizes(), [&](const Dims& index) {
      Dims from = index;
      for (int i = 0; i < rank; ++i) from[static_cast<int>(order[static_cast<std::size_t>(i)])] = index[i];
      ASSERT_EQ(at(permuted, index), at(x, from));
    });

    const std::int64_t start = pick(random, 0, x.size(d)), end = pick(random, start, x.size(d)),
                       step = pick(random, 1, 3);
    const Tensor sliced = x.slice(d, start, end, step);
    ASSERT_EQ(sliced.size(d), (end - start + step - 1) / step);
    for_each_index(sliced.sizes(), [&](Dims index) {
      const double value = at(sliced, index);
      index[d] = start + index[d] * step;
      ASSERT_EQ(value, at(x, index));
    });

    if (x.size(d) > 0) {
      const std::int64_t i = pick(random, 0, x.size(d) - 1);
      const Tensor selected = x.select(d, i - x.size(d));
      for_each_index(selected.sizes(), [&](Dims index) {
        const double value = at(selected, index);
        index.insert(d, i);
        ASSERT_EQ(value, at(x, index));
      });
    }

    const Tensor longer = x.unsqueeze(d);
    EXPECT_EQ(longer.size(d), 1);
    EXPECT_EQ(longer.squeeze(d).sizes(), x.sizes());
    EXPECT_EQ(longer.squeeze(d).to_vector(), x.to_vector());
  }
}

/// Random factors of n as sizes.
Dims random_factors(Random& random, std::int64_t n) {
  Dims sizes;
  while (n > 1 && sizes.size() < 6) {
    std::int64_t factor = pick(random, 1, n);
    while (n % factor) --factor;
    sizes.push_back(factor);
    n /= factor;
  }
  if (n > 1) sizes.push_back(n);
  return sizes;
}

TEST(Views, ReshapeKeepsTheOrderAndViewsWhereItCan) {
  Random random(2);
  int views = 0, copies = 0;
  for (int round = 0; round < 500; ++round) {
    const Tensor x = random_tensor(random, random_sizes(random, 0, 5));
    if (x.numel() == 0) continue;
    const Tensor reshaped = x.reshape(random_factors(random, x.numel()));
    ASSERT_EQ(reshaped.to_vector(), x.to_vector());
    try {
      const Tensor view = x.view(reshaped.sizes());
      EXPECT_TRUE(shares_memory(view, x));
      EXPECT_TRUE(shares_memory(reshaped, x));
      EXPECT_EQ(view.to_vector(), x.to_vector());
      ++views;
    } catch (const ShapeError&) {
      EXPECT_FALSE(shares_memory(reshaped, x));
      ++copies;
    }
    const Tensor contiguous = x.contiguous();
    EXPECT_EQ(contiguous.view(reshaped.sizes()).data(), contiguous.data());
  }
  EXPECT_GT(views, 100);
  EXPECT_GT(copies, 20);
}

TEST(Views, StridesOfReshape) {
  const Tensor x = zeros({4, 6}).t();  // [6, 4], strides [1, 6]
  EXPECT_EQ(x.view({2, 3, 4}).strides(), (Dims{3, 1, 6}));
  EXPECT_EQ(x.view({6, 2, 2}).strides(), (Dims{1, 12, 6}));
  EXPECT_EQ(x.view({6, 1, 4}).sizes(), (Dims{6, 1, 4}));
  EXPECT_EQ(x.reshape({24}).strides(), (Dims{1}));
  EXPECT_EQ(zeros({1}).expand({8}).view({2, 4}).strides(), (Dims{0, 0}));
  EXPECT_EQ(zeros({0, 3}).view({3, 0, 5}).sizes(), (Dims{3, 0, 5}));
  EXPECT_EQ(zeros({2, 3}).reshape({-1, 2}).sizes(), (Dims{3, 2}));
  EXPECT_EQ(zeros({}).view({1, 1}).sizes(), (Dims{1, 1}));
  EXPECT_EQ(zeros({1, 1}).reshape({}).dim(), 0);
  EXPECT_EQ(zeros({2, 3, 4}).flatten(1).sizes(), (Dims{2, 12}));
  EXPECT_EQ(zeros({2, 3, 4}).flatten(0, 1).sizes(), (Dims{6, 4}));
  EXPECT_EQ(zeros({}).flatten().sizes(), (Dims{1}));
  EXPECT_THROW(zeros({}).flatten(0, 1), ShapeError);
  constexpr std::int64_t large = std::int64_t{1} << 62;
  EXPECT_THROW(zeros({2}).reshape({large, 4, 1}), ShapeError);  // 0 modulo 2^64
  EXPECT_THROW(zeros({0}).view({large, 4}), ShapeError);
  EXPECT_EQ(zeros({}).squeeze(-1).transpose(0, -1).sizes(), Dims{});  // a number has dim 0 there
}

TEST(Views, OneDimNeedsNoBraces) {
  const Tensor x = arange(6).reshape({2, 3});
  EXPECT_EQ(x.reshape(-1).sizes(), Dims({6}));
  EXPECT_EQ(zeros(4).sizes(), Dims({4}));
  EXPECT_EQ(x.sum(1).to_int_vector(), (std::vector<std::int64_t>{3, 12}));
  EXPECT_EQ(sum(x, -2, true).sizes(), Dims({1, 3}));
  static_assert(!std::is_convertible_v<bool, Dims> && std::is_convertible_v<int, Dims>);
}

TEST(Views, ExpandBroadcasts) {
  const Tensor x = tensor<float>({1, 2, 3}, {3, 1});
  const Tensor wide = x.expand({2, -1, 4});
  EXPECT_EQ(wide.sizes(), (Dims{2, 3, 4}));
  EXPECT_EQ(wide.strides(), (Dims{0, 1, 0}));
  for_each_index(wide.sizes(),
                 [&](const Dims& index) { EXPECT_EQ(at(wide, index), 1 + static_cast<double>(index[1])); });
  EXPECT_EQ(zeros({1, 3}).expand({0, 3}).numel(), 0);
}

TEST(Views, SlicesClampAsPythonDoes) {
  const Tensor x = arange(5);
  const auto values = [](std::initializer_list<std::int64_t> list) { return std::vector<std::int64_t>(list); };
  EXPECT_EQ(x.slice(0, -2).to_int_vector(), values({3, 4}));
  EXPECT_EQ(x.slice(0, -100, 2).to_int_vector(), values({0, 1}));
  EXPECT_EQ(x.slice(0, 1, 100).to_int_vector(), values({1, 2, 3, 4}));
  EXPECT_EQ(x.slice(0, 0, -1, 2).to_int_vector(), values({0, 2}));
  EXPECT_EQ(x.slice(0, 4, 2).to_int_vector(), values({}));
  EXPECT_EQ(x.slice(0, 9).to_int_vector(), values({}));
  EXPECT_EQ(x.narrow(0, 1, 2).to_int_vector(), values({1, 2}));
  EXPECT_EQ(x[-1].item_int(), 4);
}

TEST(Views, SqueezeAndTranspose) {
  const Tensor x = zeros({1, 2, 1, 3});
  EXPECT_EQ(x.squeeze().sizes(), (Dims{2, 3}));
  EXPECT_EQ(x.squeeze(1).sizes(), x.sizes());
  EXPECT_EQ(x.unsqueeze(-1).sizes(), (Dims{1, 2, 1, 3, 1}));
  EXPECT_EQ(x.t().sizes(), (Dims{3, 1, 2, 1}));
  EXPECT_EQ(zeros({2, 3}).t().sizes(), (Dims{3, 2}));
  EXPECT_EQ(zeros({4}).t().sizes(), (Dims{4}));
}

TEST(Views, SplitAndChunk) {
  const Tensor x = arange(10).reshape({5, 2});
  const auto sizes = [](const std::vector<Tensor>& parts) {
    std::vector<std::int64_t> lengths;
    for (const Tensor& part : parts) lengths.push_back(part.size(0));
    return lengths;
  };
  EXPECT_EQ(sizes(x.split(2)), (std::vector<std::int64_t>{2, 2, 1}));
  EXPECT_EQ(sizes(x.split({1, 0, 4})), (std::vector<std::int64_t>{1, 0, 4}));
  EXPECT_EQ(sizes(x.chunk(3)), (std::vector<std::int64_t>{2, 2, 1}));
  EXPECT_EQ(sizes(x.chunk(4)), (std::vector<std::int64_t>{2, 2, 1}));  // torch gives fewer chunks too
  EXPECT_EQ(x.chunk(std::numeric_limits<std::int64_t>::max()).size(), 5u);
  EXPECT_EQ(x.split(2)[1].to_int_vector(), (std::vector<std::int64_t>{4, 5, 6, 7}));
  EXPECT_EQ(x.split(1, -1)[1].to_int_vector(), (std::vector<std::int64_t>{1, 3, 5, 7, 9}));
  EXPECT_EQ(x.split(2)[0].data(), x.data());
}

TEST(Views, Errors) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(error_of<ShapeError>([&] { x.view({4}); }),
            "view: shape [2, 3] cannot become [4]; the elements must be as many");
  EXPECT_EQ(error_of<ShapeError>([&] { x.reshape({-1, 4}); }),
            "reshape: shape [2, 3] cannot become [-1, 4]; the elements must be as many");
  EXPECT_EQ(error_of<ShapeError>([&] { x.reshape({-1, -1}); }),
            "reshape: shape [2, 3] cannot become [-1, -1]; only one size may be -1");
  EXPECT_EQ(error_of<ShapeError>([&] { x.t().view({6}); }),
            "view: shape [3, 2] with strides [1, 3] cannot be seen as [6] without a copy; use reshape");
  EXPECT_EQ(error_of<ShapeError>([&] { x.transpose(0, 2); }),
            "transpose: dim 2 of a tensor of rank 2; it must be from -2 to 1");
  EXPECT_EQ(error_of<ShapeError>([&] { x.permute({0, 0}); }),
            "permute: order [0, 0] must name each dim of shape [2, 3] once");
  EXPECT_EQ(error_of<ValueError>([&] { x.select(0, 2); }), "select: index 2 is out of dim 0 of shape [2, 3]");
  EXPECT_EQ(error_of<ValueError>([&] { x.slice(0, 0, 2, 0); }), "slice: step 0 must be at least 1");
  EXPECT_EQ(error_of<ValueError>([&] { x.narrow(1, 2, 2); }),
            "narrow: start 2 and length 2 leave dim 1 of shape [2, 3]");
  EXPECT_EQ(
      error_of<ShapeError>([&] { x.expand({2, 4}); }),
      "expand: shape [2, 3] cannot become [2, 4]; only dims of size 1 and new dims in front grow, -1 keeps a size");
  EXPECT_EQ(error_of<ValueError>([&] { x.split({1, 2}); }), "split: sizes must add up to 2, dim 0 of shape [2, 3]");
  EXPECT_EQ(error_of<ShapeError>([&] { zeros({}).select(0, 0); }), "select: dim 0 of a tensor of rank 0; it has none");
  EXPECT_EQ(error_of<ShapeError>([&] { zeros({1, 1, 1, 1, 1, 1, 1, 1}).unsqueeze(0); }),
            "Dims: 9 dims; a tensor has at most 8");
  EXPECT_EQ(error_of<ShapeError>([&] { zeros(Dims{1, 1, 1, 1, 1, 1, 1, 1, 1}); }),
            "Dims: 9 dims; a tensor has at most 8");
}

}  // namespace
}  // namespace attn::testing
