// tests/attention/cache_memory_test.cc: an allocation fails, at each place in turn: the call throws, the cache is as it
// was, histories go.
#include <attn/cache.h>
#include <attn/ops.h>

#include "attention/truth.h"
#include "support/failing_memory.h"

#include <gtest/gtest.h>

#include <functional>

namespace attn::testing {
namespace {

/// All that can be seen of some sequences.
struct Seen {
  std::vector<std::int64_t> numbers;
  Tensor k, v;
  Seen(const KvCache& cache, const std::vector<KvSequence>& sequences) {
    numbers.push_back(cache.free_pages());
    for (const KvSequence s : sequences) {
      numbers.push_back(cache.length(s));
      numbers.push_back(cache.first(s));
    }
    const KvCache::Rows rows = cache.gather(sequences);
    k = rows.k;
    v = rows.v;
  }
  bool same(const Seen& other) const {
    return numbers == other.numbers && same_bits(k, other.k) && same_bits(v, other.v);
  }
};

/// A call whose allocations fail one by one leaves the cache as it was; how many there are.
long fail_at_each(const KvCache& cache, const std::vector<KvSequence>& sequences, const std::function<void()>& call) {
  const Seen before(cache, sequences);
  return testing::fail_at_each(call, 0, [&](long failed) {
    EXPECT_TRUE(before.same(Seen(cache, sequences))) << "allocation " << failed;
    return !::testing::Test::HasFailure();
  });
}

/// A destructor that needed memory would end the process where there is none.
TEST(HistoryMemory, IsLetGoWithoutAnAllocation) {
  Tensor x = ones({2, 2});
  x.requires_grad_();
  Tensor y = x, z = x;
  for (int n = 0; n < 50; ++n) {
    z = matmul(y, z + x);
    y = attention(y.clone(), z, x).output + y;
  }
  allocations_left = 0;
  y = z = {};
  const long left = allocations_left;
  allocations_left = -1;
  EXPECT_EQ(left, 0);
}

TEST(CacheMemory, AnAllocationThatFailsChangesNothing) {
  for (const std::int64_t page_rows : {16, 0})
    for (const KvStorage storage : {KvStorage::same, KvStorage::int8}) {
      KvCache cache({.key_heads = 2, .head_dim = 4, .page_rows = page_rows, .pages = 64, .storage = storage});
      std::vector<KvSequence> s{cache.create()};
      const Tensor k = normal({2, 100, 4}, 1), v = normal({2, 100, 4}, 2);
      cache.append(s[0], k.slice(1, 0, 20), v.slice(1, 0, 20));
      KvSequence made;
      EXPECT_GT(fail_at_each(cache, s, [&] { made = cache.create(); }), 0);
      s.push_back(made);
      EXPECT_GT(fail_at_each(cache, s, [&] { made = cache.fork(s[0]); }), 0);
      s.push_back(made);
      EXPECT_GT(fail_at_each(cache, s, [&] { cache.append(s[0], k, v); }), 2)
          << "the tail is shared, the table and a block grow";
      const Tensor two_k = normal({2, 2, 4, 150}, 3).transpose(2, 3), two_v = normal({2, 2, 150, 4}, 4);
      EXPECT_GT(fail_at_each(cache, s, [&] { cache.append({s[1], s[2]}, two_k, two_v); }), 4);
      EXPECT_EQ(fail_at_each(cache, s, [&] { cache.evict(s[0], 40); }), 0);
      EXPECT_EQ(fail_at_each(cache, s, [&] { cache.truncate(s[1], 50); }), 0);
      EXPECT_GT(fail_at_each(cache, s, [&] { cache.gather(s); }), 2);
      const Tensor q = normal({3, 4, 1, 4}, 5);
      Tensor output;
      EXPECT_GT(
          fail_at_each(cache, s, [&] { output = attention_cached(q, cache, s, {.mask = Mask::causal()}).output; }), 4);
      EXPECT_TRUE(same_bits(output, attention_cached(q, cache, s, {.mask = Mask::causal()}).output));
      EXPECT_EQ(fail_at_each(cache, {s[0], s[1]},
                             [&] {
                               if (cache.alive(s[2])) cache.release(s[2]);
                             }),
                0);
    }
}

}  // namespace
}  // namespace attn::testing
