// tests/attention/cache_test.cc: attention over a cache has the bits of attention over the same keys, however they came
// and wherever they lie.
#include <attn/cache.h>
#include <attn/ops.h>

#include "attention/truth.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace attn::testing
