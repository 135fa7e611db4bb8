// tests/random/generator_test.cc: words consumed, states, the kept normal, memory order, threads, errors.
#include <attn/ops.h>
#include <attn/random.h>
#include <attn/runtime.h>

#include "kernels/normal.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <thread>

namespace attn {
namespace {

/// Words of 32 bits that `call` draws from a fresh generator.
template <typename F>
int words(F&& call, std::uint64_t seed = 5) {
  Generator used(seed), counted(seed);
  call(used);
  const std::uint32_t next = used.u32(), after = used.u32();
  std::vector<std::uint32_t> stream;
  for (int i = 0; i < 3000; ++i) stream.push_back(counted.u32());
  for (int i = 0; i + 1 < 3000; ++i)
    if (stream[static_cast<std::size_t>(i)] == next && stream[static_cast<std::size_t>(i) + 1] == after) return i;
  return -1;
}

TEST(Generator, ManyNumbersAreThoseOfManyCalls) {
  Generator one(5), many(5);
  for (const std::int64_t n : {1, 3, 624, 0, 625, 2000, 7}) {
    std::vector<std::uint32_t> words(static_cast<std::size_t>(n));
    many.u32(words.data(), n);
    for (const std::uint32_t word : words) ASSERT_EQ(word, one.u32());
    std::vector<float> singles(static_cast<std::size_t>(n));
    many.uniform(singles.data(), n);
    for (const float x : singles) ASSERT_EQ(x, one.uniform_f32());
    std::vector<double> doubles(static_cast<std::size_t>(n));
    many.uniform(doubles.data(), n);
    for (const double x : doubles) ASSERT_EQ(x, one.uniform_f64());
  }
  EXPECT_EQ(one.state(), many.state());
}

TEST(Generator, NormalsOfManyPartsAreThoseOfOne) {
  const int before = num_threads();
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
    std::vector<Tensor> drawn;
    for (const int threads : {1, 3}) {
      set_num_threads(threads);
      Generator generator(6);
      drawn.push_back(randn({100003}, generator, dtype));
    }
    EXPECT_TRUE(same_bits(drawn[0], drawn[1])) << name_of(dtype);
  }
  set_num_threads(before);
}

TEST(Generator, FirstWordsOfTheMersenneTwister) {
  Generator generator(5489);
  EXPECT_EQ(generator.u32(), 3499211612u);
  for (int i = 1; i < 9999; ++i) generator.u32();
  EXPECT_EQ(generator.u32(), 4123659995u);  // the 10,000th, as the C++ standard fixes it
}

TEST(Generator, FirstOfTwoWordsIsTheHighHalf) {
  Generator one(3), two(3);
  const std::uint64_t high = one.u32(), low = one.u32();
  EXPECT_EQ(two.u64(), (high << 32) | low);
}

TEST(Generator, WordsConsumed) {
  EXPECT_EQ(words([](Generator& g) { rand({7}, g); }), 7);
  EXPECT_EQ(words([](Generator& g) { rand({7}, g, Dtype::f64); }), 14);
  for (int n = 1; n < 16; ++n) EXPECT_EQ(words([n](Generator& g) { randn({n}, g); }), 4 * ((n + 1) / 2)) << n;
  EXPECT_EQ(words([](Generator& g) { randn({3}, g), randn({4}, g); }), 8 + 8);  // one is kept, so 3 are needed
  EXPECT_EQ(words([](Generator& g) { randn({16}, g); }), 16);
  EXPECT_EQ(words([](Generator& g) { randn({2, 9}, g); }), 34);
  EXPECT_EQ(words([](Generator& g) { randn({32}, g, Dtype::f64); }), 64);
  EXPECT_EQ(words([](Generator& g) { randn({33}, g, Dtype::f64); }), 98);
  EXPECT_EQ(words([](Generator& g) { randint(0, (1 << 28) - 1, {5}, g); }), 5);
  EXPECT_EQ(words([](Generator& g) { randint(-1, (1 << 28) - 1, {5}, g); }), 10);
  EXPECT_EQ(words([](Generator& g) { randperm(9, g); }), 8);
  EXPECT_EQ(words([](Generator& g) { bernoulli_(empty({5}), 0.5, g); }), 10);
  EXPECT_EQ(words([](Generator& g) { bernoulli(full({5}, 0.5), g); }), 5);
  EXPECT_EQ(words([](Generator& g) { bernoulli(full({5}, 0.5, Dtype::f64), g); }), 10);
  EXPECT_EQ(words([](Generator& g) { exponential_(empty({5}), 1, g); }), 10);
  EXPECT_EQ(words([](Generator& g) { multinomial(ones({3, 4}), 1, false, g); }), 24);
  EXPECT_EQ(words([](Generator& g) { multinomial(ones({3, 4}), 1, true, g); }), 24);
  EXPECT_EQ(words([](Generator& g) { multinomial(ones({3, 4}), 5, true, g); }), 30);
}

TEST(Generator, StateRoundTripKeepsThePositionAndTheKeptNormal) {
  Generator from(17);
  randn({3}, from);
  rand({700}, from);
  const std::vector<std::uint8_t> state = from.state();
  EXPECT_EQ(state.size(), 5056u);
  Generator to(1);
  to.set_state(state);
  EXPECT_EQ(to.initial_seed(), 17u);
  EXPECT_TRUE(testing::bits_equal(randn({5}, to), randn({5}, from)));
  EXPECT_EQ(to.u64(), from.u64());
  EXPECT_EQ(to.state(), from.state());
}

TEST(Generator, StateOfAFreshSeedAndOfAnExhaustedBlock) {
  Generator fresh(9), to(1);
  to.set_state(fresh.state());
  EXPECT_EQ(to.u32(), fresh.u32());
  rand({623}, fresh);  // the last word of the block is drawn
  to.set_state(fresh.state());
  EXPECT_EQ(to.u32(), fresh.u32());
}

TEST(Generator, BytesThatAreNoStateAreRefused) {
  Generator generator(4), same(4);
  std::vector<std::uint8_t> state = generator.state();
  EXPECT_THROW(generator.set_state({1, 2, 3}), FormatError);
  state[16] = 200, state[17] = 3;  // next word 968
  EXPECT_THROW(generator.set_state(state), FormatError);
  state = generator.state();
  state[24 + 8 * 7 + 5] = 1;  // word 7 above 32 bits
  try {
    generator.set_state(state);
    FAIL();
  } catch (const FormatError& error) {
    EXPECT_EQ(error.offset(), 24u + 8 * 7);
    EXPECT_STREQ(error.what(), "set_state: word 7 is above 32 bits");
  }
  EXPECT_EQ(generator.u32(), same.u32());  // nothing was taken over
}

TEST(Generator, OnlySeedingForgetsTheKeptNormal) {
  Generator a(2), b(2);
  const Tensor pair = randn({2}, a);
  randn({1}, b);
  randn({16}, b), rand({3}, b), randint(0, 9, {2}, b);
  EXPECT_EQ(randn({1}, b).item(), pair.to_vector()[1]);
  randn({1}, b);
  b.manual_seed(2);
  EXPECT_EQ(randn({1}, b).item(), pair.to_vector()[0]);
}

TEST(Generator, TheGlobalOneServesManyThreads) {
  constexpr int threads = 4, draws = 2000;
  manual_seed(31);
  std::vector<std::vector<double>> drawn(threads);
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t)
    pool.emplace_back([&drawn, t] {
      for (int i = 0; i < draws; ++i)
        for (const double value : rand({3}, Dtype::f64).to_vector())
          drawn[static_cast<std::size_t>(t)].push_back(value);
    });
  for (std::thread& thread : pool) thread.join();
  std::vector<double> all;
  for (const auto& part : drawn) all.insert(all.end(), part.begin(), part.end());
  std::sort(all.begin(), all.end());
  Generator generator(31);
  std::vector<double> expected = rand({threads * draws * 3}, generator, Dtype::f64).to_vector();
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(all, expected);  // each number was handed out once
}

TEST(MemoryOrder, ATransposedViewIsFilledInTheOrderOfItsMemory) {
  Generator a(8), b(8);
  const Tensor plain = rand({4, 6}, a);
  const Tensor turned = uniform_(empty({4, 6}).transpose(0, 1), 0, 1, b);
  EXPECT_TRUE(testing::bits_equal(turned.transpose(0, 1).contiguous(), plain));
}

TEST(MemoryOrder, AStridedViewIsFilledRowByRow) {
  Generator a(8), b(8);
  const Tensor memory = zeros({4, 6});
  uniform_(memory.slice(1, 1, 6, 2), 0, 1, a);
  EXPECT_TRUE(testing::bits_equal(memory.slice(1, 1, 6, 2).contiguous(), rand({4, 3}, b)));
  EXPECT_EQ(memory.slice(1, 0, 6, 2).contiguous().to_vector(), std::vector<double>(12, 0.0));
}

TEST(MemoryOrder, SixteenNormalsOfAViewTakeTheScalarPath) {
  Generator a(8), b(8);
  const Tensor view = normal_(empty({4, 6}).transpose(0, 1), 0, 1, a);
  for (int i = 0; i < 24; ++i)
    EXPECT_EQ(view.transpose(0, 1).contiguous().to_vector()[static_cast<std::size_t>(i)],
              static_cast<double>(static_cast<float>(b.normal())));
}

TEST(MemoryOrder, DropoutDrawsAsTheTensorLies) {
  // What torch's dropout keeps after manual_seed(2): of a row-major [3, 4] read row by row, and so of what lies in its
  // memory.
  const std::vector<double> kept{0, 2, 0, 0, 0, 0, 2, 2, 0, 2, 2, 0};
  auto drop = [generator = Generator()](const Tensor& x) mutable {
    generator.manual_seed(2);
    return dropout(x, 0.5, true, generator);
  };
  EXPECT_EQ(drop(ones({3, 4})).to_vector(), kept);
  EXPECT_EQ(drop(ones({3, 4}).t()).t().to_vector(), kept);
  EXPECT_EQ(drop(ones({3, 4, 2}).slice(2, 0, 1).permute({1, 2, 0})).permute({2, 0, 1}).to_vector(), kept);
  // Of repeated elements the order is that of torch.empty_like: here its strides are [2, 6, 1].
  EXPECT_EQ(drop(ones({3, 1}).expand({3, 4}).t()).to_vector(), kept);
  EXPECT_EQ(drop(ones({2, 3}).t().unsqueeze(2).expand({3, 2, 2})).to_vector(),
            (std::vector<double>{0, 2, 2, 2, 0, 0, 0, 2, 0, 0, 2, 0}));
}

TEST(MemoryOrder, AnExpandedTensorIsRefused) {
  try {
    uniform_(zeros({1, 3}).expand({2, 3}));
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_STREQ(error.what(),
                 "uniform_: shape [2, 3] with strides [0, 1] has several elements in one place; change a clone()");
  }
}

TEST(RandomTransforms, BothBuildsGiveTheSameBits) {
  const kernels::RandomTransforms* fma = kernels::random_transforms_fma();
  if (fma == nullptr) GTEST_SKIP() << "no FMA instructions here";
  const kernels::RandomTransforms* generic = kernels::random_transforms_generic();
  Generator generator(12);
  Tensor a = rand({16 * 4000}, generator), b = a.clone();
  a.data<float>()[0] = b.data<float>()[0] = 0;  // log(1)
  fma->normal_f32(a.data<float>(), a.numel(), 0.25f, 1.5f);
  generic->normal_f32(b.data<float>(), b.numel(), 0.25f, 1.5f);
  EXPECT_TRUE(testing::bits_equal(a, b));
  Tensor c = rand({16 * 100}, generator, Dtype::f64), d = c.clone();
  fma->normal_f64(c.data<double>(), c.numel(), 0.25, 1.5);
  generic->normal_f64(d.data<double>(), d.numel(), 0.25, 1.5);
  fma->affine_f64(c.data<double>(), c.numel(), 0.7, -0.1);
  generic->affine_f64(d.data<double>(), d.numel(), 0.7, -0.1);
  EXPECT_TRUE(testing::bits_equal(c, d));
  fma->affine_f32(a.data<float>(), a.numel(), 0.7f, -0.1f);
  generic->affine_f32(b.data<float>(), b.numel(), 0.7f, -0.1f);
  EXPECT_TRUE(testing::bits_equal(a, b));
}

TEST(Random, Halves) {
  Generator generator(6);
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    for (const double value : rand({4000}, generator, dtype).to_vector()) EXPECT_TRUE(value >= 0 && value < 1);
    for (const double value : uniform_(empty({4000}, dtype), -2, 3, generator).to_vector())
      EXPECT_TRUE(value >= -2 && value <= 3);
    for (const double value : uniform_(empty({400}, dtype), 100, 100.5, generator).to_vector()) EXPECT_LT(value, 100.5);
    // A tail of normals replaces numbers that were not drawn for it.
    Generator a(5), b(5);
    const Tensor drawn = randn({20}, a, dtype), block = randn({32}, b).to(dtype);
    EXPECT_TRUE(testing::bits_equal(drawn.slice(0, 0, 4), block.slice(0, 0, 4)));
    EXPECT_TRUE(testing::bits_equal(drawn.slice(0, 4), block.slice(0, 16)));
    EXPECT_EQ(a.u32(), b.u32());
  }
}

TEST(Random, HalvesAreThoseOfTorch) {
  // torch.rand(5, generator=torch.Generator().manual_seed(2), dtype=...), then empty(3).uniform_(-0.3, 1.7) of a fresh
  // one.
  const auto expect = [](const Tensor& x, const std::vector<double>& numbers) { EXPECT_EQ(x.to_vector(), numbers); };
  auto fresh = [generator = Generator()]() mutable -> Generator& {
    generator.manual_seed(2);
    return generator;
  };
  expect(rand({5}, fresh(), Dtype::f16), {0.61474609375, 0.381103515625, 0.63720703125, 0.474365234375, 0.71337890625});
  expect(rand({5}, fresh(), Dtype::bf16), {0.61328125, 0.380859375, 0.63671875, 0.474609375, 0.71484375});
  expect(uniform_(empty({3}, Dtype::f16), -0.3, 1.7, fresh()), {0.92919921875, 0.4619140625, 0.97412109375});
  expect(uniform_(empty({3}, Dtype::bf16), -0.3, 1.7, fresh()), {0.9296875, 0.462890625, 0.97265625});
}

TEST(Random, ValuesOutOfRangeAreErrors) {
  EXPECT_THROW(randint(3, 3, {2}), ValueError);
  EXPECT_THROW(uniform_(empty({2}), 1, 0), ValueError);
  EXPECT_THROW(normal_(empty({2}), 0, -1), ValueError);
  EXPECT_THROW(bernoulli_(empty({2}), 1.5), ValueError);
  EXPECT_THROW(bernoulli(full({2}, 1.5)), ValueError);
  EXPECT_THROW(exponential_(empty({2}), 0), ValueError);
  EXPECT_THROW(multinomial(ones({3}), 4), ValueError);
  EXPECT_THROW(multinomial(zeros({3}), 1), ValueError);
  EXPECT_THROW(multinomial(zeros({0}), 1, true), ValueError);
  EXPECT_THROW(multinomial(full({3}, -1), 1), ValueError);
  EXPECT_THROW(multinomial(ones({1, 1, 3}), 1), ShapeError);
  EXPECT_THROW(uniform_(empty({2}, Dtype::i64)), DtypeError);
  EXPECT_THROW(dropout(ones({2}), -0.1), ValueError);
}

TEST(Random, ALeafThatRequiresAGradientIsNotFilled) {
  Tensor leaf = zeros({3}).requires_grad_();
  EXPECT_THROW(uniform_(leaf), ValueError);
  const std::uint64_t version = leaf.version();
  uniform_(leaf.detach());
  EXPECT_GT(leaf.version(), version);
}

}  // namespace
}  // namespace attn
