// tests/model/model_cache_test.cc: a model's cache knows its tokens, shares pages, and keeps a window behind sinks.
#include <attn/generate.h>
#include <attn/ops.h>

#include "attention/cache/sinks.h"
#include "model/lively.h"
#include "model/tiny_models.h"
#include "support/errors.h"

#include <gtest/gtest.h>

#include <limits>

namespace attn {
namespace {

using testing::error_of, testing::lively;
using Ids = std::vector<std::int64_t>;

ModelConfig longer(ModelConfig config) {
  config.context = 400;
  return config;
}

Tensor some_ids(std::int64_t rows, std::int64_t n) {
  Generator generator(7);
  return randint(0, 13, {rows, n}, generator);
}

TEST(ModelCache, SinksStayWhenTheKeysBehindThemAreEvicted) {
  constexpr std::int64_t length = 700;
  for (const std::int64_t rows : {0, 16, 64})
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      Generator generator(3);
      const Tensor k = randn({2, length, 8}, generator).to(dtype), v = randn({2, length, 8}, generator).to(dtype),
                   q = randn({1, 4, 3, 8}, generator).to(dtype);
      KvCache cache({.key_heads = 2, .head_dim = 8, .page_rows = rows, .pages = rows ? 200 : 8, .dtype = dtype});
      const KvSequence s = cache.create();
      cache.append(s, k, v);
      const std::int64_t full = cache.free_pages();
      struct Call {
        std::int64_t position, sinks, kept;  // kept: what is left at the beginning
      };
      for (const Call& call : {Call{3, 4, 3}, Call{90, 70, 70}, Call{600, 2, 2}, Call{650, 100, 2}, Call{700, 0, 0}}) {
        evict_behind_sinks(cache, s, call.position, call.sinks);
        const std::int64_t there = rows ? (call.kept + rows - 1) / rows : 0;  // pages with sinks
        if (rows) { EXPECT_EQ(cache.free_pages(), full + std::max<std::int64_t>(call.position / rows - there, 0)); }
        const KvSequence copy = cache.fork(s);
        const AttentionOptions options{.mask = Mask::causal(Align::bottom_right) &
                                               (~Mask::prefix(call.position) | Mask::prefix(call.kept))};
        for (const KvSequence sequence : {s, copy})
          EXPECT_TRUE(same_bits(attention_cached(q, cache, {sequence}, {.mask = Mask::causal()}).output,
                                attention(q, k.unsqueeze(0), v.unsqueeze(0), options).output))
              << call.position << ", " << call.sinks;
        const Tensor at = arange(length);
        const Tensor seen = lt(at, call.kept).to(Dtype::i64) + ge(at, call.position).to(Dtype::i64);
        EXPECT_TRUE(same_bits(cache.gather({s}).k[0], where(ge(seen, 1).unsqueeze(1), k, zeros_like(k))));
        cache.release(copy);
      }
      // a cut among the evicted keys, and growth from there
      const KvSequence other = cache.create();
      cache.append(other, k.slice(1, 0, 500), v.slice(1, 0, 500));
      evict_behind_sinks(cache, other, 400, 5);
      cache.truncate(other, 100);
      cache.append(other, k.slice(1, 100, 200), v.slice(1, 100, 200));
      EXPECT_TRUE(same_bits(attention_cached(q, cache, {other}).output,
                            attention(q, k.slice(1, 0, 200).unsqueeze(0), v.slice(1, 0, 200).unsqueeze(0),
                                      {.mask = ~Mask::prefix(100) | Mask::prefix(5)})
                                .output));
    }
}

TEST(ModelCache, AWindowFreesWhatItDoesNotSee) {
  const ModelConfig config = longer(testing::tiny_llama());
  const LanguageModel model = lively(config);
  const Tensor ids = some_ids(1, 400);
  ModelCache whole(config, {.window = 40, .sinks = 3}), steps(config, {.page_rows = 16, .window = 40, .sinks = 3}),
      all(config, 1);
  // the whole text in one call, before any page is freed
  const Tensor expected = model.hidden(ids, whole);
  std::vector<Tensor> rows;
  for (std::int64_t at = 0, n = 1; at < 400; at += n, n = at % 3 ? 1 : std::min<std::int64_t>(9, 400 - at)) {
    rows.push_back(model.hidden(ids.slice(1, at, at + n), steps));
    EXPECT_LE(steps.held(0), 40 + 3 + 9);
    EXPECT_EQ(steps.length(0), at + n);
  }
  EXPECT_TRUE(same_bits(cat(rows, 1), expected));
  // the first 40 tokens see all, later ones do not
  const Tensor without = model.hidden(ids, all);
  EXPECT_TRUE(same_bits(without.slice(1, 0, 40), expected.slice(1, 0, 40)));
  EXPECT_FALSE(same_bits(without.slice(1, 60, 400), expected.slice(1, 60, 400)));
  // without sinks it is the window of a Mistral
  ModelConfig mistral = config;
  mistral.sliding_window = 40;
  const LanguageModel windowed = lively(mistral);
  ModelCache no_sinks(config, {.window = 40});
  EXPECT_TRUE(same_bits(model.hidden(ids, no_sinks), windowed.hidden(ids)));
}

TEST(ModelCache, AWindowThatIsGoneIsComputedAgain) {
  const ModelConfig config = longer(testing::tiny_gpt2());
  const LanguageModel model = lively(config);
  ModelCache cache(config, {.page_rows = 16, .window = 8, .sinks = 2});
  Ids text = {1, 2, 3};
  for (int turn = 0; turn < 5; ++turn) {
    ModelCache fresh(config, {.window = 8, .sinks = 2});
    const Ids said = generate(model, {text}, {.tokens = 30, .model_cache = &cache})[0].tokens;
    EXPECT_EQ(generate(model, {text}, {.tokens = 30, .model_cache = &fresh})[0].tokens, said);
    EXPECT_EQ(generate(model, {text}, {.tokens = 30, .model_cache = &cache, .draft = {.ngram = 3}})[0].tokens, said);
    EXPECT_LE(cache.held(0), 8 + 2 + 8);
    text.insert(text.end(), said.begin(), said.begin() + 10);  // another text than the cache's from there on
    text.push_back(turn);
  }
  ASSERT_GT(cache.length(0), 20);
  EXPECT_EQ(error_of<ValueError>([&] { cache.truncate(0, 12); }),
            "ModelCache: length is 12; the window of 8 tokens before it has been freed");
  EXPECT_EQ(cache.keep_common(0, std::span(cache.tokens(0)).first(12)), 0);
}

TEST(ModelCache, KnowsItsTokens) {
  const ModelConfig config = testing::tiny_llama();
  const LanguageModel model = lively(config);
  for (const std::int64_t rows : {0, 16}) {
    ModelCache cache(config, {.sequences = 2, .page_rows = rows});
    model.hidden(tensor<std::int64_t>({1, 2, 3, 4, 5, 6}, {2, 3}), cache);
    EXPECT_EQ(cache.tokens(0), (Ids{1, 2, 3}));
    cache.truncate(1, 2);
    model.hidden(tensor<std::int64_t>({7}, {1, 1}), cache, {1});
    EXPECT_EQ(cache.tokens(1), (Ids{4, 5, 7}));
    EXPECT_THROW(model.hidden(some_ids(1, 12), cache, {1}), ValueError);  // too many
    EXPECT_EQ(cache.tokens(1), (Ids{4, 5, 7}));
    cache.reorder({1, 1});
    EXPECT_EQ(cache.tokens(0), (Ids{4, 5, 7}));
    EXPECT_EQ(cache.keep_common(0, Ids{4, 5, 7, 1}), 3);
    EXPECT_EQ(cache.keep_common(0, Ids{4}), 1);
    EXPECT_EQ(cache.length(0), 1);
    EXPECT_EQ(cache.length(1), 3);
    EXPECT_EQ(cache.held(1), 3);
    EXPECT_EQ(cache.keep_common(1, Ids{}), 0);
    EXPECT_EQ(cache.length(1), 0);
  }
}

TEST(ModelCache, Errors) {
  const ModelConfig config = testing::tiny_llama();
  const auto refused = [&](const ModelCacheOptions& options) {
    return error_of<ValueError>([&] { ModelCache cache(config, options); });
  };
  EXPECT_EQ(refused({.sequences = 0}), "ModelCache: sequences is 0; it must be from 1 to 1048576");
  EXPECT_EQ(refused({.sequences = std::numeric_limits<std::int64_t>::max()}),
            "ModelCache: sequences is 9223372036854775807; it must be from 1 to 1048576");
  EXPECT_EQ(refused({.window = -1}), "ModelCache: window is -1; it must be 0 (all) or more");
  EXPECT_EQ(refused({.window = 5, .sinks = -1}), "ModelCache: sinks is -1; it must be 0 or more");
  EXPECT_EQ(refused({.sinks = 2}), "ModelCache: sinks is 2; it must be 0 without a window, which sees all");
}

}  // namespace
}  // namespace attn
