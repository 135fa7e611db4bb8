// src/attention/attention.cc: runs an attention call: checks, plans, allocates, computes, records; the arithmetic is in
// kernels/.
#include <attn/attention.h>
#include <attn/autograd.h>
#include <attn/ops.h>

#include "runtime/format.h"

#include "attention/backward.h"
#include "attention/call/check.h"
#include "attention/internal.h"
#include "attention/lower.h"
#include "attention/schedule/run.h"
#include "runtime/floating_point.h"
#include "runtime/trace.h"
#include "tensor/build.h"

#include <algorithm>
#include <optional>

namespace attn {
namespace {

/// Returns whether kernels cannot write to the caller's `out`: it shares memory with an operand, or its last dim is not
/// contiguous.
bool is_written_aside(const Call& call, const Tensor& out) {
  return out.defined() && ((call.problem.value_dim > 1 && out.stride(-1) != 1) || call.reads_from(out));
}

/// Returns the output: the caller's `out`, a new handle to its memory if a gradient history is involved, or new memory
/// if there is no `out`. The common case returns first, because a small call takes about a microsecond.
Tensor output_memory(const Call& call, const Tensor& out, bool recorded) {
  const Dims rows = call.shown_rows(call.problem.value_dim);
  if (!out.defined() || recorded || wants_grad(out)) return result_memory(call.function, out, rows, call.dtype());
  take_result_memory(call.function, out, rows, call.dtype());
  return out;
}

/// Returns the tensor [B, Hq, Tq, Dv], last dim contiguous, to which kernels write: separate memory if `aside`, or a
/// view of `result` if its rank is below 4. Undefined: `result` itself.
Tensor other_memory(const Call& call, const Tensor& result, bool aside) {
  const kernels::AttentionProblem& p = call.problem;
  if (aside) return empty({p.batch, p.q_heads, p.q_rows, p.value_dim}, call.dtype());
  return call.rank < 4 ? call.with_heads(result) : Tensor();
}

/// Returns memory for the saved maxima or sums: `given` after its checks, or new memory.
Tensor saved_memory(const Call& call, const Tensor& given, const std::vector<Tensor>& written, const Dims& rows,
                    const char* name) {
  const auto shared = [&](const Tensor& x) { return x.defined() && share_memory(given, x); };
  if (given.defined() && (call.reads_from(given) || std::any_of(written.begin(), written.end(), shared)))
    throw ValueError(runtime::format(
        "{}: {} shares memory with an operand or another result; it needs memory of its own", call.function, name));
  if (given.defined() && !(given.sizes() == rows))
    throw ShapeError(runtime::format("{}: {} has shape {}; it must be {}", call.function, name,
                                     to_string(given.sizes()), to_string(rows)));
  if (given.defined() && given.dtype() != call.compute_dtype())
    throw DtypeError(runtime::format("{}: {} is {}; it must be {}", call.function, name, name_of(given.dtype()),
                                     name_of(call.compute_dtype())));
  const Tensor memory = result_memory(call.function, given, rows, call.compute_dtype());
  if (!memory.is_contiguous())
    throw ValueError(runtime::format("{}: {} has strides {}; it must be contiguous", call.function, name,
                                     to_string(memory.strides())));
  return memory;
}

/// While tracing is on, writes one line per call: shapes, the kernel, the reasons.
void trace(const Call& call, const Plan& plan) {
  if (!runtime::trace_enabled()) return;
  const kernels::AttentionProblem& p = call.problem;
  runtime::trace(runtime::format("{} {} B={} Hq={} Hk={} Hv={} Tq={} Tk={} D={} Dv={} mask={} kernel={} ({})",
                                 call.function, name_of(call.dtype()), p.batch, p.q_heads, p.k_heads, p.v_heads,
                                 p.q_rows, p.k_rows, p.dim, p.value_dim, call.mask.to_string(), plan.kernel(),
                                 plan.to_string()));
}

/// Multiply-adds for which the reference code takes about a second.
constexpr double large_work = 1 << 27;

/// Sends a notice if the reference code computes a large call although this processor has vector kernels. It is sent
/// once per process, with the first such call.
void notice_reference(const Call& call, const AttentionKernel& kernel, const Plan& plan) {
  const kernels::AttentionProblem& p = call.problem;
  if (kernel.vector_kernel != nullptr || attention_kernels().size() == 1) return;
  const double pairs =
      static_cast<double>(p.batch * p.q_heads) * static_cast<double>(p.q_rows) * static_cast<double>(p.k_rows);
  if (pairs * static_cast<double>(p.dim + p.value_dim) < large_work) return;
  static runtime::NoticeOnce once;
  std::string reasons;
  for (const PlanStep& step : plan.steps())
    if (!step.taken) reasons += runtime::format("{}{}: {}", reasons.empty() ? "" : "; ", step.kernel, step.reason);
  once(runtime::format(
      "{}: a large call ({} {} B={} Hq={} Tq={} Tk={}) runs on the reference kernel, which is slow ({})", call.function,
      name_of(call.dtype()), call.mask.to_string(), p.batch, p.q_heads, p.q_rows, p.k_rows, reasons));
}

/// Computes a 16-bit call with relative products, or for which better_in_f32 returned true: converts the operands to
/// f32, computes in f32, and rounds the results once. Rows of a cache are not copied.
AttentionResult attention_in_f32(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                                 const CallOptions& call_options) {
  const auto wide = [](const Tensor& x) { return x.defined() ? x.to(Dtype::f32) : x; };
  AttentionOptions f32 = options;
  f32.out = {};
  f32.bias = in_f32(options.bias);
  for (Tensor Score::* part : {&Score::w_q, &Score::w_k, &Score::w}) f32.score.*part = wide(options.score.*part);
  // with a cache, the tensors k and v hold only sizes and dtype; the rows are in the cache
  const auto keys = [&](const Tensor& x) {
    return call_options.cached ? empty({x.size(-1)}).expand(x.sizes()) : wide(x);
  };
  AttentionResult result = attention_call(wide(q), keys(k), keys(v), f32, call_options);
  const auto narrow = [&](const Tensor& x, const Tensor& out) {
    if (!x.defined()) return x;
    const Tensor half = add(x.to(q.dtype()), 0);  // + 0: values that round to -0 become +0
    if (!out.defined()) return half;
    const Tensor memory = result_memory(call_options.function, out, x.sizes(), q.dtype());
    copy_values(memory, half);
    return record("AttentionBackward0", memory, wrt(half, [](auto& dy) { return dy; }));
  };
  result.output = narrow(result.output, options.out);
  result.weights = narrow(result.weights, {});
  return result;
}

/// The kernel that was chosen, the plan that says why, and whether the call is recorded for autograd.
struct Decided {
  const AttentionKernel& kernel;
  Plan plan;
  bool recorded;
};

/// Computes a checked call. It builds the result in place in the return value, and builds optional parts only on
/// request, because both are a noticeable part of the time of a small call.
AttentionResult computed(Call& call, const Decided& decided, const AttentionOptions& options,
                         const CallOptions& call_options) {
  const auto& [kernel, plan, recorded] = decided;
  const kernels::AttentionProblem& p = call.problem;
  const Dtype type = call.compute_dtype();
  const auto rows = [&p] { return Dims{p.batch, p.q_heads, p.q_rows}; };
  notice_reference(call, kernel, plan);
  std::uint64_t seed = 0;
  if (options.dropout_p > 0) {
    seed = dropout_seed(options.dropout_p, options.dropout_seed, options.generator);
    describe_dropout(options.dropout_p, seed, call.dtype() == Dtype::f64, call.problem);
  }
  AttentionResult result{
      .output = output_memory(call, options.out, recorded),
      .weights = {},
      .weight_keys = {},
      .logsumexp = call_options.logsumexp ? new_memory(call.rank == 4 ? rows() : call.shown(rows()), type) : Tensor(),
      .dropout_seed = seed,
      .plan = plan};
  const bool aside = is_written_aside(call, options.out);
  const Tensor other = other_memory(call, result.output, aside);
  const Tensor& written = other.defined() ? other : result.output;
  std::optional<ReturnedWeights> weights;
  if (!(options.weights == Weights::none)) weights = returned_memory(call, call.weights);

  call.problem.out = written.impl()->data;
  const Dims& strides = written.impl()->strides;
  for (int d = 0; d < 3; ++d) call.problem.out_stride[d] = strides[d];
  if (call_options.logsumexp) call.problem.logsumexp = result.logsumexp.data();
  Tensor max, sum;  // each row's values for the backward pass
  if (recorded || call_options.saved != nullptr) {
    const AttentionSaved given = recorded ? AttentionSaved() : *call_options.saved;
    max = saved_memory(call, given.max, {options.out}, rows(), "max");
    sum = saved_memory(call, given.sum, {options.out, max}, rows(), "sum");
    call.problem.max = max.data();
    call.problem.sum = sum.data();
    if (!recorded)
      call_options.saved->output = result.output.detach(), call_options.saved->max = max, call_options.saved->sum = sum;
  }
  std::shared_ptr<const DropoutTiles> dropout;
  if (call_options.dropout_p > 0) {
    const DropoutTiles::Shape shape{p.batch * p.q_heads, p.q_rows, p.k_rows, kernel.query_tile_rows};
    dropout = std::make_shared<const DropoutTiles>(call_options.dropout_p, shape, call_options.generator);
  }
  trace(call, plan);
  run_attention(call, kernel, dropout.get(), weights ? &*weights : nullptr);
  if (call.score_callback) call.score_callback->rethrow();
  if (aside) copy_values(call.with_heads(result.output), other);
  if (weights) {
    result.weights = shown_weights(call, options.weights, weights->values).to(call.dtype());
    if (weights->keys.defined()) result.weight_keys = shown_weights(call, options.weights, weights->keys);
    if (call_options.saved != nullptr) call_options.saved->weight_keys = weights->keys;
  }
  if (recorded && (call_options.cached != nullptr || p.score_callback.call != nullptr)) {
    record({"AttentionBackward0", call.inputs(), {}}, {result.output, result.weights, result.logsumexp},
           [function = call.function](const Backward&) -> Gradients {
             throw ValueError(std::string(function) +
                              ": a score_callback has no gradient; write it as a score_mod, which has one");
           });
  } else if (recorded) {
    SavedAttention saved{.output = written.detach(), .max = max, .sum = sum, .dropout = dropout};
    if (weights) saved.weight_keys = weights->keys;
    record_attention(std::move(call), std::move(saved), result);
  }
  return result;
}

/// Returns the output of a call that attention_forward computed before, with the gradient history of a recorded call.
/// The weights and the logsumexp have only shape and history.
AttentionResult resumed(Call& call, bool recorded, const AttentionOptions& options, const AttentionSaved& saved) {
  const kernels::AttentionProblem& p = call.problem;
  if (options.dropout_p > 0)
    describe_dropout(options.dropout_p, saved.dropout_seed, call.dtype() == Dtype::f64, call.problem);
  SavedAttention rows = checked_saved(call, saved);
  AttentionResult result{.output = saved.output.detach(),
                         .weights = {},
                         .logsumexp = empty(call.shown({p.batch, p.q_heads, p.q_rows}), call.compute_dtype()),
                         .dropout_seed = saved.dropout_seed,
                         .plan = {}};
  if (!(options.weights == Weights::none))
    result.weights =
        shown_weights(call, options.weights, empty(returned_sizes(call, options.weights), call.compute_dtype()))
            .to(call.dtype());
  if (recorded) record_attention(std::move(call), std::move(rows), result);
  return result;
}

}  // namespace

AttentionResult attention_call(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                               const CallOptions& call_options) {
  const runtime::DefaultFloatingPoint floating_point;
  Call call = check(call_options.function, q, k, v, options, call_options.cached, call_options.rows_at_end);
  call.problem.first_head = call_options.first_head;
  Plan plan;
  const AttentionKernel& kernel = plan_attention(call.problem, plan);
  const bool recorded = call_options.saved == nullptr && grad_enabled() && call.wants_grad();
  const bool as_recorded =
      recorded || call_options.resumed != nullptr || (call_options.saved != nullptr && call_options.saved->exact);
  const bool halves = call.dtype() != call.compute_dtype();
  if ((halves && call.bias.products != nullptr) ||
      better_in_f32(kernel, call.problem, as_recorded || options.score.kind == Score::Kind::general))
    return attention_in_f32(q, k, v, options, call_options);
  if (call_options.resumed != nullptr) return resumed(call, recorded, options, *call_options.resumed);
  return computed(call, {kernel, plan, recorded}, options, call_options);
}

AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  return attention_call(q, k, v, options, {});
}

}  // namespace attn
