// src/ranks/spans.cc: attention over a cache whose keys are dealt to the ranks in spans of 1,024: each rank sums over
// its spans, and the rank of a head merges the sums in ascending order, as one process does.
#include "ranks/spans.h"

#include <attn/ops.h>
#include <attn/runtime.h>

#include "attention/cache/cache_call.h"
#include "attention/call/check.h"
#include "attention/schedule/call_part.h"
#include "attention/schedule/plan.h"
#include "kernels/attention/mask/mask_program.h"
#include "kernels/rank_totals.h"
#include "ranks/messages.h"
#include "runtime/floating_point.h"
#include "runtime/parallel.h"
#include "runtime/thread_scratch.h"
#include "tensor/build.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>

namespace attn {
namespace {

constexpr std::int64_t span = SharedColumns::span;

/// The new tokens of a layer, all heads: q [B, Hq, T, D], k and v [B, Hk, T, D].
struct AllHeads {
  Tensor q, k, v;
};

/// Joins the heads of all ranks. A key head that several ranks have comes from the first.
AllHeads joined_heads(const SpanAttention& call, const SharedColumns& columns) {
  const Tensor& q = call.heads.q;
  const std::int64_t batch = q.size(0), rows = q.size(2), dim = q.size(3);
  struct Share {
    std::int64_t q, k;  // heads of a rank; of its key heads the last
  };
  std::vector<Share> shares;
  std::vector<std::int64_t> cuts{0};
  std::int64_t keys = 0;
  for (int rank = 0; rank < columns.size(); ++rank) {
    const std::int64_t end = call.columns.of(Columns::key_heads, rank).end;
    shares.push_back({call.columns.of(Columns::heads, rank).size(), end - keys});
    cuts.push_back(cuts.back() + (shares.back().q + 2 * shares.back().k) * dim);
    keys = end;
  }
  const std::int64_t given = shares[static_cast<std::size_t>(columns.rank())].k;
  const auto row = [&](const Tensor& x) { return x.transpose(1, 2).reshape({batch, rows, x.size(1) * dim}); };
  const auto last = [&](const Tensor& x) { return row(x.narrow(1, x.size(1) - given, given)); };
  const Tensor all = columns.join(cat({row(q), last(call.heads.k), last(call.heads.v)}, -1), cuts);
  std::vector<Tensor> parts[3];
  for (std::int64_t at = 0; const Share& share : shares)
    for (int n = 0; n < 3; ++n) {
      const std::int64_t width = (n == 0 ? share.q : share.k) * dim;
      parts[n].push_back(all.narrow(-1, at, width));
      at += width;
    }
  const auto heads = [&](const std::vector<Tensor>& x) {
    const Tensor joined = cat(x, -1);
    return joined.reshape({batch, rows, joined.size(-1) / dim, dim}).transpose(1, 2);
  };
  return {heads(parts[0]), heads(parts[1]), heads(parts[2])};
}

/// Appends those of the new keys that are in this rank's spans.
void append_own(const SpanAttention& call, const AllHeads& all, const SharedColumns& columns) {
  const std::int64_t rows = all.k.size(2);
  for (std::size_t b = 0; b < call.sequences.size(); ++b) {
    const Tensor k = all.k.select(0, static_cast<std::int64_t>(b)), v = all.v.select(0, static_cast<std::int64_t>(b));
    const std::int64_t before = call.before[b];
    for (std::int64_t at = before, end; at < before + rows; at = end) {
      end = std::min(before + rows, (at / span + 1) * span);
      if (at / span % columns.size() != columns.rank()) continue;
      call.cache.append(call.sequences[b], k.narrow(1, at - before, end - at), v.narrow(1, at - before, end - at));
    }
  }
}

/// A span of keys that some of the rows see.
struct SeenSpan {
  std::int64_t batch, index;
};

/// The sums of some rows over spans, or over all: as kernels::RowTotals has them.
struct RowSums {
  Tensor max, sum, output;
  RowSums(std::int64_t batch, std::int64_t heads, std::int64_t rows, std::int64_t columns, Dtype type)
      : max(full({batch, heads, rows}, -std::numeric_limits<double>::infinity(), type)),
        sum(zeros({batch, heads, rows}, type)), output(zeros({batch, heads, rows, columns}, type)) {}
  /// Returns the sums from head `head` of item `b` on.
  kernels::RowTotals of(std::int64_t b, std::int64_t head) const {
    const std::int64_t at = (b * max.size(1) + head) * max.size(2),
                       element = static_cast<std::int64_t>(size_of(max.dtype()));
    const auto from = [&](const Tensor& x, std::int64_t width) {
      return static_cast<void*>(static_cast<char*>(x.data()) + at * width * element);
    };
    return {from(max, 1), from(sum, 1), from(output, output.size(3))};
  }
};

class SpanCall {
 public:
  SpanCall(const SpanAttention& call, const Tensor& q, const SharedColumns& columns, const Ranks& ranks,
           SharedPass& pass)
      : columns_(call.columns), ranks_(ranks), pass_(pass), rank_(columns.rank()), size_(columns.size()), q_(q) {
    const KvCache::State& state = call.cache.state();
    pages_ = pages_of(state, state.find_all("LanguageModel", call.sequences));
    AttentionOptions options = call.options;
    std::vector<std::int64_t> lengths;
    for (const std::int64_t before : call.before) lengths.push_back(before + q.size(2));
    options.key_lengths = tensor<std::int64_t>(lengths), options.query_start = tensor<std::int64_t>(call.before);
    const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    const auto sized = [&](std::int64_t heads, std::int64_t dim) {
      return empty({dim}, q.dtype()).expand({q.size(0), heads, longest, dim});
    };
    whole_ = check("LanguageModel", q, sized(state.options.key_heads, state.options.head_dim),
                   sized(state.options.value_heads, state.options.value_dim), options, &pages_.kv,
                   /*rows_at_end=*/true);
    Plan plan;
    kernel_ = &plan_attention(whole_.problem, plan);
  }

  bool better_in_f32() const { return attn::better_in_f32(*kernel_, whole_.problem, false); }

  Tensor run() {
    const kernels::AttentionProblem& p = whole_.problem;
    const Tensor result = empty({p.batch, own_heads().size(), p.q_rows, p.value_dim}, q_.dtype());
    const std::int64_t most = rows_together();
    for (std::int64_t first = 0; first < p.q_rows; first += most) rows(first, std::min(most, p.q_rows - first), result);
    return result;
  }

 private:
  using Buffers = std::vector<std::vector<char>>;  // one for each rank
  int owner(const SeenSpan& one) const { return static_cast<int>(one.index % size_); }
  Span own_heads() const { return columns_.of(Columns::heads, rank_); }
  std::int64_t spans_of(std::int64_t b) const { return (whole_.problem.keys_end({.batch = b}) + span - 1) / span; }
  std::size_t element() const { return size_of(whole_.compute_dtype()); }
  /// Returns the bytes of the sums of `heads` heads over a span.
  std::size_t bytes(std::int64_t heads, std::int64_t rows) const {
    return static_cast<std::size_t>(heads * rows * (whole_.problem.value_dim + 2)) * element();
  }

  /// Returns for how many rows sums are kept at a time. It is the same at every rank.
  std::int64_t rows_together() const {
    constexpr std::int64_t most_bytes = std::int64_t{64} << 20, tile = 64;
    std::int64_t spans = 0;
    for (std::int64_t b = 0; b < whole_.problem.batch; ++b) spans += spans_of(b);
    const std::int64_t rows =
        most_bytes / static_cast<std::int64_t>(bytes(whole_.problem.q_heads, std::max<std::int64_t>(spans, 1)));
    return rows < tile ? std::max<std::int64_t>(rows, 1) : rows / tile * tile;
  }

  /// Returns the spans that some of the rows see, in the order of the items and of the keys. Every rank knows them all.
  std::vector<SeenSpan> seen(std::int64_t first, std::int64_t count) const {
    const kernels::AttentionProblem& p = whole_.problem;
    std::vector<SeenSpan> all;
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t s = 0; s < spans_of(b); ++s) {
        const std::int64_t end = std::min((s + 1) * span, p.keys_end({.batch = b}));
        if (kernels::classify(p, {.batch = b}, {first, first + count, s * span, end, 0, p.q_heads}) !=
            kernels::Visibility::empty)
          all.push_back({b, s});
      }
    return all;
  }

  /// Returns the problem of some rows of an item, which is item 0 there; a task adds the span and the totals.
  kernels::AttentionProblem problem_of_rows(std::int64_t b, std::int64_t first, std::int64_t count) const {
    kernels::AttentionProblem p = whole_.problem;
    p.q = static_cast<const char*>(p.q) +
          (b * p.q_stride[0] + first * p.q_stride[2]) * static_cast<std::int64_t>(size_of(q_.dtype()));
    p.k.pages += b * p.k.pages_stride, p.v.pages += b * p.v.pages_stride;
    p.batch = 1, p.q_rows = count, p.k_rows = span;
    p.query_lengths = p.key_lengths = p.key_start = p.query_start = nullptr;  // CallPart reads those of the whole call
    return p;
  }

  /// A task's problem, and the keys of its item.
  struct Part {
    kernels::AttentionProblem problem;
    kernels::Sequence keys;
  };
  /// Calls the kernel for all rows of some heads, in `parts` parts. part_of(n, row) returns part n for the rows from
  /// `row` on.
  template <typename PartOf>
  void tiles(std::int64_t parts, std::int64_t rows, const Span& heads, const PartOf& part_of) const {
    if (parts == 0) return;
    const kernels::AttentionProblem& p = whole_.problem;
    // Decode reads the keys of a group once.
    const std::int64_t group = p.q_heads / p.k_heads;
    const bool grouped =
        kernel_->vector_kernel != nullptr && heads.size() == p.q_heads && group * rows <= kernels::max_decode_rows;
    const std::int64_t together = grouped ? group : 1, step = kernel_->query_tile_rows,
                       tiles = (rows + step - 1) / step, tasks = heads.size() / together * tiles;
    const std::size_t scratch = kernel_->scratch_bytes(part_of(0, 0).problem);
    runtime::parallel_for(parts * tasks, [&](std::int64_t task) {
      const std::int64_t row = task % tiles * step, head = heads.begin + task % tasks / tiles * together;
      const Part part = part_of(task / tasks, row);
      kernel_->rows(
          part.problem,
          {.head = head, .heads = together, .row = row, .rows = std::min(step, rows - row), .sequence = &part.keys},
          runtime::thread_scratch(scratch));
    });
  }

  void rows(std::int64_t first, std::int64_t count, const Tensor& result) {
    const std::vector<SeenSpan> spans = seen(first, count);
    std::vector<SeenSpan> mine;
    std::copy_if(spans.begin(), spans.end(), std::back_inserter(mine),
                 [&](const SeenSpan& one) { return owner(one) == rank_; });
    // pass 1: what all rows sum over each span of this rank, sent to the ranks of the heads
    Buffers sent(static_cast<std::size_t>(size_)), received(static_cast<std::size_t>(size_));
    {
      const RowSums sums(std::ssize(mine), whole_.problem.q_heads, count, whole_.problem.value_dim,
                         whole_.compute_dtype());
      over_spans(mine, first, count, sums);
      for (int rank = 0; rank < size_; ++rank) sent[static_cast<std::size_t>(rank)] = packed(sums, rank);
    }
    exchange(spans, count, sent, received);
    // pass 2: merges them for this rank's heads, in the order of the keys
    received[static_cast<std::size_t>(rank_)] = std::move(sent[static_cast<std::size_t>(rank_)]);
    const RowSums totals = merged(spans, count, received);
    finish(first, count, totals, result);
  }

  /// Computes what all rows sum over spans of this rank.
  void over_spans(const std::vector<SeenSpan>& mine, std::int64_t first, std::int64_t count,
                  const RowSums& sums) const {
    tiles(std::ssize(mine), count, {0, whole_.problem.q_heads}, [&](std::int64_t n, std::int64_t row) {
      const auto [b, index] = mine[static_cast<std::size_t>(n)];
      kernels::AttentionProblem p = problem_of_rows(b, first, count);
      p.totals = sums.of(n, 0);
      p.totals.ends = false;
      const CallPart part{.whole = &whole_.problem, .first_row = first, .first_key = index * span};
      kernels::Sequence keys = part.sequence(p, b, row);
      const std::int64_t at = index / size_ * span;  // in this rank's cache
      keys.batch = 0, keys.keys_begin += at, keys.keys_end += at;
      return Part{p, keys};
    });
  }

  /// Merges the sums of this rank's heads.
  RowSums merged(const std::vector<SeenSpan>& spans, std::int64_t count, const Buffers& received) const {
    const kernels::AttentionProblem& p = whole_.problem;
    const Span own = own_heads();
    RowSums totals(p.batch, p.q_heads, count, p.value_dim, whole_.compute_dtype());
    std::vector<std::size_t> at(static_cast<std::size_t>(size_));
    std::vector<const char*> from;
    for (const SeenSpan& one : spans) {
      const auto rank = static_cast<std::size_t>(owner(one));
      from.push_back(received[rank].data() + at[rank]);
      at[rank] += bytes(own.size(), count);
    }
    const kernels::MergeTotals merge = kernels::merge_totals_reference(kernels::reference());
    const kernels::Element type = whole_.compute_dtype() == Dtype::f64 ? kernels::Element::f64 : kernels::Element::f32;
    runtime::parallel_for(own.size(), [&](std::int64_t head) {
      for (std::size_t n = 0; n < spans.size(); ++n)
        merge(type, totals.of(spans[n].batch, own.begin + head), sums_in(from[n] + bytes(head, count), count), count,
              p.value_dim);
    });
    return totals;
  }

  /// Sink, division and rounding, as after the last of the keys.
  void finish(std::int64_t first, std::int64_t count, const RowSums& totals, const Tensor& result) const {
    const kernels::AttentionProblem& all = whole_.problem;
    const Tensor out = empty({all.batch, all.q_heads, count, all.value_dim}, q_.dtype());
    const Span own = own_heads();
    tiles(all.batch, count, own, [&](std::int64_t b, std::int64_t row) {
      kernels::AttentionProblem p = problem_of_rows(b, first, count);
      p.out = static_cast<char*>(out.data()) + b * out.stride(0) * static_cast<std::int64_t>(size_of(out.dtype()));
      for (int d = 0; d < 3; ++d) p.out_stride[d] = out.stride(d);
      p.totals = totals.of(b, 0);
      p.totals.begins = false;
      const CallPart part{.whole = &all, .first_row = first};
      kernels::Sequence keys = part.sequence(p, b, row);
      keys.batch = 0, keys.keys_end = 0;
      return Part{p, keys};
    });
    copy_values(result.narrow(2, first, count), out.narrow(1, own.begin, own.size()));
  }

  /// The sums of a head in a message: maxima, sums, outputs.
  kernels::RowTotals sums_in(const char* from, std::int64_t rows) const {
    char* const at = const_cast<char*>(from);  // they are only read
    const std::size_t numbers = static_cast<std::size_t>(rows) * element();
    return {at, at + numbers, at + 2 * numbers};
  }
  /// Returns the sums of the heads of a rank, span after span.
  std::vector<char> packed(const RowSums& sums, int rank) const {
    const Span heads = columns_.of(Columns::heads, rank);
    const std::int64_t rows = sums.max.size(2);
    const std::size_t numbers = static_cast<std::size_t>(rows) * element();
    std::vector<char> to;
    to.reserve(static_cast<std::size_t>(sums.max.size(0)) * bytes(heads.size(), rows));
    const auto add = [&](const void* data, std::size_t count) {
      to.insert(to.end(), static_cast<const char*>(data), static_cast<const char*>(data) + count);
    };
    for (std::int64_t n = 0; n < sums.max.size(0); ++n)
      for (std::int64_t head = heads.begin; head < heads.end; ++head) {
        const kernels::RowTotals from = sums.of(n, head);
        add(from.max, numbers), add(from.sum, numbers);
        add(from.output, numbers * static_cast<std::size_t>(whole_.problem.value_dim));
      }
    return to;
  }
  void exchange(const std::vector<SeenSpan>& spans, std::int64_t rows, const Buffers& sent, Buffers& received) const {
    for (const SeenSpan& one : spans) {
      std::vector<char>& from = received[static_cast<std::size_t>(owner(one))];
      if (owner(one) != rank_) from.resize(from.size() + bytes(own_heads().size(), rows));
    }
    Messages messages(ranks_.transport());
    messages.reserve(2 * static_cast<std::size_t>(size_), bytes(whole_.problem.q_heads, rows) * spans.size());
    for (int step = 1; step < size_; ++step) {  // each rank begins with another neighbour
      const int from = (rank_ + size_ - step) % size_, to = (rank_ + step) % size_;
      std::vector<char>& theirs = received[static_cast<std::size_t>(from)];
      messages.receive(from, theirs.data(), theirs.size());
      messages.send(to, sent[static_cast<std::size_t>(to)].data(), sent[static_cast<std::size_t>(to)].size());
    }
    pass_.wait(messages);
  }

  const ColumnShare& columns_;
  const Ranks& ranks_;
  SharedPass& pass_;
  const int rank_, size_;
  const Tensor q_;
  CachedPages pages_;
  Call whole_;  // all rows, keys and heads; its lengths are those of all ranks
  const AttentionKernel* kernel_ = nullptr;
};

}  // namespace

Tensor attend_over_spans(const SpanAttention& call, const SharedColumns& columns, const Ranks& ranks,
                         SharedPass& pass) {
  const runtime::DefaultFloatingPoint floating_point;
  const AllHeads all = joined_heads(call, columns);
  append_own(call, all, columns);
  const Dtype dtype = all.q.dtype();
  {
    SpanCall spans(call, all.q, columns, ranks, pass);
    if (!spans.better_in_f32()) return spans.run();
  }
  // as attention_cached does: + 0, so that values that round to -0 become +0
  return add(SpanCall(call, all.q.to(Dtype::f32), columns, ranks, pass).run().to(dtype), 0);
}

}  // namespace attn
