// src/explain/equivalences.cc: checks that packed sequences and cached keys give the same context.
#include "explain/equivalences.h"

#include <attn/ops.h>

#include "attention/call/check.h"

#include "runtime/format.h"

#include <array>

namespace attn::explain_detail {
namespace {

std::vector<std::int64_t> starts_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> starts{0};
  for (const std::int64_t length : lengths) starts.push_back(starts.back() + length);
  return starts;
}

/// Joins the rows of all sentences into one packed tensor [1, H, total, D].
Tensor one_behind_the_other(const Tensor& x, const std::vector<std::int64_t>& lengths) {
  std::vector<Tensor> parts;
  for (std::size_t b = 0; b < lengths.size(); ++b)
    parts.push_back(x.narrow(0, static_cast<std::int64_t>(b), 1).narrow(2, 0, lengths[b]));
  return cat(parts, 2);
}

bool same_rows(const Tensor& ours, const Tensor& context, std::size_t sentence, std::int64_t rows) {
  return same_bits(ours.contiguous(),
                   context.narrow(0, static_cast<std::int64_t>(sentence), 1).narrow(2, 0, rows).contiguous());
}

/// Returns by which alignments a call counts the positions of rows: by top_left (or none), by bottom_right.
std::array<bool, 2> alignments(const kernels::AttentionProblem& problem) {
  std::array<bool, 2> used{};
  for (int n = 0; n < problem.mask.count; ++n) {
    const kernels::MaskNode& node = problem.mask.nodes[n];
    if (node.op == kernels::MaskOp::causal || node.op == kernels::MaskOp::window) used[node.bottom_right] = true;
  }
  for (int n = 0; n < problem.bias_count; ++n) used[problem.bias[n].bottom_right] = true;
  for (const int n : {0, 1})
    if (const kernels::ScoreSymbols& symbols = problem.score_mod.symbols;
        symbols.row[n] >= 0 || symbols.distance[n] >= 0)
      used[n] = true;
  return used;
}

}  // namespace

std::string packed_starts(const std::vector<std::int64_t>& lengths) {
  return runtime::format("{}", runtime::join(starts_of(lengths), " "));
}

std::vector<bool> same_packed(const Run& run, const TokenizedTexts& tokens) {
  AttentionOptions options = run.call;
  options.query_lengths = options.key_lengths = {};
  const std::vector<std::int64_t> rows = starts_of(tokens.from.lengths);
  options.cu_seqlens_q = tensor<std::int64_t>(rows);
  options.cu_seqlens_k = tensor<std::int64_t>(starts_of(tokens.to.lengths));
  const Tensor packed = attention(one_behind_the_other(run.q_used(), tokens.from.lengths),
                                  one_behind_the_other(run.k_used(), tokens.to.lengths),
                                  one_behind_the_other(run.v, tokens.to.lengths), options)
                            .output;
  std::vector<bool> same;
  for (std::size_t b = 0; b < tokens.from.lengths.size(); ++b)
    same.push_back(
        same_rows(packed.narrow(2, rows[b], tokens.from.lengths[b]), run.context, b, tokens.from.lengths[b]));
  return same;
}

FromCache from_cache(const Run& run, const TokenizedTexts& tokens, KvStorage storage) {
  constexpr std::int64_t page_rows = 16;
  const Tensor &k = run.k_used(), &v = run.v;
  const std::int64_t batch = k.size(0), pages = (k.size(2) + page_rows - 1) / page_rows;
  KvCache cache({.key_heads = k.size(1),
                 .value_heads = v.size(1),
                 .head_dim = k.size(3),
                 .value_dim = v.size(3),
                 .page_rows = page_rows,
                 .pages = batch * pages,
                 .dtype = k.dtype(),
                 .storage = storage});
  const auto [top_left, bottom_right] = alignments(check("explain", run.q_used(), k, v, run.call).problem);
  std::vector<KvSequence> sequences;
  std::vector<std::int64_t> starts;
  for (std::int64_t b = 0; b < batch; ++b) {
    sequences.push_back(cache.create());
    const std::int64_t length = tokens.to.lengths[static_cast<std::size_t>(b)];
    cache.append(sequences.back(), k.select(0, b).narrow(1, 0, length), v.select(0, b).narrow(1, 0, length));
    starts.push_back(bottom_right ? length - tokens.from.lengths[static_cast<std::size_t>(b)] : 0);
  }
  const KvCache::Rows rows = cache.gather(sequences);
  FromCache result{.k = rows.k, .v = rows.v, .context = {}, .same = {}};
  if (top_left && bottom_right) {  // attention_cached has one position for a row, so attention() gets the cache's rows
    result.context = attention(run.q_used(), rows.k, rows.v, run.call).output;
  } else {
    AttentionOptions options = run.call;
    options.key_lengths = {};
    options.query_start = tensor<std::int64_t>(starts);
    result.context = attention_cached(run.q_used(), cache, sequences, options).output;
  }
  for (std::size_t b = 0; b < tokens.from.lengths.size(); ++b)
    result.same.push_back(
        same_rows(result.context.narrow(0, static_cast<std::int64_t>(b), 1).narrow(2, 0, tokens.from.lengths[b]),
                  run.context, b, tokens.from.lengths[b]));
  return result;
}

}  // namespace attn::explain_detail
