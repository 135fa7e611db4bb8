// tests/attention/cache_test.cc: attention over a cache has the bits of attention over the same keys, however they came
// and wherever they lie.
#include <attn/cache.h>
#include <attn/ops.h>

#include "attention/truth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>

namespace attn::testing {
namespace {

/// Keys of one sequence: k [2, T, 8], v [1, T, 5].
struct Keys {
  Tensor k, v;
  Keys(std::int64_t rows, std::uint64_t seed, Dtype dtype)
      : k(normal({2, rows, 8}, seed).to(dtype)), v(normal({1, rows, 5}, seed + 1).to(dtype)) {}
  Tensor k_from(std::int64_t begin, std::int64_t end) const { return k.slice(1, begin, end); }
  Tensor v_from(std::int64_t begin, std::int64_t end) const { return v.slice(1, begin, end); }
};

KvCacheOptions of_pages(std::int64_t page_rows, Dtype dtype = Dtype::f32, std::int64_t pages = 600) {
  return {.key_heads = 2,
          .value_heads = 1,
          .head_dim = 8,
          .value_dim = 5,
          .page_rows = page_rows,
          .pages = page_rows == 0 ? 8 : pages,
          .dtype = dtype};
}

void append(KvCache& cache, KvSequence s, const Keys& keys, std::int64_t begin, std::int64_t end) {
  cache.append(s, keys.k_from(begin, end), keys.v_from(begin, end));
}

std::vector<AttentionOptions> many_options() {
  const Bias alibi = Bias::alibi(Bias::alibi_slopes(4), Align::bottom_right);
  const Mask window = Mask::causal(Align::bottom_right) & Mask::window(70, 0, Align::bottom_right);
  return {{},
          {.mask = Mask::causal(Align::bottom_right)},
          {.mask = window, .softcap = 3, .sinks = normal({4}, 9)},
          {.mask = Mask::causal(Align::bottom_right), .bias = alibi, .temperature = 2},
          {.mask = Mask::causal(Align::bottom_right),
           .score_mod = ScoreExpression([](auto s, auto, auto h, auto i, auto j) {
                          return 2 * tanh(s / 2) - ScoreTable(Bias::alibi_slopes(4))(h) * (i - j);
                        }).aligned(Align::bottom_right)},
          {.score = Score::general(normal({8, 8}, 4))},
          {.score = Score::additive(normal({3, 8}, 5), normal({3, 8}, 6), normal({3}, 7)),
           .mask = Mask::causal(Align::bottom_right)},
          {.mask = Mask::causal(Align::bottom_right), .weights = Weights::full}};
}

/// Those whose parameters are of the dtype.
AttentionOptions in_dtype(AttentionOptions options, Dtype dtype) {
  for (Tensor Score::* part : {&Score::w_q, &Score::w_k, &Score::w})
    if ((options.score.*part).defined()) options.score.*part = (options.score.*part).to(dtype);
  return options;
}

class Cache : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(Cache, HasTheBitsOfTheKeysAlone) {
  const std::int64_t lengths[] = {2100, 65, 3, 1024};
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
    KvCache cache(of_pages(GetParam(), dtype));
    std::vector<KvSequence> batch;
    std::vector<Keys> keys;
    for (const std::int64_t length : lengths) {
      keys.emplace_back(length, static_cast<std::uint64_t>(length), dtype);
      batch.push_back(cache.create());
      append(cache, batch.back(), keys.back(), 0, length / 2);
      append(cache, batch.back(), keys.back(), length / 2, length);
    }
    for (const std::int64_t rows : {1, 3}) {
      const Tensor q = normal({4, 4, rows, 8}, 50).to(dtype);
      for (const AttentionOptions& given : many_options()) {
        const AttentionOptions options = in_dtype(given, dtype);
        const AttentionResult all = attention_cached(q, cache, batch, options);
        for (std::int64_t b = 0; b < 4; ++b) {
          SCOPED_TRACE(std::string(name_of(dtype)) + " length " + std::to_string(lengths[b]) + " mask " +
                       options.mask.to_string());
          const Keys& own = keys[static_cast<std::size_t>(b)];
          const AttentionResult alone =
              attention(q.slice(0, b, b + 1), own.k.unsqueeze(0), own.v.unsqueeze(0), options);
          EXPECT_TRUE(same_bits(all.output.slice(0, b, b + 1), alone.output));
          EXPECT_TRUE(same_bits(all.logsumexp.slice(0, b, b + 1), alone.logsumexp));
          if (all.weights.defined()) {
            EXPECT_TRUE(same_bits(all.weights.slice(0, b, b + 1).slice(3, 0, lengths[b]).contiguous(), alone.weights));
          }
        }
      }
    }
  }
}

TEST_P(Cache, PrefillInChunksAndDecodingHaveTheBitsOfTheWhole) {
  constexpr std::int64_t length = 1300;
  const Keys keys(length, 3, Dtype::f32);
  const Tensor q = normal({1, 4, length, 8}, 5);
  const Tensor whole = attention(q, keys.k.unsqueeze(0), keys.v.unsqueeze(0), {.mask = Mask::causal()}).output;
  KvCache cache(of_pages(GetParam()));
  const KvSequence s = cache.create();
  std::int64_t begin = 0;
  for (const std::int64_t rows : {1, 63, 1, 16, 519, 600, 99, 1}) {
    append(cache, s, keys, begin, begin + rows);
    const Tensor part = attention_cached(q.slice(2, begin, begin + rows), cache, {s}, {.mask = Mask::causal()}).output;
    EXPECT_TRUE(same_bits(part, whole.slice(2, begin, begin + rows))) << begin;
    begin += rows;
  }
  EXPECT_EQ(begin, length);
  // rows of a padded batch stand at the end of their sequence, too
  const Tensor padded = attention_cached(q.slice(2, length - 3, length), cache, {s},
                                         {.mask = Mask::causal(), .query_lengths = tensor<std::int64_t>({2})})
                            .output;
  const Tensor two = attention(q.slice(2, length - 3, length - 1), keys.k.unsqueeze(0), keys.v.unsqueeze(0),
                               {.mask = Mask::causal(Align::bottom_right)})
                         .output;
  EXPECT_TRUE(same_bits(padded.slice(2, 0, 2), two));
}

TEST_P(Cache, EvictedKeysKeepPositionsAndBits) {
  constexpr std::int64_t length = 1500;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const Keys keys(length, 3, dtype);
    const Tensor q = normal({1, 4, 2, 8}, 5).to(dtype);
    KvCache cache(of_pages(GetParam(), dtype));
    const KvSequence s = cache.create();
    append(cache, s, keys, 0, length);
    const std::int64_t full = cache.free_pages();
    for (const std::int64_t first : {1, 40, 64, 1000, 1100, 1499, 1500}) {
      cache.evict(s, first);
      EXPECT_EQ(cache.first(s), first);
      EXPECT_EQ(cache.length(s), length);
      if (GetParam() != 0) { EXPECT_EQ(cache.free_pages(), full + first / GetParam()); }
      AttentionOptions options{.mask = Mask::causal(Align::bottom_right),
                               .bias = Bias::alibi(Bias::alibi_slopes(4), Align::bottom_right)};
      const Tensor cached = attention_cached(q, cache, {s}, options).output;
      options.mask = options.mask & ~Mask::prefix(first);
      EXPECT_TRUE(same_bits(cached, attention(q, keys.k.unsqueeze(0), keys.v.unsqueeze(0), options).output)) << first;
    }
    // a cut below what was evicted, and growth from there: the new keys are seen
    cache.truncate(s, 70);
    append(cache, s, keys, 70, 200);
    const AttentionOptions options{.mask = ~Mask::prefix(70)};
    EXPECT_TRUE(
        same_bits(attention_cached(q, cache, {s}).output,
                  attention(q, keys.k_from(0, 200).unsqueeze(0), keys.v_from(0, 200).unsqueeze(0), options).output));
  }
}

TEST_P(Cache, ForksShareUntilTheyDiffer) {
  const Keys common(100, 3, Dtype::f32), one(30, 11, Dtype::f32), two(30, 21, Dtype::f32);
  KvCache cache(of_pages(GetParam()));
  const std::int64_t all = cache.free_pages();
  const KvSequence a = cache.create();
  append(cache, a, common, 0, 100);
  const std::int64_t free = cache.free_pages();
  const KvSequence b = cache.fork(a), c = cache.fork(b);
  EXPECT_EQ(cache.free_pages(), free) << "a fork takes no page";
  cache.append({a, b}, cat({one.k.unsqueeze(0), two.k.unsqueeze(0)}, 0),
               cat({one.v.unsqueeze(0), two.v.unsqueeze(0)}, 0));
  const auto keys_are = [&](KvSequence s, const std::vector<Keys>& parts) {
    std::vector<Tensor> k, v;
    for (const Keys& part : parts) k.push_back(part.k), v.push_back(part.v);
    const KvCache::Rows rows = cache.gather({s});
    return same_bits(rows.k[0], cat(k, 1)) && same_bits(rows.v[0], cat(v, 1));
  };
  EXPECT_TRUE(keys_are(a, {common, one}));
  EXPECT_TRUE(keys_are(b, {common, two}));
  EXPECT_TRUE(keys_are(c, {common}));
  cache.release(a);
  cache.truncate(b, 100);
  append(cache, c, one, 0, 30);
  append(cache, b, two, 0, 30);
  EXPECT_TRUE(keys_are(b, {common, two}));
  EXPECT_TRUE(keys_are(c, {common, one}));
  cache.release(b);
  EXPECT_TRUE(keys_are(c, {common, one}));
  EXPECT_FALSE(cache.alive(a));
  cache.release(c);
  EXPECT_EQ(cache.free_pages(), all);
}

TEST_P(Cache, PagesThatWereGivenBackHoldNaNAndNobodyNotices) {
  KvCache cache(of_pages(GetParam(), Dtype::f32, 40));
  const KvSequence old = cache.create();
  cache.append(old, full({2, 600, 8}, NAN), full({1, 600, 5}, NAN));
  cache.release(old);
  const Keys keys(90, 3, Dtype::f32);
  const Tensor q = normal({1, 4, 1, 8}, 5);
  const KvSequence s = cache.create();
  append(cache, s, keys, 0, 90);
  EXPECT_TRUE(
      same_bits(attention_cached(q, cache, {s}).output, attention(q, keys.k.unsqueeze(0), keys.v.unsqueeze(0)).output));
}

TEST_P(Cache, ThreadsMayReadAtTheSameTime) {
  KvCache cache(of_pages(GetParam()));
  const KvSequence s = cache.create();
  append(cache, s, Keys(700, 3, Dtype::f32), 0, 700);
  const KvSequence t = cache.fork(s);
  const Tensor q = normal({2, 4, 3, 8}, 5), expected = attention_cached(q, cache, {s, t}).output;
  std::vector<Tensor> outputs(3);
  std::vector<std::thread> threads;
  for (Tensor& output : outputs) threads.emplace_back([&] { output = attention_cached(q, cache, {s, t}).output; });
  for (std::thread& thread : threads) thread.join();
  for (const Tensor& output : outputs) EXPECT_TRUE(same_bits(output, expected));
}

INSTANTIATE_TEST_SUITE_P(PageRows, Cache, ::testing::Values(0, 16, 32, 64, 128, 256));

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
