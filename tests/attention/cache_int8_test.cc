// tests/attention/cache_int8_test.cc: a cache in int8 stores what docs/numerics.md says, and attention over it has the
// bits of the dequantised keys.
#include <attn/cache.h>
#include <attn/ops.h>

#include "attention/truth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace attn::testing {
namespace {

TEST(CacheInt8, StoresWhatTheRuleSays) {
  KvCache cache({.key_heads = 1, .head_dim = 4, .pages = 2, .storage = KvStorage::int8});
  const KvSequence s = cache.create();
  // scale 2 / 127 = one step; halves of a step go to even
  const float scale = 2.0F / 127;
  const Tensor k = tensor<float>({2, -1, 0.5F * scale, 1.5F * scale, 0, 0, 0, 0, 1, INFINITY, 0, 0}).reshape({1, 3, 4});
  cache.append(s, k, k);
  const std::vector<double> rows = cache.gather({s}).k.to_vector();
  EXPECT_EQ(rows[0], static_cast<double>(127 * scale));
  EXPECT_EQ(rows[1], static_cast<double>(-64 * scale)) << "-63.5 steps: to even";
  EXPECT_EQ(rows[2], 0);
  EXPECT_EQ(rows[3], static_cast<double>(2 * scale));
  for (std::size_t n = 4; n < 8; ++n) EXPECT_EQ(rows[n], 0);
  for (std::size_t n = 8; n < 12; ++n) EXPECT_TRUE(std::isnan(rows[n]));
}

TEST(CacheInt8, StoresWhatTheRuleSaysOfAnyNumbers) {
  constexpr std::int64_t rows = 64, dim = 37, most = 127;
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
    for (const std::int64_t group : {37, 16, 5}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " group " + std::to_string(group));
      const Dtype computed = dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
      // rows of very different sizes; f32 has denormal ones too, whose scales are 0 or lose their last bits
      const Tensor sizes = pow(full({rows, 1}, dtype == Dtype::f16 ? 1.2 : 16.0, Dtype::f64),
                               (arange(rows) - rows / 2).to(Dtype::f64).reshape({rows, 1}));
      const Tensor x = (normal({rows, dim}, 1).to(Dtype::f64) * sizes).to(dtype);
      KvCache cache({.key_heads = 1,
                     .head_dim = dim,
                     .pages = 8,
                     .dtype = dtype,
                     .storage = KvStorage::int8,
                     .scale_group = static_cast<int>(group)});
      const KvSequence s = cache.create();
      cache.append(s, x.unsqueeze(0), x.unsqueeze(0));
      const std::vector<double> given = cache.gather({s}, computed).k.to_vector(), of = x.to(Dtype::f64).to_vector();
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t begin = 0; begin < dim; begin += group) {
          const auto at = [&](std::int64_t d) { return static_cast<std::size_t>(r * dim + d); };
          const std::int64_t end = std::min(begin + group, dim);
          double largest = 0;
          for (std::int64_t d = begin; d < end; ++d) largest = std::fmax(largest, std::fabs(of[at(d)]));
          const float scale =
              computed == Dtype::f64 ? static_cast<float>(largest / most) : static_cast<float>(largest) / most;
          for (std::int64_t d = begin; d < end; ++d) {
            if (computed == Dtype::f64) {
              const double steps =
                  scale == 0
                      ? 0
                      : std::fmax(-most, std::fmin(most, std::nearbyint(of[at(d)] / static_cast<double>(scale))));
              ASSERT_EQ(given[at(d)], steps * static_cast<double>(scale)) << r << ", " << d;
            } else {
              const float steps =
                  scale == 0 ? 0
                             : std::fmax(-most, std::fmin(most, std::nearbyint(static_cast<float>(of[at(d)]) / scale)));
              ASSERT_EQ(given[at(d)], static_cast<double>(steps * scale)) << r << ", " << d;
            }
          }
        }
    }
}

/// Whether bf16 over one scale a row was multiplied as whole numbers (docs/numerics.md section 3.8), which has bits of
/// its own.
bool of_numbers(const AttentionResult& result) { return result.plan.kernel().ends_with("_bf16"); }

TEST(CacheInt8, HasTheBitsOfTheDequantisedKeysAndASmallError) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
    // one row: two lanes, widened in registers
    for (const auto& [group, rows_of_q] : {std::pair{0, 5}, {16, 5}, {24, 5}, {0, 1}, {16, 1}, {24, 1}}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " group " + std::to_string(group) + " rows " +
                   std::to_string(rows_of_q));
      const Tensor k = normal({2, 300, 64}, 1).to(dtype), v = normal({2, 300, 64}, 2).to(dtype),
                   q = normal({2, 4, rows_of_q, 64}, 3).to(dtype);
      KvCache cache({.key_heads = 2,
                     .head_dim = 64,
                     .pages = 64,
                     .dtype = dtype,
                     .storage = KvStorage::int8,
                     .scale_group = group});
      const KvSequence s = cache.create(), t = cache.fork(s);
      cache.append(s, k, v);
      cache.append(t, k.slice(1, 0, 77), v.slice(1, 0, 77));
      const AttentionOptions options{.mask = Mask::causal()};
      const AttentionResult result = attention_cached(q, cache, {s, t}, options);
      const Tensor cached = result.output;
      if (of_numbers(result)) {
        EXPECT_TRUE(dtype == Dtype::bf16 && group == 0);
      } else {
        const Dtype computed = dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
        const KvCache::Rows rows = cache.gather({s, t}, computed);
        const Tensor dequantised = attention(q.to(computed), rows.k, rows.v,
                                             {.mask = Mask::causal(),
                                              .key_lengths = tensor<std::int64_t>({300, 77}),
                                              .query_start = tensor<std::int64_t>({300 - rows_of_q, 77 - rows_of_q})})
                                       .output;
        EXPECT_TRUE(same_bits(cached, dequantised.to(dtype)));
      }
      // what rounding to 8 bits costs: at most half a step a value, so below 2% of standard normal values
      const Tensor exact = attention(q.slice(0, 0, 1).to(Dtype::f64), k.unsqueeze(0).to(Dtype::f64),
                                     v.unsqueeze(0).to(Dtype::f64), {.mask = Mask::causal(Align::bottom_right)})
                               .output;
      const std::vector<double> expected = exact.to_vector(), given = cached.slice(0, 0, 1).to_vector();
      double most = 0, difference = 0;
      for (std::size_t n = 0; n < expected.size(); ++n) {
        difference = std::fmax(difference, std::fabs(given[n] - expected[n]));
        most = std::fmax(most, std::fabs(expected[n]));
      }
      EXPECT_LT(difference, 0.02 * most);
      EXPECT_GT(difference, 0.0001 * most) << "it is stored in 8 bits";
      RecordProperty(
          std::string(name_of(dtype)) + "_group_" + std::to_string(group) + "_rows_" + std::to_string(rows_of_q),
          std::to_string(difference / most));
    }
}

/// [heads, rows, dim] of whole numbers times a power of two a row, the largest 127 of them: 8 bits keep them exactly.
Tensor powers(std::int64_t heads, std::int64_t rows, std::int64_t dim, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values;
  for (std::int64_t r = 0; r < heads * rows; ++r) {
    const float step = std::ldexp(1.0F, static_cast<int>(random() % 5) - 9);
    for (std::int64_t c = 0; c < dim; ++c)
      values.push_back(c == r % dim ? 127 * step : step * static_cast<float>(static_cast<int>(random() % 255) - 127));
  }
  return tensor<float>(values).reshape({heads, rows, dim}).to(Dtype::bf16);
}

/// Where a scale is a power of two it does not matter whether keys and values were multiplied by it, or scores and
/// weights: prefill and decoding, softcap and dropout, head dims that fill the tiles of bytes and others, a window from
/// an odd key on.
TEST(CacheInt8, OfPowersOfTwoHasTheBitsOfBf16) {
  for (const auto& [dim, value_dim] :
       {std::pair<std::int64_t, std::int64_t>{64, 64}, {128, 80}, {16, 208}, {33, 17}, {24, 128}})
    for (const std::int64_t rows_of_q : {1, 2, 4, 9, 70})
      for (const std::int64_t page : {16, 64, 0})
        for (const AttentionOptions& options :
             {AttentionOptions{}, AttentionOptions{.mask = Mask::causal()},
              AttentionOptions{.mask = Mask::window(100, 0)},
              AttentionOptions{.mask = Mask::causal(), .softcap = 5, .dropout_p = 0.2, .dropout_seed = 3}}) {
          SCOPED_TRACE(::testing::Message() << "D " << dim << " Dv " << value_dim << " rows " << rows_of_q << " page "
                                            << page << " softcap " << options.softcap);
          const Tensor k = powers(2, 301, dim, 1), v = powers(2, 301, value_dim, 2),
                       q = normal({1, 4, rows_of_q, dim}, 3).to(Dtype::bf16);
          KvCache cache({.key_heads = 2,
                         .head_dim = dim,
                         .value_dim = value_dim,
                         .page_rows = page,
                         .pages = page == 0 ? 1 : 20,
                         .dtype = Dtype::bf16,
                         .storage = KvStorage::int8});
          KvCache plain({.key_heads = 2,
                         .head_dim = dim,
                         .value_dim = value_dim,
                         .page_rows = page,
                         .pages = page == 0 ? 1 : 20,
                         .dtype = Dtype::bf16});
          const KvSequence s = cache.create(), t = plain.create();
          cache.append(s, k, v);
          plain.append(t, k, v);
          ASSERT_TRUE(same_bits(cache.gather({s}).k, k.unsqueeze(0)));
          EXPECT_TRUE(same_bits(attention_cached(q, cache, {s}, options).output,
                                attention_cached(q, plain, {t}, options).output));
        }
}

/// A row that holds inf reads as NaN: who sees it is NaN, who does not has the bits without it.
TEST(CacheInt8, ARowOfNaNIsSilentWhereItIsHidden) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const std::int64_t rows_of_q : {1, 70}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " rows " + std::to_string(rows_of_q));
      Tensor k = normal({1, 300, 64}, 1).to(dtype), v = normal({1, 300, 64}, 2).to(dtype);
      const Tensor q = normal({1, 2, rows_of_q, 64}, 3).to(dtype);
      const auto attended = [&](bool poisoned, const Mask& mask) {
        KvCache cache({.key_heads = 1, .head_dim = 64, .pages = 20, .dtype = dtype, .storage = KvStorage::int8});
        const KvSequence s = cache.create();
        for (Tensor* rows : {&k, &v})
          rows->slice(1, 33, 34).fill_(poisoned ? std::numeric_limits<double>::infinity() : 1);
        cache.append(s, k, v);
        return attention_cached(q, cache, {s}, {.mask = mask}).output;
      };
      EXPECT_TRUE(same_bits(attended(true, ~Mask::prefix(34)), attended(false, ~Mask::prefix(34))));
      for (const double x : attended(true, Mask()).to_vector()) ASSERT_TRUE(std::isnan(x));
    }
}

}  // namespace
}  // namespace attn::testing
