// src/verify/strips.cc: strips of rows one by one, with several heads in one, or their spans of keys, by one, two ...
// and merged.
#include "verify/strips.h"

#include "attention/parts.h"
#include "kernels/attention/reference.h"
#include "runtime/memory.h"

#include <algorithm>
#include <memory>
#include <numeric>

namespace attn::cases {
namespace {

using kernels::AttentionProblem;
using kernels::ForwardKernel;
using kernels::QueryTile;

struct Memory {
  explicit Memory(std::size_t bytes) : data(runtime::allocate(bytes), runtime::deallocate) {}
  char* get() const { return static_cast<char*>(data.get()); }
  std::unique_ptr<void, void (*)(void*)> data;
};

bool attend_splits(const ForwardKernel& strip, const AttentionProblem& p, const QueryTile& map, void* scratch) {
  const std::int64_t keys = p.keys_end(map.batch) - p.keys_begin(map.batch);
  const std::int64_t splits = std::max<std::int64_t>(0, (keys + kernels::kv_split - 1) / kernels::kv_split);
  const std::size_t bytes = strip.partial_bytes(p, map);
  const Memory partials(bytes * static_cast<std::size_t>(splits));
  for (std::int64_t last = splits, together = 1, first; last > 0; last = first, ++together) {
    first = std::max<std::int64_t>(0, last - together);
    strip.attend_splits(p, map, first, last, partials.get() + static_cast<std::size_t>(first) * bytes, scratch);
  }
  return strip.attend_merge(p, map, partials.get(), splits, scratch);
}

}  // namespace

void attend_by_strips(const ForwardKernel& strip, const Call& call, Cut cut) {
  const kernels::AttentionReference& reference = kernels::attention_reference();
  const Memory memory(std::max(strip.scratch_bytes(call.problem), reference.scratch_bytes(call.problem)));
  const std::int64_t q_heads = call.problem.q_heads,
                     group = std::gcd(q_heads / call.problem.k_heads, q_heads / call.problem.v_heads);
  for_each_part(
      call, call.problem, [&](const AttentionProblem& p, std::int64_t b, std::int64_t first, std::int64_t last) {
        const std::int64_t heads = cut == Cut::heads_together && group * (last - first) <= strip.rows ? group : 1;
        const std::int64_t end = std::clamp<std::int64_t>(p.rows_end(b), first, last);
        for (std::int64_t h = 0; h < q_heads; h += heads) {
          const auto by_reference = [&](std::int64_t from, std::int64_t to) {
            for (std::int64_t n = 0; n < heads; ++n) reference.rows(p, b, h + n, from, to, memory.get());
          };
          for (std::int64_t row = first; row < end; row += strip.rows) {
            const QueryTile map{b, h, heads, row, std::min<std::int64_t>(strip.rows, end - row)};
            const bool done =
                cut == Cut::splits ? attend_splits(strip, p, map, memory.get()) : strip.attend(p, map, memory.get());
            if (done) continue;
            if (strip.nan_safe_rows != nullptr) strip.nan_safe_rows(p, map, memory.get());
            else by_reference(map.row, map.row + map.rows);
          }
          by_reference(end, last);
        }
      });
}

}  // namespace attn::cases
