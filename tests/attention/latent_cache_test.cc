// tests/attention/latent_cache_test.cc: bits of latent attention over batches, padding, threads, targets, and over a
// cache whose values are parts of its keys.
#include <attn/autograd.h>
#include <attn/runtime.h>

#include "attention/latent_attention_inputs.h"
#include "runtime/cpu.h"
#include "support/errors.h"
#include "verify/compare.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

const AttentionOptions causal = {.mask = Mask::causal(Align::bottom_right)};
constexpr Dtype dtypes[] = {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16};

struct FixedLine {
  const char* line;
  const char* digest;
};
const FixedLine fixed_lines[] = {
#include "cases/latent.inc"
};

/// Values that are parts of their keys, on every kernel of every instruction set.
TEST(LatentBits, EveryTargetHasTheBitsOfTheSpecification) {
  std::vector<cases::Way> ways;
  for (const std::string& target : runtime::targets())
    for (cases::Way& way : cases::target_ways(target)) ways.push_back(std::move(way));
  ways.push_back(cases::library_way(1));
  ways.push_back(cases::library_way(3));
  for (const auto& [line, digest] : fixed_lines) {
    const VerifyReport report = cases::compare({line}, ways);
    EXPECT_TRUE(report.passed()) << report.difference << "\nattn verify '" << report.line << "'";
    EXPECT_EQ(report.digest, digest) << line;
  }
}

/// A row is the same alone and in a padded batch, by one row and by many, on any number of threads.
TEST(LatentBits, DoNotDependOnBatchPaddingOrThreads) {
  const int before = num_threads();
  for (const Dtype dtype : dtypes)
    for (const LatentForm form : both_forms) {
      const LatentShape s{.batch = 3, .heads = 5, .q_rows = 12, .k_rows = 140, .dtype = dtype};
      const LatentOperands o = latent_operands(s);
      const std::vector<std::int64_t> starts{0, 31, 128};
      AttentionOptions padded = causal;
      padded.key_start = integers(starts);
      const Tensor whole = latent_attention(o, padded, form).output;
      for (const int threads : {1, 3}) {
        set_num_threads(threads);
        EXPECT_TRUE(same_bits(latent_attention(o, padded, form).output, whole)) << threads;
      }
      set_num_threads(before);
      for (std::int64_t b = 0; b < s.batch; ++b) {
        const std::int64_t keys = s.k_rows - starts[static_cast<std::size_t>(b)];
        const LatentOperands alone = of_keys(of_items(o, b, b + 1), s.k_rows - keys, s.k_rows);
        EXPECT_TRUE(same_bits(latent_attention(alone, causal, form).output, whole.slice(0, b, b + 1))) << b;
        const Tensor last = latent_attention(of_queries(alone, 11, 12), causal, form).output;
        EXPECT_TRUE(same_bits(last, whole.slice(0, b, b + 1).slice(2, 11, 12))) << b;
      }
    }
}

class LatentCache : public ::testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Pages, LatentCache, ::testing::Values(0, 16, 64));

/// Prefill in pieces, then row by row; forks, truncation and eviction: the bits of a call without a cache.
TEST_P(LatentCache, GoesOnToTheBitAfterAnyRow) {
  for (const Dtype dtype : dtypes)
    for (const LatentForm form : both_forms) {
      const LatentShape s{.heads = 3, .q_rows = 150, .k_rows = 150, .dtype = dtype};
      const LatentOperands o = latent_operands(s);
      const Tensor whole = latent_attention(o, causal, form).output;
      KvCache cache(latent_cache_options(s.latent, s.rope, GetParam() == 0 ? 4 : 40, dtype, GetParam()));
      KvSequence sequence = cache.create();
      std::int64_t begin = 0;
      for (const std::int64_t rows : {37, 1, 1, 64, 2, 1, 44}) {
        const LatentOperands part = of_keys(of_queries(o, begin, begin + rows), begin, begin + rows);
        append_latent(cache, {sequence}, part.latent, part.k_rope);
        const auto attend = [&](KvSequence over) {
          return latent_attention_cached(without_rows(part), cache, {over}, causal, form).output;
        };
        const Tensor expected = whole.slice(2, begin, begin + rows);
        EXPECT_TRUE(same_bits(attend(sequence), expected)) << begin;
        // a fork goes on by itself; the old sequence loses other rows and takes them again
        const KvSequence fork = cache.fork(sequence);
        cache.truncate(sequence, begin);
        append_latent(cache, {sequence}, part.latent * 2, part.k_rope);
        EXPECT_TRUE(same_bits(attend(fork), expected)) << begin;
        cache.release(sequence);
        sequence = fork;
        begin += rows;
      }
      EXPECT_EQ(begin, s.k_rows);
    }
}

TEST_P(LatentCache, ManySequencesHaveTheBitsOfEach) {
  const std::int64_t lengths[] = {1100, 65, 3};
  for (const Dtype dtype : dtypes)
    for (const LatentForm form : both_forms) {
      const LatentShape s{.batch = 3, .heads = 9, .q_rows = 2, .k_rows = 1100, .dtype = dtype};
      const LatentOperands o = latent_operands(s);
      KvCache cache(latent_cache_options(s.latent, s.rope, GetParam() == 0 ? 3 : 90, dtype, GetParam()));
      std::vector<KvSequence> batch;
      for (std::int64_t b = 0; b < s.batch; ++b) {
        const LatentOperands rows = of_keys(of_items(o, b, b + 1), 0, lengths[b]);
        append_latent(cache, {batch.emplace_back(cache.create())}, rows.latent, rows.k_rope);
      }
      const Tensor all = latent_attention_cached(without_rows(o), cache, batch, causal, form).output;
      for (std::int64_t b = 0; b < s.batch; ++b) {
        const LatentOperands own = of_keys(of_items(o, b, b + 1), 0, lengths[b]);
        EXPECT_TRUE(same_bits(latent_attention(own, causal, form).output, all.slice(0, b, b + 1))) << b;
      }
      const KvCache::Rows rows = cache.gather({batch[1]});
      EXPECT_TRUE(same_bits(rows.v.select(1, 0), o.latent.slice(0, 1, 2).slice(1, 0, 65)));
      EXPECT_TRUE(same_bits(rows.k.select(1, 0).slice(2, s.latent), o.k_rope.slice(0, 1, 2).slice(1, 0, 65)));
      EXPECT_EQ(rows.v.data(), rows.k.data());
      // evicted rows are masked in both forms
      cache.evict(batch[0], 1000);
      AttentionOptions late = causal;
      late.mask = causal.mask & ~Mask::prefix(1000);
      const LatentOperands own = of_items(o, 0, 1);
      EXPECT_TRUE(same_bits(latent_attention_cached(without_rows(own), cache, {batch[0]}, causal, form).output,
                            latent_attention(own, late, form).output));
    }
}

TEST(LatentCacheErrors, AreOneLineEach) {
  const LatentShape s;
  const LatentOperands o = latent_operands(s);
  KvCache cache(latent_cache_options(s.latent, s.rope, 8));
  const std::vector<KvSequence> batch{cache.create()};
  append_latent(cache, batch, o.latent, o.k_rope);
  const auto refused = [&](const LatentOperands& given, const KvCache& over) {
    return error_of<Error>([&] { latent_attention_cached(given, over, batch); });
  };
  EXPECT_EQ(refused(o, cache), "latent_attention_cached: latent is given; the cache holds it");
  LatentOperands other = without_rows(o);
  other.q_rope = other.q_rope.slice(3, 0, 6);
  EXPECT_EQ(refused(other, cache),
            "latent_attention_cached: the cache holds rows of 32 + 8 elements; they must be 32 + 6 as w_uk and q_rope");
  const KvCache plain({.key_heads = 1, .head_dim = 40, .value_dim = 32, .pages = 8});
  EXPECT_EQ(refused(without_rows(o), plain),
            "latent_attention_cached: the cache was made without values_in_keys; it must hold one row of 32 + 8 "
            "elements a token");
  EXPECT_EQ(error_of<ValueError>([&] { cache.append(batch[0], zeros({1, 2, 40}), zeros({1, 2, 32})); }),
            "append: v is given; with values_in_keys a value is a part of its key: give k alone");
  EXPECT_EQ(error_of<ShapeError>([&] { append_latent(cache, batch, o.latent, o.k_rope.slice(2, 1)); }),
            "append_latent: k_rope has shape [1, 70, 7]; it must be [B, T, Dr], here [1, 70, 8]");
  EXPECT_EQ(error_of<ShapeError>([&] { cache.append(batch[0], zeros({1, 2, 41})); }),
            "append: k has shape [1, 2, 41]; it must be [1, T, 40]");
  KvCache heads({.key_heads = 1, .head_dim = 40, .pages = 8});
  const KvSequence one = heads.create();
  EXPECT_EQ(error_of<ValueError>([&] { heads.append(one, zeros({1, 2, 40})); }), "append: v is undefined");
  KvCacheOptions options = latent_cache_options(s.latent, s.rope, 8);
  options.storage = KvStorage::int8;
  EXPECT_EQ(error_of<ValueError>([&] { KvCache made(options); }),
            "KvCache: storage is int8 with values_in_keys; such rows are stored in their dtype");
  options = latent_cache_options(s.latent, s.rope, 8);
  options.value_dim = 41;
  EXPECT_EQ(error_of<ValueError>([&] { KvCache made(options); }),
            "KvCache: value_dim is 41 with values_in_keys; it must be at most 40, the head_dim");
  options.value_heads = 2;
  EXPECT_EQ(error_of<ValueError>([&] { KvCache made(options); }),
            "KvCache: value_heads is 2 with values_in_keys; it must be 1 as key_heads");
}

TEST(LatentCacheErrors, AGradientIsRefused) {
  const LatentShape s;
  KvCache cache(latent_cache_options(s.latent, s.rope, 8));
  const std::vector<KvSequence> batch{cache.create()};
  LatentOperands o = latent_operands(s);
  append_latent(cache, batch, o.latent, o.k_rope);
  o = without_rows(o);
  for (const LatentForm form : both_forms) {
    EXPECT_FALSE(latent_attention_cached(o, cache, batch, causal, form).output.requires_grad());
    for (Tensor LatentOperands::* x :
         {&LatentOperands::q_nope, &LatentOperands::q_rope, &LatentOperands::w_uk, &LatentOperands::w_uv}) {
      LatentOperands wanted = o;
      wanted.*x = (o.*x).clone().requires_grad_();
      const Tensor output = latent_attention_cached(wanted, cache, batch, causal, form).output;
      EXPECT_EQ(
          error_of<ValueError>([&] { output.sum().backward(); }),
          "latent_attention_cached: it has no gradient, since a cache keeps keys and values without their history; "
          "call latent_attention with all of them");
    }
  }
}

}  // namespace
}  // namespace attn::testing
