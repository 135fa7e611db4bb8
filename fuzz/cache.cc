// fuzz/cache.cc: runs random operations on a KV cache and on plain tensors: lengths and bits of attention must agree.
#include "fuzz.h"

using namespace attn;
using namespace attn::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices in(data, size);
  manual_seed(static_cast<std::uint64_t>(in.below(256)));
  const std::int64_t heads = in.between(1, 2), dim = in.between(1, 9), page = in.pick({16, 32, 0});
  const Dtype dtype = in.pick({Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16});
  KvCache cache({.key_heads = heads, .head_dim = dim, .page_rows = page, .pages = in.between(1, 6), .dtype = dtype});
  struct Beside {
    KvSequence sequence;
    Tensor k, v;
  };
  std::vector<Beside> all;
  const auto life = [&] {
    const std::int64_t what = in.below(7), n = in.between(-1, 30), rows = n < 0 ? 0 : n;
    const auto drawn = [&](std::int64_t h, std::int64_t t) { return randn({h, t, dim}).to(dtype); };
    if (what == 0 || all.empty()) return all.push_back({cache.create(), drawn(heads, 0), drawn(heads, 0)});
    const std::int64_t at = in.below(static_cast<int>(all.size()));
    Beside& one = *(all.begin() + at);
    if (what == 1) return all.push_back({cache.fork(one.sequence), one.k, one.v});
    if (what == 2) return cache.release(one.sequence), void(all.erase(all.begin() + at));
    if (what == 3)
      return cache.truncate(one.sequence, n), one.k = one.k.slice(1, 0, n), void(one.v = one.v.slice(1, 0, n));
    if (what == 4) return cache.evict(one.sequence, n);
    const Tensor k = drawn(heads, rows), v = drawn(heads, rows), q = drawn(heads * 2, rows % 5 + 1).unsqueeze(0);
    if (what == 5)
      return cache.append(one.sequence, k, v), one.k = cat({one.k, k}, 1), void(one.v = cat({one.v, v}, 1));
    check(cache.length(one.sequence) == one.k.size(1), "a cache has another length");
    const Mask seen = Mask::causal(Align::bottom_right) & ~Mask::prefix(cache.first(one.sequence));
    const Tensor cached = attention_cached(q, cache, {one.sequence}, {.mask = Mask::causal()}).output;
    check(same_bits(cached, attention(q, one.k.unsqueeze(0), one.v.unsqueeze(0), {.mask = seen}).output), "other bits");
  };
  for (int step = 0; step < 40 && !in.empty(); ++step) answers(life);
  return 0;
}
