// src/attention/cache/cache_append.cc: appends rows to the sequences of a cache, to all or to none: everything that can
// fail comes before the first change.
#include <attn/autograd.h>
#include <attn/ops.h>

#include "runtime/format.h"

#include "attention/cache/cache_state.h"
#include "runtime/floating_point.h"

#include <algorithm>

namespace attn {
namespace {

using Sequence = KvCache::State::Sequence;

/// The work of an append for one sequence.
struct Step {
  Sequence* sequence;
  std::size_t pages;      // number after the append
  std::int64_t tail = 0;  // rows used in the last page, if it is not full; else 0
  bool new_tail = false;  // the last page was evicted or is shared, so the sequence needs its own copy
};

void check_tensor(const KvCache::State& state, const char* name, const Tensor& x, const Dims& sizes) {
  if (!x.defined()) throw ValueError(runtime::format("append: {} is undefined", name));
  if (x.dtype() != state.options.dtype)
    throw DtypeError(runtime::format("append: {} is {}; it must be {} as the cache", name, name_of(x.dtype()),
                                     name_of(state.options.dtype)));
  bool fits = x.dim() == sizes.size();
  std::string wanted;
  for (int d = 0; d < sizes.size(); ++d) {
    fits = fits && (sizes[d] < 0 || x.size(d) == sizes[d]);
    wanted += runtime::format("{}{}", d == 0 ? "" : ", ", sizes[d] < 0 ? "T" : std::to_string(sizes[d]));
  }
  if (!fits)
    throw ShapeError(runtime::format("append: {} has shape {}; it must be [{}]", name, to_string(x.sizes()), wanted));
}

/// Checks that no values are given to a cache whose values are parts of its keys.
void check_no_values(const Tensor& v) {
  if (v.defined())
    throw ValueError("append: v is given; with values_in_keys a value is a part of its key: give k alone");
}

/// Checks k and v. `batch` < 0: one sequence, tensors of rank 3.
void check_tensors(const KvCache::State& state, std::int64_t batch, const Tensor& k, const Tensor& v) {
  const KvCacheOptions& o = state.options;
  Dims k_sizes{batch, o.key_heads, -1, o.head_dim}, v_sizes{batch, o.value_heads, -1, o.value_dim};
  if (batch < 0) k_sizes.erase(0), v_sizes.erase(0);
  check_tensor(state, "k", k, k_sizes);
  if (o.values_in_keys) return check_no_values(v);
  v_sizes[v_sizes.size() - 2] = k.size(-2);
  check_tensor(state, "v", v, v_sizes);
}

/// Returns the steps in the order of the batch. A page that only sequences of the batch share is copied by all of them
/// but the last, which keeps it.
std::vector<Step> plan(const PagePool& pool, const std::vector<Sequence*>& batch, std::int64_t rows,
                       std::int64_t page_rows) {
  std::vector<Step> steps;
  steps.reserve(batch.size());
  for (Sequence* s : batch) {
    Step step{.sequence = s,
              .pages = static_cast<std::size_t>((s->length + rows + page_rows - 1) / page_rows),
              .tail = s->length % page_rows};
    if (step.tail > 0) {
      const std::int32_t page = s->table.back();
      const auto left_by = [&](const Step& earlier) {
        return earlier.new_tail && earlier.sequence->table.back() == page;
      };
      step.new_tail =
          page == KvCache::State::evicted || pool.users(page) - std::count_if(steps.begin(), steps.end(), left_by) > 1;
    }
    steps.push_back(step);
  }
  return steps;
}

void reserve(std::vector<std::int32_t>& table, std::size_t pages) {
  if (table.capacity() < pages) table.reserve(std::max(pages, 2 * table.capacity()));
}

/// Copies all blocks in use into larger blocks (at least twice as large).
PagedRows grown(const PagedRows& rows, const RowLayout& layout, const PagePool& pool, std::int64_t from_rows,
                std::int64_t to_rows) {
  PagedRows result(layout, to_rows);
  for (std::int32_t page = 0; page < pool.pages(); ++page)
    if (pool.users(page) > 0) result.copy(page, rows, page, from_rows);
  return result;
}

/// Gives the sequence its own copy of its last page.
void own_tail(KvCache::State& state, const Step& step) noexcept {
  std::int32_t& entry = step.sequence->table.back();
  const std::int32_t page = state.pool.take();
  if (entry == KvCache::State::evicted) {
    state.k.clear(page, step.tail);
    state.v.clear(page, step.tail);
  } else {
    state.k.copy(page, state.k, entry, step.tail);
    state.v.copy(page, state.v, entry, step.tail);
    state.pool.drop(entry);
  }
  entry = page;
}

void write(KvCache::State& state, const Sequence& s, const Tensor& k, const Tensor& v) noexcept {
  const std::int64_t rows = k.size(1);
  for (std::int64_t row = 0; row < rows;) {
    const std::int64_t position = s.length + row, in_page = position % state.page_rows,
                       count = std::min(rows - row, state.page_rows - in_page);
    const PagePlace place{s.table[static_cast<std::size_t>(position / state.page_rows)], in_page};
    state.k.write(place, k, row, count);
    if (v.defined()) state.v.write(place, v, row, count);
    row += count;
  }
}

Tensor rows_contiguous(const Tensor& x) {
  return x.defined() && x.size(-1) > 1 && x.stride(-1) != 1 ? x.contiguous() : x;
}

}  // namespace

std::int64_t KvCache::State::block_rows(std::int64_t rows) const {
  std::int64_t block = page_rows;
  while (options.page_rows == 0 && block < rows) block *= 2;
  return block;
}

void KvCache::State::grow(std::int64_t block) {
  PagedRows larger_k = grown(k, layout(false), pool, page_rows, block),
            larger_v = options.values_in_keys ? PagedRows() : grown(v, layout(true), pool, page_rows, block);
  k = std::move(larger_k);
  v = std::move(larger_v);
  page_rows = block;
}

void KvCache::State::append(const std::vector<Sequence*>& batch, const Tensor& new_k, const Tensor& new_v) {
  const runtime::DefaultFloatingPoint floating_point;
  const std::int64_t rows = new_k.size(2);
  if (rows == 0 || batch.empty()) return;
  if (rows > std::int64_t{1} << 48)
    throw KvCacheFull(runtime::format("append: {} keys are given, more than any cache has pages for", rows));
  // pass 1: everything that can fail
  const Tensor k_rows = rows_contiguous(new_k), v_rows = rows_contiguous(new_v);
  std::vector<std::pair<Tensor, Tensor>> sources;
  sources.reserve(batch.size());
  std::int64_t longest = 0;
  for (std::size_t b = 0; b < batch.size(); ++b) {
    const auto item = static_cast<std::int64_t>(b);
    sources.emplace_back(k_rows.select(0, item), v_rows.defined() ? v_rows.select(0, item) : Tensor());
    longest = std::max(longest, batch[b]->length + rows);
  }
  const std::int64_t block = block_rows(longest);
  const std::vector<Step> steps = plan(pool, batch, rows, block);
  std::int64_t pages = 0;
  for (const Step& step : steps)
    pages += static_cast<std::int64_t>(step.pages - step.sequence->table.size()) + (step.new_tail ? 1 : 0);
  if (pages > pool.free())
    throw KvCacheFull(
        runtime::format("append: {} more pages are needed and {} of {} are free", pages, pool.free(), pool.pages()));
  for (const Step& step : steps) reserve(step.sequence->table, step.pages);
  if (block > page_rows) grow(block);
  // pass 2: changes the sequences and cannot fail
  for (std::size_t b = 0; b < steps.size(); ++b) {
    Sequence& s = *steps[b].sequence;
    if (steps[b].new_tail) own_tail(*this, steps[b]);
    while (s.table.size() < steps[b].pages) s.table.push_back(pool.take());
    write(*this, s, sources[b].first, sources[b].second);
    s.length += rows;
  }
}

void KvCache::State::note_history(const Tensor& new_k, const Tensor& new_v) {
  lost_history =
      lost_history || (grad_enabled() && (new_k.requires_grad() || (new_v.defined() && new_v.requires_grad())));
}

void KvCache::append(KvSequence sequence, const Tensor& k, const Tensor& v) {
  State& s = mutable_state();
  State::Sequence& found = s.find("append", sequence);
  check_tensors(s, -1, k, v);
  s.append({&found}, k.unsqueeze(0), v.defined() ? v.unsqueeze(0) : v);
  s.note_history(k, v);
}
void KvCache::append(KvSequence sequence, const Tensor& k) { append(sequence, k, Tensor()); }

void KvCache::append(const std::vector<KvSequence>& sequences, const Tensor& k) { append(sequences, k, Tensor()); }
void KvCache::append(const std::vector<KvSequence>& sequences, const Tensor& k, const Tensor& v) {
  State& s = mutable_state();
  std::vector<State::Sequence*> batch;
  for (const State::Sequence* found : s.find_all("append", sequences)) {
    const auto twin = std::find(batch.begin(), batch.end(), found);
    if (twin != batch.end())
      throw ValueError(
          runtime::format("append: sequences[{}] and sequences[{}] are the same", twin - batch.begin(), batch.size()));
    batch.push_back(const_cast<State::Sequence*>(found));
  }
  check_tensors(s, static_cast<std::int64_t>(batch.size()), k, v);
  s.append(batch, k, v);
  s.note_history(k, v);
}

KvCache::Rows KvCache::State::gather(const std::vector<const Sequence*>& batch, Dtype dtype) const {
  const runtime::DefaultFloatingPoint floating_point;
  const Dtype computed = dtype == Dtype::f64 || options.dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  std::int64_t longest = 0;
  for (const Sequence* s : batch) longest = std::max(longest, s->length);
  const auto collect = [&](const PagedRows& rows, std::int64_t heads, std::int64_t dim) {
    const Tensor result = zeros({static_cast<std::int64_t>(batch.size()), heads, longest, dim}, computed);
    for (std::size_t b = 0; b < batch.size(); ++b)
      for (std::int64_t j = 0; j < batch[b]->length;) {
        if (j == batch[b]->sinks && (j = std::max(j, batch[b]->first)) == batch[b]->length) break;
        const std::int64_t end = j < batch[b]->sinks ? batch[b]->sinks : batch[b]->length;
        const PagePlace place{batch[b]->table[static_cast<std::size_t>(j / page_rows)], j % page_rows};
        const std::int64_t count = std::min(page_rows - place.row, end - j),
                           start = (static_cast<std::int64_t>(b) * heads * longest + j) * dim;
        if (computed == Dtype::f64) rows.read(place, count, result.data<double>() + start, longest * dim);
        else rows.read(place, count, result.data<float>() + start, longest * dim);
        j += count;
      }
    return result.to(dtype);
  };
  const Tensor keys = collect(k, options.key_heads, options.head_dim);
  if (options.values_in_keys) return {keys, keys.narrow(-1, 0, options.value_dim)};
  return {keys, collect(v, options.value_heads, options.value_dim)};
}

}  // namespace attn
