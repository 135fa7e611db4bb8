// tests/attention/hostile_test.cc: masks of odd bytes and endless windows, operands that end where their pages end,
// values that are no numbers.
#include <attn/attention.h>
#include <attn/ops.h>
#include <attn/plain.h>

#include "attention/call/check.h"
#include "attention/calls.h"
#include "support/errors.h"
#include "support/golden.h"
#include "support/guarded.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace attn::testing {
namespace {

/// The same call by the vector kernels and by the specification.
void expect_bits_of_reference(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const Tensor expected = by_specification(kernels::attention_reference(), check("attention", q, k, v, options));
  EXPECT_TRUE(bits_equal(run({q, k, v}, options), expected)) << options.mask.to_string();
}

TEST(HostileMask, EveryByteButZeroIsTrue) {
  const std::int64_t rows = 70, keys = 75;  // whole words of eight bytes, and what is left
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(rows * keys)), plain_bytes(bytes.size());
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    const std::uint8_t kinds[] = {0, 1, 2, 255, 128, 0, 64};
    bytes[n] = kinds[n * 5 % 7];
    plain_bytes[n] = bytes[n] != 0;
  }
  const Tensor q = normal({1, 2, rows, 16}, 1, Dtype::f32), k = normal({1, 2, keys, 16}, 2, Dtype::f32),
               v = normal({1, 2, keys, 8}, 3, Dtype::f32);
  const Tensor odd = Tensor::from_blob(bytes.data(), {rows, keys}, Dtype::boolean),
               plain = Tensor::from_blob(plain_bytes.data(), {rows, keys}, Dtype::boolean);
  for (const auto& make : {Mask::attend, Mask::block}) {
    AttentionOptions options{.mask = make(odd)};
    expect_bits_of_reference(q, k, v, options);
    const Tensor output = attention(q, k, v, options).output;
    options.mask = make(plain);
    EXPECT_TRUE(bits_equal(output, attention(q, k, v, options).output));
  }
}

TEST(HostileMask, EndlessWindowsAndPrefixes) {
  constexpr std::int64_t endless = std::numeric_limits<std::int64_t>::max();
  const Tensor q = normal({2, 2, 9, 5}, 1, Dtype::f64), k = normal({2, 2, 140, 5}, 2, Dtype::f64),
               v = normal({2, 2, 140, 3}, 3, Dtype::f64);
  const Tensor far = tensor<std::int64_t>({-(std::int64_t{1} << 40), std::int64_t{1} << 40});
  for (const Align align : {Align::top_left, Align::bottom_right})
    for (const Mask& mask :
         {Mask::window(endless, 3, align), Mask::window(3, endless, align), Mask::window(endless, endless, align),
          Mask::prefix(endless) & Mask::causal(align), Mask::prefix(tensor<std::int64_t>({endless, 2}))})
      for (const Tensor& start : {Tensor(), tensor<std::int64_t>({-5, 7}), far})
        expect_bits_of_reference(q, k, v,
                                 {.mask = mask, .key_start = tensor<std::int64_t>({3, 60}), .query_start = start});
  EXPECT_EQ(error_of<ValueError>([] { Mask::prefix(tensor<std::int64_t>({2, -1})); }),
            "Mask::prefix: n holds -1; it must be at least 0");
}

TEST(HostileMask, ChainsEndInAnErrorBeforeTheStackDoes) {
  Mask mask = Mask::causal();
  const std::string error = error_of<ValueError>([&] {
    for (int n = 0; n < 100000; ++n) mask = n % 2 ? mask & Mask::prefix(4) : ~mask;
  });
  EXPECT_EQ(error, "Mask: the expression is more than 2000 levels deep; join many masks in pairs, or as one tensor");
  EXPECT_NO_THROW(mask.check(1, 1, 3, 3));
  EXPECT_FALSE(mask.to_string().empty());
}

TEST(HostileMask, SharedPartsDoNotGrowWithoutEnd) {
  Mask mask = Mask::causal();
  const std::string error = error_of<ValueError>([&] {
    for (int n = 0; n < 60; ++n) mask = n % 2 ? mask & (mask | Mask::prefix(4)) : mask | (mask & Mask::prefix(4));
  });
  EXPECT_EQ(error, "Mask: the expression has more than 100000 parts; join many masks as one tensor");
  EXPECT_LT(mask.to_string().size(), 1'000'000u);
  const Tensor q = normal({1, 1, 3, 4}, 1);
  EXPECT_TRUE(bits_equal(attention(q, q, q, {.mask = mask}).output,
                         attention(q, q, q, {.mask = Mask::causal() | (Mask::causal() & Mask::prefix(4))}).output));
}

TEST(HostilePlain, PositionsOutOfReachAreRefused) {
  const float x = 0;
  float y = 0;
  plain::Attention call{.q_rows = 1, .k_rows = 1, .dim = 1, .value_dim = 1, .q = &x, .k = &x, .v = &x, .output = &y};
  const std::int64_t start = std::numeric_limits<std::int64_t>::max();
  call.query_start = &start;
  std::vector<char> workspace(plain::workspace_bytes(call));
  EXPECT_EQ(plain::attention(call, workspace.data(), workspace.size()), plain::Status::bad_length);
}

TEST(HostileValues, HaveTheBitsOfTheReference) {
  const float infinity = std::numeric_limits<float>::infinity();
  const double specials[] = {infinity, -infinity, std::nan(""), 1e30, -1e30, 1e-40, -0.0, 88.8};
  for (const Dtype dtype : {Dtype::f32, Dtype::f64})
    for (std::size_t special = 0; special < std::size(specials); ++special) {
      Tensor x[3] = {normal({1, 2, 20, 7}, 1, dtype), normal({1, 1, 150, 7}, 2, dtype),
                     normal({1, 1, 150, 5}, 3, dtype)};
      const Tensor bias = normal({20, 150}, 4, dtype), sinks = full({2}, specials[special], dtype);
      for (int at = 0; at < 5; ++at) {
        AttentionOptions options{.mask = Mask::window(40, 3, Align::bottom_right), .bias = Bias::dense(bias)};
        if (at < 3) x[at].select(2, 11).fill_(specials[special]);
        if (at == 3) bias.select(1, 140).fill_(specials[special]);
        if (at == 4) options.sinks = sinks;
        if (at % 2 == 1) options.softcap = 5;
        expect_bits_of_reference(x[0], x[1], x[2], options);
      }
    }
}

TEST(HostileMemory, NothingBeyondTheOperandsIsTouched) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
    for (const Edge edge : {Edge::end, Edge::begin})
      for (const std::int64_t rows : {1, 3, 65})
        for (const std::int64_t keys : {1, 7, 66, 257})
          for (const std::int64_t dim : {1, 5, 17, 64}) {
            const Tensor q = guarded(normal({1, 2, rows, dim}, 1, dtype), edge),
                         k = guarded(normal({1, 1, keys, dim}, 2, dtype), edge);
            const Tensor v = guarded(normal({1, 1, keys, dim + 2}, 3, dtype), edge),
                         bias = guarded(normal({rows, keys}, 4, dtype), edge);
            const Tensor mask = guarded(ones({rows, keys}, Dtype::boolean), edge),
                         out = guarded({1, 2, rows, dim + 2}, dtype, {}, edge);
            const AttentionOptions options{.mask = Mask::attend(mask), .bias = Bias::dense(bias), .out = out};
            attention(q, k, v, options);
            const Tensor result = out.clone();
            AttentionOptions copies{.mask = Mask::attend(mask.clone()), .bias = Bias::dense(bias.clone())};
            EXPECT_TRUE(bits_equal(result, attention(q.clone(), k.clone(), v.clone(), copies).output));
          }
}

}  // namespace
}  // namespace attn::testing
