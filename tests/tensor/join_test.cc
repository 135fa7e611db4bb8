// tests/tensor/join_test.cc: new tensors, and tensors put together or picked apart, against plain index loops.
#include "support/errors.h"
#include "support/random_shapes.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

TEST(Join, CatAndStackOnRandomStrides) {
  Random random(1);
  for (int round = 0; round < 120; ++round) {
    Dims sizes = random_sizes(random, 1, 6);
    const int dim = static_cast<int>(pick(random, 0, sizes.size() - 1));
    std::vector<Tensor> parts, layers;
    std::int64_t total = 0;
    for (int i = 0; i < 3; ++i) {
      layers.push_back(random_tensor(random, sizes));
      Dims part = sizes;
      part[dim] = pick(random, 0, 3);
      total += part[dim];
      parts.push_back(random_tensor(random, part));
    }
    const Tensor joined = cat(parts, dim - sizes.size()), stacked = stack(layers, dim);
    ASSERT_EQ(joined.size(dim), total);
    for_each_index(joined.sizes(), [&](Dims index) {
      const double value = at(joined, index);
      std::size_t part = 0;
      while (index[dim] >= parts[part].size(dim)) index[dim] -= parts[part++].size(dim);
      ASSERT_EQ(value, at(parts[part], index));
    });
    for_each_index(stacked.sizes(), [&](Dims index) {
      const double value = at(stacked, index);
      const auto layer = static_cast<std::size_t>(index[dim]);
      index.erase(dim);
      ASSERT_EQ(value, at(layers[layer], index));
    });
  }
}

TEST(Join, CatPromotesAndSkipsEmptyVectors) {
  const Tensor joined = cat({arange(2), tensor<float>({0.5f})});
  EXPECT_EQ(joined.dtype(), Dtype::f32);
  EXPECT_EQ(joined.to_vector(), (std::vector<double>{0, 1, 0.5}));
  EXPECT_EQ(cat({empty({0}), ones({2, 2})}, 1).sizes(), (Dims{2, 2}));
  EXPECT_EQ(cat({empty({0}), empty({0})}).sizes(), (Dims{0}));
}

TEST(Join, RepeatOnRandomStrides) {
  Random random(2);
  for (int round = 0; round < 80; ++round) {
    const Tensor x = random_tensor(random, random_sizes(random, 0, 4));
    Dims times;
    for (int i = static_cast<int>(pick(random, 0, 2)) + x.dim(); i > 0; --i)
      times.push_back(pick(random, 0, 9) ? pick(random, 1, 3) : 0);
    const Tensor repeated = x.repeat(times);
    const int shift = times.size() - x.dim();
    for_each_index(repeated.sizes(), [&](const Dims& index) {
      Dims from;
      for (int i = 0; i < x.dim(); ++i) from.push_back(index[i + shift] % x.size(i));
      ASSERT_EQ(at(repeated, index), at(x, from));
    });
  }
}

TEST(Join, IndexSelectAndEmbedding) {
  Random random(3);
  for (int round = 0; round < 80; ++round) {
    Dims sizes = random_sizes(random, 1, 4);
    const int dim = static_cast<int>(pick(random, 0, sizes.size() - 1));
    sizes[dim] = pick(random, 1, 4);
    const Tensor x = random_tensor(random, sizes, round % 2 ? Dtype::f32 : Dtype::i64);
    const Tensor index = tensor<std::int64_t>({0, sizes[dim] - 1, sizes[dim] / 2, 0}, {2, 2})
                             .to(round % 3 ? Dtype::i64 : Dtype::i32)
                             .t();
    const Tensor picked = x.index_select(dim, index);
    for_each_index(picked.sizes(), [&](Dims at_picked) {
      const double value = at(picked, at_picked);
      const double row = at(index, {at_picked[dim], at_picked[dim + 1]});
      at_picked.erase(dim);
      at_picked[dim] = static_cast<std::int64_t>(row);
      ASSERT_EQ(value, at(x, at_picked));
    });
  }
  const Tensor weight = tensor<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  EXPECT_EQ(embedding(tensor<std::int64_t>({2, 0}, {1, 2}), weight).sizes(), (Dims{1, 2, 2}));
  EXPECT_EQ(embedding(tensor<std::int64_t>({2, 0}), weight).to_vector(), (std::vector<double>{5, 6, 1, 2}));
}

TEST(Create, EyeOneHotRows) {
  EXPECT_EQ(eye(2).to_vector(), (std::vector<double>{1, 0, 0, 1}));
  EXPECT_EQ(eye(0).sizes(), (Dims{0, 0}));
  EXPECT_EQ(one_hot(tensor<std::int64_t>({1, 0})).to_int_vector(), (std::vector<std::int64_t>{0, 1, 1, 0}));
  EXPECT_EQ(one_hot(tensor<std::int64_t>({1}), 3).sizes(), (Dims{1, 3}));
  EXPECT_EQ(tensor2d({{1, 2, 3}, {4, 5, 6}}).sizes(), (Dims{2, 3}));
  EXPECT_EQ(full({2}, 7, Dtype::i32).to_int_vector(), (std::vector<std::int64_t>{7, 7}));
  EXPECT_EQ(ones_like(zeros({2, 1}, Dtype::f16)).dtype(), Dtype::f16);
  EXPECT_EQ(arange(3, 0, -1).to_int_vector(), (std::vector<std::int64_t>{3, 2, 1}));
  EXPECT_EQ(arange(0).numel(), 0);
  EXPECT_EQ(linspace(4, 9, 1, Dtype::f64).item(), 4);
  EXPECT_EQ(linspace(4, 9, 0).numel(), 0);
  EXPECT_EQ(linspace(0, 0.1, 7, Dtype::f64).to_vector().back(), 0.1);
}

TEST(Join, Errors) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(error_of<ValueError>([] { cat({}); }), "cat: no tensors given; one at least is needed");
  EXPECT_EQ(error_of<ShapeError>([&] { cat({x, zeros({3, 2})}); }),
            "cat: tensor 1 has shape [3, 2]; it must be as tensor 0 [2, 3] but for dim 0, along which they are joined");
  EXPECT_EQ(error_of<ShapeError>([&] { stack({x, zeros({3, 2})}); }),
            "stack: a tensor has shape [3, 2]; it must be as the first, [2, 3]");
  EXPECT_EQ(error_of<ValueError>([&] { embedding(tensor<std::int64_t>({2}), x); }),
            "embedding: index 2 is out of range; weight has 2 rows");
  EXPECT_EQ(error_of<DtypeError>([&] { embedding(x, x); }), "embedding: index is f32; it must be i64 or i32");
  EXPECT_EQ(error_of<ShapeError>([&] { x.repeat({2}); }),
            "repeat: times [2] must be as many as the dims of shape [2, 3] or more");
  EXPECT_EQ(error_of<ValueError>([] { one_hot(tensor<std::int64_t>({3}), 3); }),
            "one_hot: index 3 must be from 0 to 2");
  EXPECT_EQ(error_of<ShapeError>([] { tensor2d({{1, 2}, {3}}); }), "tensor2d: a row has 1 values; all must have 2");
  EXPECT_EQ(error_of<ShapeError>([] { tensor<float>({1, 2, 3}, {2}); }), "tensor: 3 values do not fill shape [2]");
  EXPECT_THROW(arange(0, 5, 0), ValueError);
  EXPECT_THROW(arange(0, 5, -1), ValueError);
  EXPECT_THROW(arange(-3, -4, 3), ValueError);  // less than one step the wrong way
  EXPECT_THROW(arange(1, 0.5), ValueError);
  EXPECT_EQ(arange(3, 3, -1).numel(), 0);
  // i64 of other bounds and steps: torch takes them whole before it counts
  EXPECT_EQ(arange(0, 4.5, 1, Dtype::i64).to_int_vector(), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(arange(-1.5, 1.5, 1, Dtype::i64).to_int_vector(), (std::vector<std::int64_t>{-1, 0}));
  EXPECT_THROW(arange(0, 2, 0.5, Dtype::i64), ValueError);
  EXPECT_THROW(arange(0, 1e300, 1, Dtype::i64), ValueError);
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  // the span is beyond 64 bits
  EXPECT_EQ(arange(-most, most, most).to_int_vector(), (std::vector<std::int64_t>{-most, 0}));
  EXPECT_THROW(one_hot(tensor<std::int64_t>({0, 1}), -2), ValueError);
  EXPECT_THROW(one_hot(tensor<std::int64_t>({most})), ShapeError);
  EXPECT_THROW(ones({2}).repeat({most}), ShapeError);
}

}  // namespace
}  // namespace attn::testing
