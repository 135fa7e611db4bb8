// tests/attention/cache_errors_test.cc: every error of a cache, its exact text, and that nothing changed.
#include <attn/autograd.h>
#include <attn/cache.h>
#include <attn/ops.h>

#include "support/errors.h"

#include <gtest/gtest.h>

#include <functional>

namespace attn::testing {
namespace {

const KvCacheOptions small = {.key_heads = 2, .head_dim = 4, .value_dim = 3, .pages = 4};
const Tensor k = ones({2, 20, 4}), v = ones({2, 20, 3});

template <typename E>
std::string refused(KvCacheOptions options) {
  return error_of<E>([&] { KvCache cache(options); });
}

/// A gradient that would miss what the cache holds is refused where it is asked for; without one everything runs as
/// ever.
TEST(CacheErrors, AGradientIsRefused) {
  const std::string text =
      "attention_cached: it has no gradient, since a cache keeps keys and values without their history; call attention "
      "with all of them";
  const Tensor q = ones({1, 2, 3, 4});
  {
    KvCache cache(small);
    const KvSequence s = cache.create();
    cache.append(s, k, v);
    EXPECT_FALSE(attention_cached(q, cache, {s}).output.requires_grad());
    const Tensor output = attention_cached(q.clone().requires_grad_(), cache, {s}).output;
    EXPECT_EQ(error_of<ValueError>([&] { output.sum().backward(); }), text);
    const auto wanted = [](const Dims& sizes) { return ones(sizes).requires_grad_(); };
    std::vector<AttentionOptions> all(9);  // every tensor that a gradient may flow to
    all[0].bias = Bias::dense(wanted({3, 20}));
    all[1].bias = Bias::alibi(wanted({2}), Align::bottom_right);
    all[2].bias = Bias::relative(wanted({4, 2}), false, 4, Align::bottom_right);
    all[3].sinks = wanted({2});
    all[4].score = Score::general(wanted({4, 4}));
    all[5].score = Score::additive(ones({6, 4}), ones({6, 4}), wanted({6}));
    all[6].score = Score::additive(wanted({6, 4}), wanted({6, 4}), ones({6}));
    const ScoreTable by_key(wanted({20})), by_head(wanted({2}).to(Dtype::bf16));
    all[7].score_mod = [&](auto s, auto, auto, auto, auto j) { return s * by_key(j); };
    all[8].score_mod = [&](auto s, auto, auto h, auto, auto) { return where(by_head(h) > 0.0, s, 0.0); };
    for (AttentionOptions& options : all)
      for (const Weights kind : {Weights::none, Weights::full}) {
        options.weights = kind;
        const AttentionResult result = attention_cached(q, cache, {s}, options);
        const std::ptrdiff_t n = &options - all.data();
        for (const Tensor& one : {result.output, result.logsumexp, result.weights})
          if (one.defined()) {
            EXPECT_EQ(error_of<ValueError>([&] { one.sum().backward(); }), text) << n;
          }
        const NoGrad no_grad;
        EXPECT_FALSE(attention_cached(q, cache, {s}, options).output.requires_grad()) << n;
      }
  }
  for (const bool recorded : {true, false}) {
    KvCache cache(small);
    const KvSequence s = cache.create();
    const Tensor wanted = k.clone().requires_grad_();
    if (recorded) cache.append(s, wanted, v);
    else cache.append(s, wanted.detach(), v);
    const Tensor output = attention_cached(q, cache, {s}).output;
    EXPECT_EQ(output.requires_grad(), recorded);
    if (recorded) {
      EXPECT_EQ(error_of<ValueError>([&] { output.sum().backward(); }), text);
    }
    const NoGrad no_grad;
    EXPECT_FALSE(attention_cached(q, cache, {s}).output.requires_grad());
  }
}

TEST(CacheErrors, Options) {
  const auto with = [](auto change) {
    KvCacheOptions options = small;
    change(options);
    return options;
  };
  EXPECT_EQ(refused<ValueError>({}), "KvCache: key_heads is 0; it must be at least 1");
  EXPECT_EQ(refused<ValueError>(with([](auto& o) { o.value_heads = -1; })),
            "KvCache: value_heads is -1; it must be at least 1");
  EXPECT_EQ(refused<ValueError>(with([](auto& o) { o.head_dim = 0; })),
            "KvCache: head_dim is 0; it must be at least 1");
  EXPECT_EQ(refused<ValueError>(with([](auto& o) { o.value_dim = -2; })),
            "KvCache: value_dim is -2; it must be at least 1");
  EXPECT_EQ(refused<ValueError>(with([](auto& o) { o.pages = 0; })),
            "KvCache: pages is 0; it must be from 1 to 1073741824");
  for (const std::int64_t rows : {-1, 8, 24, 512})
    EXPECT_EQ(refused<ValueError>(with([&](auto& o) { o.page_rows = rows; })),
              "KvCache: page_rows is " + std::to_string(rows) +
                  "; it must be 16, 32, 64, 128 or 256, or 0 for one block a sequence");
  EXPECT_EQ(refused<DtypeError>(with([](auto& o) { o.dtype = Dtype::i64; })),
            "KvCache: dtype is i64; it must be f32, f64, bf16 or f16");
  EXPECT_EQ(refused<ValueError>(with([](auto& o) { o.scale_group = 4; })),
            "KvCache: scale_group is 4; it must be above 0 with int8 storage, or 0");
  constexpr std::int64_t one = 1;
  constexpr auto f32 = KvStorage::same, i8 = KvStorage::int8;
  for (const KvCacheOptions& huge :
       {with([](auto& o) { o.head_dim = one << 60; }),
        KvCacheOptions{.key_heads = one << 40, .head_dim = one << 50, .page_rows = 16, .pages = 1, .storage = f32},
        KvCacheOptions{.key_heads = one << 40, .head_dim = one << 50, .page_rows = 16, .pages = 1, .storage = i8},
        KvCacheOptions{
            .key_heads = 1, .head_dim = one << 58, .page_rows = 16, .pages = 1, .storage = i8, .scale_group = 4},
        KvCacheOptions{.key_heads = one << 62, .head_dim = one << 62, .page_rows = 16, .pages = 1, .storage = i8}})
    EXPECT_EQ(refused<ValueError>(huge), "KvCache: so many pages of such rows are more bytes than can be counted");
}

/// Rows stand at the end of their sequence: what says that row 0 stands at key 0 would be passed over.
TEST(CacheErrors, AnAlignmentThatACacheDoesNotHave) {
  KvCache cache({.key_heads = 2, .head_dim = 4, .pages = 4});
  const KvSequence s = cache.create();
  cache.append(s, k, k);
  const Tensor q = ones({1, 2, 3, 4}), slopes = ones({2});
  const auto refused = [&](const AttentionOptions& options) {
    return error_of<ValueError>([&] { attention_cached(q, cache, {s}, options); });
  };
  const std::string text =
      " is top_left; rows over a cache stand at the end of their sequence: leave the alignment out, or give "
      "query_start";
  EXPECT_EQ(refused({.mask = Mask::causal(Align::top_left)}), "attention_cached: causal" + text);
  EXPECT_EQ(refused({.mask = Mask::prefix(2) | ~Mask::window(3, 0, Align::top_left)}),
            "attention_cached: window" + text);
  EXPECT_EQ(refused({.bias = Bias::alibi(slopes, Align::top_left)}), "attention_cached: alibi" + text);
  EXPECT_EQ(refused({.bias = Bias::relative(ones({8, 2}), true, 16, Align::top_left)}),
            "attention_cached: relative" + text);
  EXPECT_EQ(refused({.score_mod = ScoreExpression::parse("s + i(top_left)")}),
            "attention_cached: score_mod's i" + text);
  EXPECT_EQ(refused({.score_callback = {[](const ScoreTile&) {}, Align::top_left}}),
            "attention_cached: score_callback" + text);
  const Tensor expected = attention_cached(q, cache, {s}, {.mask = Mask::causal()}).output;
  EXPECT_TRUE(same_bits(attention_cached(q, cache, {s}, {.mask = Mask::causal(Align::bottom_right)}).output, expected));
  const AttentionOptions said{.mask = Mask::causal(Align::top_left), .query_start = tensor<std::int64_t>({17})};
  EXPECT_TRUE(same_bits(attention_cached(q, cache, {s}, said).output, expected));
  AttentionOptions additive{.score = Score::additive(ones({3, 4}), ones({3, 4}), ones({3})),
                            .mask = Mask::causal(Align::top_left)};
  EXPECT_EQ(refused(additive), "attention_cached: causal" + text);
}

TEST(CacheErrors, Sequences) {
  KvCache cache(small), other(small);
  const KvSequence s = cache.create(), gone = cache.create(), foreign = other.create();
  cache.append(s, k, v);
  cache.release(gone);
  using Call = std::pair<const char*, std::function<void(KvSequence)>>;
  const Call calls[] = {{"append", [&](KvSequence x) { cache.append(x, k, v); }},
                        {"fork", [&](KvSequence x) { cache.fork(x); }},
                        {"release", [&](KvSequence x) { cache.release(x); }},
                        {"truncate", [&](KvSequence x) { cache.truncate(x, 0); }},
                        {"evict", [&](KvSequence x) { cache.evict(x, 0); }},
                        {"length", [&](KvSequence x) { cache.length(x); }},
                        {"first", [&](KvSequence x) { cache.first(x); }}};
  const auto refuses_gone = [&] {
    for (const auto& [name, call] : calls)
      EXPECT_EQ(error_of<ValueError>([&] { call(gone); }), std::string(name) + ": the sequence was released");
  };
  refuses_gone();
  const KvSequence again = cache.create();
  EXPECT_EQ(again.index, gone.index) << "the place is used again";
  refuses_gone();
  for (const auto& [name, call] : calls) {
    EXPECT_EQ(error_of<ValueError>([&] { call(foreign); }),
              std::string(name) + ": the sequence belongs to another cache");
    EXPECT_EQ(error_of<ValueError>([&] { call({}); }),
              std::string(name) + ": the sequence was not made by create or fork");
  }
  EXPECT_EQ(error_of<ValueError>([&] { cache.gather({s, gone}); }), "gather: sequences[1] was released");
  EXPECT_EQ(error_of<DtypeError>([&] { cache.gather({s}, Dtype::i32); }),
            "gather: dtype is i32; it must be f32, f64, bf16 or f16");
  EXPECT_EQ(error_of<ValueError>([&] { cache.truncate(s, 21); }),
            "truncate: length is 21; it must be from 0 to 20, the length of the sequence");
  EXPECT_EQ(error_of<ValueError>([&] { cache.truncate(s, -1); }),
            "truncate: length is -1; it must be from 0 to 20, the length of the sequence");
  EXPECT_EQ(error_of<ValueError>([&] { cache.evict(s, 21); }),
            "evict: position is 21; it must be from 0 to 20, the length of the sequence");
  EXPECT_EQ(error_of<ValueError>([&] { cache.evict(s, -1); }),
            "evict: position is -1; it must be from 0 to 20, the length of the sequence");
  EXPECT_EQ(cache.length(s), 20);
  EXPECT_EQ(cache.free_pages(), 2);
}

TEST(CacheErrors, AMovedCacheHoldsNothing) {
  KvCache from(small);
  const KvSequence s = from.create();
  from.append(s, k, v);
  KvCache to = std::move(from);
  EXPECT_EQ(to.length(s), 20);
  const std::string text = "KvCache: its contents were moved to another cache; it holds nothing";
  const std::function<void()> calls[] = {
      [&] { from.create(); },       [&] { from.fork(s); },
      [&] { from.release(s); },     [&] { from.append(s, k, v); },
      [&] { from.truncate(s, 0); }, [&] { from.append(std::vector{s}, k.unsqueeze(0), v.unsqueeze(0)); },
      [&] { from.evict(s, 0); },    [&] { attention_cached(ones({1, 2, 3, 4}), from, {s}); },
      [&] { from.gather({s}); },    [&] { from.gather({s}, Dtype::f64); },
      [&] { from.length(s); },      [&] { from.first(s); },
      [&] { from.options(); }};
  for (const auto& call : calls) EXPECT_EQ(error_of<ValueError>(call), text);
  EXPECT_FALSE(from.alive(s));
  EXPECT_EQ(from.free_pages(), 0);
  from = std::move(to);
  EXPECT_EQ(from.length(s), 20);
}

TEST(CacheErrors, Append) {
  KvCache cache(small);
  const KvSequence s = cache.create(), t = cache.create();
  const auto text = [&]<typename E>(E*, const Tensor& a, const Tensor& b) {
    return error_of<E>([&] { cache.append(s, a, b); });
  };
  constexpr ShapeError* shape = nullptr;
  constexpr DtypeError* dtype = nullptr;
  EXPECT_EQ(text(static_cast<ValueError*>(nullptr), {}, v), "append: k is undefined");
  EXPECT_EQ(text(dtype, k.to(Dtype::f64), v), "append: k is f64; it must be f32 as the cache");
  EXPECT_EQ(text(dtype, k, v.to(Dtype::bf16)), "append: v is bf16; it must be f32 as the cache");
  EXPECT_EQ(text(shape, ones({2, 20, 3}), v), "append: k has shape [2, 20, 3]; it must be [2, T, 4]");
  EXPECT_EQ(text(shape, ones({1, 2, 20, 4}), v), "append: k has shape [1, 2, 20, 4]; it must be [2, T, 4]");
  EXPECT_EQ(text(shape, k, ones({2, 19, 3})), "append: v has shape [2, 19, 3]; it must be [2, 20, 3]");
  EXPECT_EQ(error_of<ShapeError>([&] { cache.append({s, t}, ones({3, 2, 1, 4}), ones({3, 2, 1, 3})); }),
            "append: k has shape [3, 2, 1, 4]; it must be [2, 2, T, 4]");
  EXPECT_EQ(error_of<ValueError>([&] { cache.append({s, t, s}, ones({3, 2, 1, 4}), ones({3, 2, 1, 3})); }),
            "append: sequences[0] and sequences[2] are the same");
  cache.append(s, k, v);
  EXPECT_EQ(error_of<KvCacheFull>([&] { cache.append({s, t}, ones({2, 2, 20, 4}), ones({2, 2, 20, 3})); }),
            "append: 3 more pages are needed and 2 of 4 are free");
  const Tensor recorded = ones({2, 2, 20, 4}).requires_grad_();
  error_of<KvCacheFull>([&] { cache.append({s, t}, recorded, ones({2, 2, 20, 3})); });
  error_of<KvCacheFull>([&] { cache.append(t, ones({2, 60, 4}).requires_grad_(), ones({2, 60, 3})); });
  EXPECT_FALSE(attention_cached(ones({1, 2, 1, 4}), cache, {s}).output.requires_grad())
      << "what was not appended has no history to miss";
  EXPECT_EQ(cache.length(s), 20);
  EXPECT_EQ(cache.length(t), 0);
  EXPECT_EQ(cache.free_pages(), 2);
  cache.append(s, k.slice(1, 0, 0), v.slice(1, 0, 0));
  EXPECT_EQ(cache.length(s), 20) << "no rows are no error";
}

TEST(CacheErrors, MoreKeysThanCanBeCounted) {
  for (const std::int64_t page_rows : {0, 16}) {
    KvCache cache({.key_heads = 1, .head_dim = 1, .page_rows = page_rows, .pages = 2});
    const KvSequence s = cache.create();
    const Tensor rows = zeros({1, 1, 1}).expand({1, INT64_MAX, 1});
    EXPECT_EQ(error_of<KvCacheFull>([&] { cache.append(s, rows, rows); }),
              "append: 9223372036854775807 keys are given, more than any cache has pages for");
    EXPECT_EQ(cache.length(s), 0);
  }
}

TEST(CacheErrors, Call) {
  KvCache cache(small);
  const KvSequence s = cache.create();
  cache.append(s, k, v);
  const Tensor q = ones({1, 4, 1, 4}), out = full({1, 4, 1, 3}, 7.0);
  const auto text = [&]<typename E>(E*, const Tensor& a, const std::vector<KvSequence>& batch,
                                    AttentionOptions options = {}) {
    options.out = out;
    const std::string result = error_of<E>([&] { attention_cached(a, cache, batch, options); });
    EXPECT_TRUE(same_bits(out, full({1, 4, 1, 3}, 7.0))) << "nothing is written";
    return result;
  };
  constexpr ShapeError* shape = nullptr;
  constexpr ValueError* value = nullptr;
  EXPECT_EQ(text(value, {}, {s}), "attention_cached: q is undefined");
  EXPECT_EQ(text(static_cast<DtypeError*>(nullptr), q.to(Dtype::f64), {s}),
            "attention_cached: q is f64; it must be f32 as the cache");
  EXPECT_EQ(text(shape, ones({4, 1, 4}), {s}),
            "attention_cached: q has shape [4, 1, 4]; it must be [1, Hq, Tq, D], one batch item a sequence");
  EXPECT_EQ(text(shape, q, {s, s}),
            "attention_cached: q has shape [1, 4, 1, 4]; it must be [2, Hq, Tq, D], one batch item a sequence");
  EXPECT_EQ(text(shape, ones({1, 4, 1, 5}), {s}),
            "attention_cached: k has shape [1, 2, 20, 4]; its last dim must be 5 to match q [1, 4, 1, 5]");
  EXPECT_EQ(text(shape, ones({1, 3, 1, 4}), {s}),
            "attention_cached: k has shape [1, 2, 20, 4]; its 2 heads must divide the 3 heads of q [1, 3, 1, 4]");
  EXPECT_EQ(text(value, q, {s}, {.key_lengths = ones({1}, Dtype::i64)}),
            "attention_cached: key_lengths is given; the cache knows it");
  EXPECT_EQ(text(value, q, {s}, {.key_start = ones({1}, Dtype::i64)}),
            "attention_cached: key_start is given; the cache knows it");
  EXPECT_EQ(text(value, q, {s}, {.query_lengths = tensor<std::int64_t>({2})}),
            "attention_cached: query_lengths[0] is 2; it must be from 0 to 1, the number of rows");
  const KvSequence gone = cache.create();
  cache.release(gone);
  EXPECT_EQ(text(value, q, {gone}), "attention_cached: sequences[0] was released");
}

TEST(CacheErrors, NoKeysAndNoSequencesAreNone) {
  KvCache cache(small);
  const KvSequence s = cache.create();
  EXPECT_TRUE(same_bits(attention_cached(ones({1, 4, 2, 4}), cache, {s}, {.mask = Mask::causal()}).output,
                        zeros({1, 4, 2, 3})));
  EXPECT_EQ(attention_cached(ones({0, 4, 2, 4}), cache, {}).output.sizes(), Dims({0, 4, 2, 3}));
}

}  // namespace
}  // namespace attn::testing
