// tests/tensor/storage_test.cc: memory of tensors: alignment, the caller's own, versions, histories, in-place rules,
// counting.
#include "runtime/memory.h"
#include "runtime/thread_scratch.h"
#include "support/errors.h"
#include "tensor/record.h"

#include <attn/ops.h>
#include <attn/random.h>

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <type_traits>
#include <utility>

namespace attn::testing {
namespace {

TEST(Storage, OwnedMemoryIsAlignedAndCounted) {
  for (const std::int64_t n : {0, 1, 3, 17, 1000})
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(empty({n}).data()) % 64, 0u);
  const std::size_t before = runtime::allocated_bytes();
  runtime::reset_peak();
  {
    const Tensor x = empty({256}), y = x.clone(), view = x.slice(0, 5);
    EXPECT_EQ(runtime::allocated_bytes(), before + 2048);
  }
  EXPECT_EQ(runtime::allocated_bytes(), before);
  EXPECT_EQ(runtime::peak_bytes(), before + 2048);
}

TEST(Storage, ScratchBelongsToItsThread) {
  void* here = runtime::thread_scratch(100);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(here) % 64, 0u);
  EXPECT_EQ(runtime::thread_scratch(50), here);
  void* there = nullptr;
  std::thread([&] { there = runtime::thread_scratch(100); }).join();
  EXPECT_NE(there, here);
  EXPECT_NE(runtime::thread_scratch(1 << 20), nullptr);
}

TEST(Storage, FromBlobSharesAndCallsTheDeleterOnce) {
  float data[6] = {1, 2, 3, 4, 5, 6};
  int deleted = 0;
  {
    Tensor view;
    {
      const Tensor x = Tensor::from_blob(data, {2, 3}, Dtype::f32, {}, [&](void* p) {
        EXPECT_EQ(p, data);
        ++deleted;
      });
      EXPECT_EQ(x.data<float>(), data);
      view = x.select(0, 1);
    }
    EXPECT_EQ(deleted, 0);
    view.fill_(9);
  }
  EXPECT_EQ(deleted, 1);
  EXPECT_EQ(data[2], 3);
  EXPECT_EQ(data[3], 9);
  EXPECT_EQ(data[5], 9);
}

TEST(Storage, FromBlobTakesZeroAndNegativeStrides) {
  float data[4] = {1, 2, 3, 4};
  EXPECT_EQ(Tensor::from_blob(data + 3, {4}, Dtype::f32, {-1}).to_vector(), (std::vector<double>{4, 3, 2, 1}));
  EXPECT_EQ(Tensor::from_blob(data, {2, 2}, Dtype::f32, {0, 1}).to_vector(), (std::vector<double>{1, 2, 1, 2}));
  EXPECT_EQ(Tensor::from_blob(nullptr, {0, 2}, Dtype::f32).numel(), 0);
  float sums[] = {1, 2, 3, 4};
  // of one memory, which neither knows of the other
  Tensor::from_blob(sums, {4}, Dtype::f32).add_(Tensor::from_blob(sums + 3, {4}, Dtype::f32, {-1}));
  EXPECT_EQ(std::vector<float>(sums, sums + 4), (std::vector<float>{5, 5, 5, 5}));
  EXPECT_EQ(error_of<ShapeError>([&] { Tensor::from_blob(data, {2, 2}, Dtype::f32, {1}); }),
            "from_blob: strides [1] must be as many as sizes [2, 2]");
  EXPECT_EQ(error_of<ValueError>([&] { Tensor::from_blob(nullptr, {2}, Dtype::f32); }),
            "from_blob: data is null for sizes [2]");
}

TEST(Storage, ValuesAndTypes) {
  const Tensor x = tensor<std::int64_t>({1, 2});
  EXPECT_EQ(error_of<DtypeError>([&] { x.data<float>(); }), "data: the tensor is i64, asked for as f32");
  EXPECT_EQ(error_of<ValueError>([&] { x.item(); }), "item: the tensor has shape [2]; it must have one element");
  EXPECT_EQ(scalar_tensor<float>(2.5f).item(), 2.5);
  EXPECT_EQ(zeros({1, 1}).item_int(), 0);
  EXPECT_EQ(error_of<ShapeError>([] { empty({2, -1}); }), "empty: sizes [2, -1] hold a negative one");
  using Made = std::pair<const char*, std::function<Tensor(Dims)>>;
  const Made others[] = {{"full", [](Dims sizes) { return full(sizes, 2); }},
                         {"zeros", [](Dims sizes) { return zeros(sizes); }},
                         {"ones", [](Dims sizes) { return ones(sizes); }},
                         {"rand", [](Dims sizes) { return rand(sizes); }},
                         {"randn", [](Dims sizes) { return randn(sizes); }},
                         {"randint", [](Dims sizes) { return randint(0, 2, sizes); }}};
  for (const auto& [name, make] : others)
    EXPECT_EQ(error_of<ShapeError>([&] { make({-1}); }), std::string(name) + ": sizes [-1] hold a negative one");
  EXPECT_EQ(error_of<ShapeError>([] { eye(-1); }), "eye: n is -1; it must not be negative");
  EXPECT_EQ(error_of<ShapeError>([] { empty({std::int64_t{1} << 40, std::int64_t{1} << 40}); }),
            "Dims: the product of [1099511627776, 1099511627776] is beyond 64 bits");
  EXPECT_THROW(empty({std::int64_t{1} << 62}), Error);
}

TEST(Storage, VersionCountsInPlaceChangesAndViewsShareIt) {
  const Tensor x = zeros({2, 2});
  EXPECT_EQ(x.version(), 0u);
  x.select(0, 0).fill_(1);
  EXPECT_EQ(x.version(), 1u);
  x.add_(ones({2}));
  x.mul_(2.0);
  x.mul_(x);
  x.t().copy_(ones({2, 1}));
  EXPECT_EQ(x.version(), 5u);
  EXPECT_EQ(x.detach().version(), 5u);
  EXPECT_EQ(x.clone().version(), 0u);
  EXPECT_EQ(cat({x, x}).version(), 0u);
  EXPECT_EQ(x.to_vector(), (std::vector<double>{1, 1, 1, 1}));
}

TEST(Storage, InPlace) {
  const Tensor x = tensor<float>({1, 2, 3, 4}, {2, 2});
  x.add_(tensor<float>({10, 20}), -0.5);
  EXPECT_EQ(x.to_vector(), (std::vector<double>{-4, -8, -2, -6}));
  x.add_(x.t());
  EXPECT_EQ(x.to_vector(), (std::vector<double>{-8, -10, -10, -12}));
  x.copy_(x.t().clone());
  x.slice(1, 0, 1).zero_();
  EXPECT_EQ(x.to_vector(), (std::vector<double>{0, -10, 0, -12}));
  const Tensor half = ones({2}, Dtype::bf16);
  half.add_(tensor<float>({256, 1.5f}));
  EXPECT_EQ(half.to_vector(), (std::vector<double>{256, 2.5}));
  half.copy_(full({2}, 256));
  half.add_(scalar_tensor<float>(1.001f));  // beside a tensor a number is rounded first: 257, which ties to 256
  EXPECT_EQ(half.to_vector(), (std::vector<double>{256, 256}));
  half.fill_(3).mul_(1.003);  // a factor is not
  EXPECT_EQ(half.to_vector(), (std::vector<double>{3.015625, 3.015625}));
  const Tensor y = tensor<float>({1, 2, 3});
  y += tensor<float>({1, 1, 1});
  y -= scalar_tensor<float>(0.5f);
  y *= 2;
  y /= tensor<float>({3, 5, 7});
  EXPECT_EQ(y.to_vector(), (std::vector<double>{1, 1, 1}));
  y += 3;
  y -= 1;
  y.sub_(tensor<float>({1, 2, 3}), 2);
  y /= 4;
  EXPECT_EQ(y.to_vector(), (std::vector<double>{0.25, -0.25, -0.75}));
  const Tensor counts = tensor<std::int64_t>({1, 2});
  counts -= 1;
  EXPECT_EQ(counts.to_vector(), (std::vector<double>{0, 1}));
  EXPECT_EQ(error_of<DtypeError>([&] { counts.div_(2); }), "div_: the result is f32; it cannot be kept in i64");
  EXPECT_EQ(error_of<DtypeError>([&] { tensor<bool>({true}).sub_(tensor<bool>({true})); }),
            "sub_: given bool and bool; bool cannot be subtracted, use ne or logical_not");
  EXPECT_EQ(error_of<DtypeError>([&] { counts.mul_(1.5); }), "mul_: the result is f32; it cannot be kept in i64");
  EXPECT_EQ(error_of<DtypeError>([&] { counts.add_(counts, 0.5); }),
            "add_: alpha is a floating number beside i64 tensors; it must be an integer");
  EXPECT_EQ(error_of<ShapeError>([&] { counts.add_(zeros({3, 2}, Dtype::i64)); }),
            "add_: other has shape [3, 2]; it must broadcast to [2]");
  EXPECT_EQ(error_of<ShapeError>([&] { counts.copy_(zeros({3, 2})); }),
            "copy_: source has shape [3, 2]; it must broadcast to [2]");
}

TEST(Storage, UndefinedTensorsAreNotChanged) {
  const Tensor x;
  const std::string text = "fill_: the tensor is undefined; it has no elements to change";
  EXPECT_EQ(error_of<ValueError>([&] { x.fill_(1); }), text);
  EXPECT_EQ(error_of<ValueError>([&] { x.zero_(); }), text);
  for (const auto& change : {+[](const Tensor& t) { t.add_(1); }, +[](const Tensor& t) { t.div_(ones({2})); },
                             +[](const Tensor& t) { t.copy_(ones({2})); }})
    EXPECT_THROW(change(x), ValueError);
}

TEST(Storage, SizesOutliveATemporary) {
  static_assert(std::is_same_v<decltype(std::declval<Tensor>().sizes()), Dims> &&
                std::is_same_v<decltype(std::declval<Tensor>().strides()), Dims>);
  static_assert(std::is_same_v<decltype(std::declval<const Tensor&>().sizes()), const Dims&>);
  std::int64_t sum = 0;
  for (const std::int64_t size : zeros({2, 3}).sizes()) sum += size;
  EXPECT_EQ(sum, 5);
}

TEST(Storage, CopyBetweenOverlappingViews) {
  const Tensor x = arange(6);
  x.slice(0, 1).copy_(x.slice(0, 0, 5));
  EXPECT_EQ(x.to_int_vector(), (std::vector<std::int64_t>{0, 0, 1, 2, 3, 4}));
}

TEST(Record, LeavesAreNotChangedInPlace) {
  Tensor x = zeros({2, 2});
  x.requires_grad_();
  const char* text =
      "fill_: a leaf that requires a gradient was changed in place; do it while a NoGrad is there, or change its "
      "detach() or a clone()";
  EXPECT_EQ(error_of<ValueError>([&] { x.fill_(1); }), text);
  EXPECT_EQ(error_of<ValueError>([&] { x.t().select(0, 1).fill_(1); }), text);
  EXPECT_EQ(x.version(), 0u);
  x.detach().fill_(1);
  EXPECT_EQ(x.version(), 1u);
  const Tensor y = x * 2.0;
  y.add_(x);
  EXPECT_EQ(y.to_vector(), (std::vector<double>{3, 3, 3, 3}));
  ASSERT_TRUE(y.impl()->node);
  EXPECT_STREQ(y.impl()->node->name, "AddBackward0");
  EXPECT_STREQ(y.impl()->node->edges[0].node->name, "MulBackward0");
  EXPECT_EQ(error_of<DtypeError>([] { arange(3).requires_grad_(); }),
            "requires_grad_: the tensor is i64; only floating types have gradients");
}

TEST(Record, OnlyWhereAGradientIsWanted) {
  const Tensor plain = ones({2, 2});
  Tensor leaf = ones({2, 2});
  leaf.requires_grad_();
  EXPECT_FALSE((plain + plain).impl()->node);
  EXPECT_TRUE((plain + leaf).requires_grad());
  EXPECT_FALSE((plain + leaf).detach().requires_grad());
  EXPECT_FALSE(eq(leaf, leaf).requires_grad());
  EXPECT_FALSE(leaf.to(Dtype::i64).requires_grad());
}

TEST(Record, NamesAreTorchs) {
  Tensor x = ones({2, 3});
  x.requires_grad_();
  const Tensor mask = zeros({2, 3}, Dtype::boolean), index = tensor<std::int64_t>({0});
  const std::pair<const char*, Tensor> results[] = {
      {"AddBackward0", x + x},
      {"AddBackward0", x + 1},
      {"SubBackward0", x - 1},
      {"RsubBackward1", 1 - x},
      {"MulBackward0", x * x},
      {"MulBackward0", 2 / x},
      {"DivBackward0", x / 2},
      {"NegBackward0", -x},
      {"PowBackward0", pow(x, 2)},
      {"PowBackward1", pow(x, x)},
      {"SqrtBackward0", x.sqrt()},
      {"AbsBackward0", abs(x)},
      {"ReluBackward0", relu(x)},
      {"MaximumBackward0", maximum(x, x)},
      {"WhereBackward0", where(mask, x, 0)},
      {"MaskedFillBackward0", x.masked_fill(mask, 0)},
      {"TrilBackward0", tril(x)},
      {"CatBackward0", cat({x, x})},
      {"StackBackward0", stack({x, x})},
      {"RepeatBackward0", x.repeat({1, 2})},
      {"IndexSelectBackward0", x.index_select(0, index)},
      {"EmbeddingBackward0", embedding(index, x)},
      {"CloneBackward0", x.clone()},
      {"CloneBackward0", x.t().contiguous()},
      {"ToCopyBackward0", x.to(Dtype::f64)},
      {"ViewBackward0", x.view({6})},
      {"ViewBackward0", x.reshape({6})},
      {"UnsafeViewBackward0", x.t().reshape({6})},
      {"ReshapeAliasBackward0", x.t().reshape({3, 2, 1})},
      {"TBackward0", x.t()},
      {"TransposeBackward0", x.transpose(0, 1)},
      {"PermuteBackward0", x.permute({1, 0})},
      {"SelectBackward0", x[0]},
      {"SliceBackward0", x.slice(0, 1)},
      {"SliceBackward0", x.narrow(0, 0, 1)},
      {"ExpandBackward0", x.expand({4, 2, 3})},
      {"SqueezeBackward0", x.squeeze()},
      {"SqueezeBackward1", x.squeeze(0)},
      {"UnsqueezeBackward0", x.unsqueeze(0)},
      {"SplitBackward0", x.split(1)[0]},
      {"SplitWithSizesBackward0", x.split({1, 1})[1]},
      {"SplitBackward0", x.chunk(2)[0]},
  };
  for (const auto& [name, result] : results) {
    ASSERT_TRUE(result.impl()->node) << name;
    EXPECT_STREQ(result.impl()->node->name, name);
  }
}

}  // namespace
}  // namespace attn::testing
