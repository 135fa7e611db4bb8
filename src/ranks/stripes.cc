// src/ranks/stripes.cc: the forward pass of rows in stripes: for each chunk of keys that passes by, all rows continue
// from their totals.
#include "ranks/stripes.h"

#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/runtime.h>

#include "attention/lower.h"
#include "attention/schedule/plan.h"
#include "attention/score/dropout.h"
#include "kernels/attention/mask/mask_program.h"
#include "ranks/stripes_call.h"
#include "runtime/floating_point.h"
#include "runtime/format.h"
#include "runtime/parallel.h"
#include "runtime/thread_scratch.h"
#include "tensor/build.h"

#include <cstring>
#include <optional>

namespace attn {
namespace {

constexpr const char* forward_name = "rank_attention";

/// Returns rank 0's seed. Every rank draws one, so that their generators stay equal.
std::uint64_t shared_seed(const AttentionOptions& options, const Ranks& ranks) {
  std::uint64_t seed = dropout_seed(options.dropout_p, options.dropout_seed, options.generator);
  const std::string first = ranks.from_first({reinterpret_cast<const char*>(&seed), sizeof seed});
  std::memcpy(&seed, first.data(), sizeof seed);
  return seed;
}

/// Throws unless the memory for the maxima and sums, if it is given, can receive them.
void check_memory(const StripesCall& call, const AttentionSaved* saved) {
  if (saved == nullptr) return;
  for (const auto& [x, name] : {std::pair{&saved->max, "max"}, {&saved->sum, "sum"}}) {
    if (!x->defined()) continue;
    if (!(x->sizes() == call.numbers()))
      throw ShapeError(runtime::format("{}: {} has shape {}; it must be {}", forward_name, name, to_string(x->sizes()),
                                       to_string(call.numbers())));
    if (x->dtype() != call.whole.compute_dtype())
      throw DtypeError(runtime::format("{}: {} is {}; it must be {}", forward_name, name, name_of(x->dtype()),
                                       name_of(call.whole.compute_dtype())));
  }
}

/// Returns `memory` with the values, if it is given, else the values.
Tensor given_or(const Tensor& memory, const Tensor& values) {
  if (!memory.defined()) return values;
  copy_values(memory, values);
  memory.bump_version();
  return memory;
}

/// The results of this rank's rows, and their totals between chunks.
struct StripeResults {
  Tensor output, logsumexp, max, sum;
  Tensor totals[3];

  StripeResults(const StripesCall& call, bool saved, bool several_chunks) {
    const Dtype type = call.whole.compute_dtype();
    output = empty(call.rows(call.whole.problem.value_dim), call.q.dtype());
    logsumexp = empty(call.numbers(), type);
    if (saved) max = empty(call.numbers(), type), sum = empty(call.numbers(), type);
    if (!several_chunks) return;
    for (Tensor* x : {&totals[0], &totals[1]}) *x = empty(call.numbers(), type);
    totals[2] = empty(call.rows(call.whole.problem.value_dim), type);
  }
  void describe(kernels::AttentionProblem& p) const {
    p.out = output.data();
    for (int d = 0; d < 3; ++d) p.out_stride[d] = output.stride(d);
    p.logsumexp = logsumexp.data();
    if (max.defined()) p.max = max.data(), p.sum = sum.data();
    if (totals[0].defined()) p.totals = {totals[0].data(), totals[1].data(), totals[2].data()};
  }
};

/// Computes this rank's rows over a chunk of keys; between groups of tasks messages can move.
void attend_chunk(const kernels::AttentionProblem& all, const AttentionKernel& kernel, const CallPart& part,
                  StripeStream& stream) {
  const std::int64_t tiles = (all.q_rows + kernel.query_tile_rows - 1) / kernel.query_tile_rows,
                     tasks = all.batch * all.q_heads * tiles;
  const std::size_t bytes = kernel.scratch_bytes(all);
  const auto run = [&](std::int64_t index) {
    const std::int64_t row = index % tiles * kernel.query_tile_rows, head = index / tiles;
    kernels::Task tile{head / all.q_heads, head % all.q_heads, 1, row,
                       std::min(kernel.query_tile_rows, all.q_rows - row)};
    const kernels::Sequence sequence = part.sequence(all, tile.batch, row);
    tile.sequence = &sequence;
    const std::int64_t rows = std::min(sequence.rows_end, row + tile.rows);
    const bool empty =
        rows <= row || sequence.keys_end == 0 ||
        kernels::classify(all, tile, {row, rows, 0, sequence.keys_end, tile.head}) == kernels::Visibility::empty;
    if (empty && !all.totals.begins && !all.totals.ends) return;  // the totals stay as they are
    kernel.rows(all, tile, runtime::thread_scratch(bytes));
  };
  const std::int64_t group = 8 * num_threads();
  for (std::int64_t first = 0; first < tasks; first += group) {
    runtime::parallel_for(std::min(group, tasks - first), [&](std::int64_t n) { run(first + n); });
    stream.progress();
  }
}

void attend_by_stripes(const StripesCall& call, const AttentionKernel& kernel, const StripeResults& results,
                       StripeStream& stream, const Ranks& ranks) {
  kernels::AttentionProblem p = call.problem();
  results.describe(p);
  std::exception_ptr failure;  // this rank then takes part without computing, until all agree
  stream.start();
  while (stream.next()) {
    const Span keys = stream.rows();
    set_chunks(p, stream.plane(0, 0), stream.plane(1, 0), keys.size());
    p.totals.begins = stream.is_first(), p.totals.ends = stream.is_last();
    const CallPart part = call.own_rows(ranks, keys.begin);
    if (!failure) failure = failure_of([&] { attend_chunk(p, kernel, part, stream); });
  }
  ranks.agree(failure);
}

}  // namespace

AttentionResult attention_by_stripes(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t length,
                                     const Ranks& ranks, const AttentionOptions& options, AttentionSaved* saved) {
  const runtime::DefaultFloatingPoint floating_point;
  std::optional<NoGrad> no_grad;
  if (saved != nullptr) no_grad.emplace();
  std::optional<StripesCall> call;
  Plan plan;
  const AttentionKernel* kernel = nullptr;
  bool wide = false;
  ranks.agree(failure_of([&] {
    call.emplace(check_stripes_call(forward_name, q, k, v, length, ranks, options));
    kernel = &plan_attention(call->whole.problem, plan);
    check_memory(*call, saved);
    wide = better_in_f32(*kernel, call->whole.problem, saved != nullptr && saved->exact);
    call->text += wide ? ", in f32" : "";
  }));
  ranks.same("rank_attention: the call", call->text);
  if (wide) {  // as attention() does: every rank, because the text says so
    const auto in_f32_of = [](const Tensor& x) { return x.detach().to(Dtype::f32); };
    AttentionOptions f32 = options;
    Tensor q32, k32, v32;
    ranks.agree(failure_of([&] {
      f32.bias = in_f32(options.bias);
      q32 = in_f32_of(q), k32 = in_f32_of(k), v32 = in_f32_of(v);
    }));
    AttentionResult result = attention_by_stripes(q32, k32, v32, length, ranks, f32, saved);
    result.output = add(result.output.to(q.dtype()), 0);  // + 0: values that round to -0 become +0
    if (saved != nullptr && !saved->exact) saved->output = result.output;
    return result;
  }
  std::optional<StripeResults> results;
  std::optional<StripeStream> stream;
  ranks.agree(failure_of([&] {
    stream.emplace(ranks, call->stripes,
                   std::vector<StripeStream::Array>{
                       {planes_of(call->k), static_cast<std::size_t>(call->k.size(3)) * size_of(call->k.dtype())},
                       {planes_of(call->v), static_cast<std::size_t>(call->v.size(3)) * size_of(call->v.dtype())}});
    results.emplace(*call, saved != nullptr, stream->chunks() > 1);
  }));
  std::uint64_t seed = 0;
  if (options.dropout_p > 0) {
    seed = shared_seed(options, ranks);
    describe_dropout(options.dropout_p, seed, call->q.dtype() == Dtype::f64, call->whole.problem);
  }
  attend_by_stripes(*call, *kernel, *results, *stream, ranks);
  if (saved != nullptr) {
    saved->output = results->output;
    saved->max = given_or(saved->max, results->max), saved->sum = given_or(saved->sum, results->sum);
    saved->dropout_seed = seed, saved->weight_keys = {};
  }
  return {.output = results->output,
          .weights = {},
          .weight_keys = {},
          .logsumexp = results->logsumexp,
          .dropout_seed = seed,
          .plan = plan};
}

}  // namespace attn
