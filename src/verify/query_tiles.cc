// src/verify/query_tiles.cc: runs query tiles one by one, with several heads in one tile, or split over the keys in
// groups of one, two ... splits that are merged.
#include "verify/query_tiles.h"

#include "attention/call/call.h"
#include "attention/relative/relative_terms.h"
#include "kernels/attention/reference.h"
#include "runtime/memory.h"

#include <algorithm>
#include <memory>
#include <numeric>

namespace attn::cases {
namespace {

using kernels::AttentionProblem;
using kernels::ForwardKernel;
using kernels::Task;

struct Memory {
  explicit Memory(std::size_t bytes) : data(runtime::allocate(bytes), runtime::deallocate) {}
  char* get() const { return static_cast<char*>(data.get()); }
  std::unique_ptr<void, void (*)(void*)> data;
};

bool attend_splits(const ForwardKernel& kernel, const AttentionProblem& p, const Task& tile, void* scratch) {
  const std::int64_t keys = p.keys_end(tile) - p.keys_begin(tile);
  const std::int64_t splits = std::max<std::int64_t>(0, (keys + kernels::kv_split - 1) / kernels::kv_split);
  const std::size_t bytes = kernel.partial_bytes(p, tile);
  const Memory partials(bytes * static_cast<std::size_t>(splits));
  for (std::int64_t last = splits, together = 1, first; last > 0; last = first, ++together) {
    first = std::max<std::int64_t>(0, last - together);
    kernel.attend_splits(p, tile, first, last, partials.get() + static_cast<std::size_t>(first) * bytes, scratch);
  }
  return kernel.attend_merge(p, tile, partials.get(), splits, scratch);
}

}  // namespace

void attend_by_query_tiles(const ForwardKernel& kernel, const Call& call, Partition partition) {
  const kernels::AttentionReference& reference = kernels::attention_reference();
  const RelativeTerms* const products = call.bias.products.get();
  const std::size_t bytes =
      runtime::aligned(std::max(kernel.scratch_bytes(call.problem), reference.scratch_bytes(call.problem)));
  const RelativeTerms::TileMemory sizes =
      products == nullptr ? RelativeTerms::TileMemory{} : products->tile_memory(call.problem, kernel.rows);
  const Memory memory(bytes + sizes.bytes);
  const std::int64_t q_heads = call.problem.q_heads,
                     group = std::gcd(q_heads / call.problem.k_heads, q_heads / call.problem.v_heads);
  for_each_sequence(call, call.problem, [&](const AttentionProblem& p, const Task& all) {
    const std::int64_t first = all.row, last = first + all.rows,
                       heads = partition == Partition::heads_together && group * all.rows <= kernel.rows ? group : 1;
    const std::int64_t end = std::clamp<std::int64_t>(p.rows_end(all), first, last);
    for (std::int64_t h = 0; h < q_heads; h += heads) {
      const auto by_reference = [&](const AttentionProblem& of, std::int64_t from, std::int64_t rows) {
        for (std::int64_t n = 0; n < heads; ++n) reference.rows(of, all.with_rows(h + n, from, rows), memory.get());
      };
      const auto compute = [&](const AttentionProblem& of, const Task& tile) {
        const bool done = partition == Partition::splits ? attend_splits(kernel, of, tile, memory.get())
                                                         : kernel.attend(of, tile, memory.get());
        if (done) return;
        if (kernel.nan_safe_rows != nullptr) kernel.nan_safe_rows(of, tile, memory.get());
        else by_reference(of, tile.row, tile.rows);
      };
      for (std::int64_t row = first; row < end; row += kernel.rows) {
        Task tile = all.with_rows(h, row, std::min<std::int64_t>(kernel.rows, end - row));
        tile.heads = heads;
        if (products == nullptr) compute(p, tile);
        else products->rows(compute, kernel.rows, p, tile, sizes, memory.get() + bytes);
      }
      by_reference(p, end, last - end);
    }
  });
}

}  // namespace attn::cases
