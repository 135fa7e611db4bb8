// src/attention/cache/cache_call.cc: runs attention over a cache: builds page tables and positions of the call's
// sequences.
#include <attn/autograd.h>
#include <attn/ops.h>

#include "runtime/format.h"

#include "attention/cache/cache_call.h"
#include "attention/cache/cache_state.h"
#include "attention/internal.h"
#include "attention/lower.h"
#include "attention/score/projection.h"
#include "tensor/record.h"

#include <algorithm>

namespace attn {
namespace {

using Batch = std::vector<const KvCache::State::Sequence*>;

/// Returns an i64 tensor [B] with number(b) for each index b of the batch.
template <typename F>
Tensor of_each(const Batch& batch, F&& number) {
  const Tensor numbers = empty({static_cast<std::int64_t>(batch.size())}, Dtype::i64);
  for (std::size_t b = 0; b < batch.size(); ++b) numbers.data<std::int64_t>()[b] = number(b);
  return numbers;
}

/// Returns the number of valid rows of each sequence: `lengths` if it is a valid option, else Tq. The call itself
/// rejects invalid lengths later.
std::vector<std::int64_t> rows_of_each(const Tensor& lengths, const Batch& batch, std::int64_t q_rows) {
  const auto count = static_cast<std::int64_t>(batch.size());
  if (lengths.defined() && is_integral(lengths.dtype()) && lengths.dim() == 1 && lengths.size(0) == count)
    return lengths.to_int_vector();
  return std::vector<std::int64_t>(batch.size(), q_rows);
}

AttentionOptions with_positions(AttentionOptions options, const Batch& batch, std::int64_t q_rows) {
  options.key_lengths = of_each(batch, [&](std::size_t b) { return batch[b]->length; });
  if (!options.query_start.defined()) {
    const std::vector<std::int64_t> rows = rows_of_each(options.query_lengths, batch, q_rows);
    options.query_start = of_each(batch, [&](std::size_t b) { return batch[b]->length - rows[b]; });
  }
  if (std::any_of(batch.begin(), batch.end(), [](const auto* s) { return s->first > 0; })) {
    Mask kept = ~Mask::prefix(of_each(batch, [&](std::size_t b) { return batch[b]->first; }));
    if (std::any_of(batch.begin(), batch.end(), [](const auto* s) { return s->sinks > 0; }))
      kept = kept | Mask::prefix(of_each(batch, [&](std::size_t b) { return batch[b]->sinks; }));
    options.mask = options.mask.is_all() ? kept : options.mask & kept;
  }
  return options;
}

/// Joins the page tables of the sequences to one table [B, width]; evicted and missing pages become the page of zeros.
std::vector<std::int32_t> tables_of(const Batch& batch, std::size_t width, std::int64_t zero_page) {
  std::vector<std::int32_t> tables(batch.size() * width, static_cast<std::int32_t>(zero_page));
  for (std::size_t b = 0; b < batch.size(); ++b)
    for (std::size_t n = 0; n < batch[b]->table.size(); ++n)
      if (batch[b]->table[n] != KvCache::State::evicted) tables[b * width + n] = batch[b]->table[n];
  return tables;
}

void check_call(const char* function, const Tensor& q, const KvCache::State& cache, const Batch& batch,
                const AttentionOptions& options) {
  if (!q.defined()) throw ValueError(runtime::format("{}: q is undefined", function));
  if (q.dtype() != cache.options.dtype)
    throw DtypeError(runtime::format("{}: q is {}; it must be {} as the cache", function, name_of(q.dtype()),
                                     name_of(cache.options.dtype)));
  if (q.dim() != 4 || q.size(0) != static_cast<std::int64_t>(batch.size()))
    throw ShapeError(runtime::format("{}: q has shape {}; it must be [{}, Hq, Tq, D], one batch item a sequence",
                                     function, to_string(q.sizes()), batch.size()));
  if (options.key_lengths.defined() || options.key_start.defined())
    throw ValueError(runtime::format("{}: {} is given; the cache knows it", function,
                                     options.key_lengths.defined() ? "key_lengths" : "key_start"));
}

}  // namespace

AttentionResult attend_cached(const char* function, const Tensor& q, const KvCache& cache,
                              const std::vector<KvSequence>& sequences, const AttentionOptions& options,
                              const std::function<KvCache::Rows(const KvCache::Rows&)>& expand) {
  const NoGrad unrecorded;
  const KvCache::State& state = cache.state();
  const Batch batch = state.find_all(function, sequences);
  check_call(function, q, state, batch, options);
  const bool at_end = !options.query_start.defined();
  const AttentionOptions positioned = with_positions(options, batch, q.size(2));
  if (expand || projects_keys(options.score)) {  // all keys are read as a tensor first
    KvCache::Rows rows = state.gather(batch, state.options.dtype);
    if (expand) rows = expand(rows);
    return attention_call(q, rows.k, rows.v, positioned, {.function = function, .rows_at_end = at_end});
  }
  std::int64_t longest = 0;
  for (const auto* s : batch) longest = std::max(longest, s->length);
  const auto width = static_cast<std::size_t>((longest + state.page_rows - 1) / state.page_rows);
  const std::vector<std::int32_t> tables = tables_of(batch, width, state.k.zero_page());
  const PagedRows& values = state.options.values_in_keys ? state.k : state.v;
  CachedKv cached{.k = state.k.describe(),
                  .v = values.describe(),
                  .k_head_stride = state.k.head_stride(),
                  .v_head_stride = values.head_stride()};
  for (kernels::KvRows* rows : {&cached.k, &cached.v}) {
    rows->pages = tables.data();
    rows->pages_stride = static_cast<std::int64_t>(width);
  }
  // makes a tensor that holds sizes and a dtype, but a single row of memory
  const auto sized = [&](std::int64_t heads, std::int64_t dim) {
    return empty({dim}, q.dtype()).expand({q.size(0), heads, longest, dim});
  };
  return attention_call(q, sized(state.options.key_heads, state.options.head_dim),
                        sized(state.options.value_heads, state.options.value_dim), positioned,
                        {.function = function, .rows_at_end = at_end, .cached = &cached});
}

void refuse_cached_gradient(const char* function, const char* instead, std::vector<Tensor> inputs, const KvCache& cache,
                            const AttentionOptions& options, AttentionResult& result) {
  for (Tensor AttentionResult::* part :
       {&AttentionResult::output, &AttentionResult::weights, &AttentionResult::logsumexp})
    if ((result.*part).defined()) result.*part = (result.*part).detach();
  if (!grad_enabled()) return;
  for (const Tensor& x : {options.sinks, options.score.w, options.score.w_q, options.score.w_k})
    if (x.defined()) inputs.push_back(x);
  for (const Tensor& x : tensors_of(options.bias)) inputs.push_back(x);
  for (const ScoreExpression& lookup : options.score_mod.lookups()) inputs.push_back(lookup.tensor());
  if (cache.state().lost_history) inputs.push_back(zeros({1}).requires_grad_());
  record({"AttentionCachedBackward0", inputs, {}}, {result.output, result.weights, result.logsumexp},
         [function, instead](const Backward&) -> Gradients {
           throw ValueError(runtime::format(
               "{}: it has no gradient, since a cache keeps keys and values without their history; call "
               "{} with all of them",
               function, instead));
         });
}

AttentionResult attention_cached(const Tensor& q, const KvCache& cache, const std::vector<KvSequence>& sequences,
                                 const AttentionOptions& options) {
  AttentionResult result = attend_cached("attention_cached", q, cache, sequences, options);
  refuse_cached_gradient("attention_cached", "attention", {q}, cache, options, result);
  return result;
}

}  // namespace attn
