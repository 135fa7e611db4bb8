// src/attention/tangent.cc: forward mode: checks the tangents of a call's operands, and runs the pass that computes
// those of its results.
#include "attention/tangent.h"

#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/runtime.h>

#include "runtime/format.h"

#include "attention/call/check.h"
#include "attention/element.h"
#include "attention/internal.h"
#include "attention/lower.h"
#include "attention/normalizer/lowered_normalizer.h"
#include "attention/schedule/backward_plan.h"
#include "attention/score/dropout.h"
#include "runtime/cpu.h"
#include "runtime/floating_point.h"
#include "runtime/memory.h"
#include "runtime/once.h"
#include "runtime/parallel.h"
#include "runtime/shares.h"
#include "runtime/thread_scratch.h"
#include "tensor/build.h"

#include <algorithm>

namespace attn {
namespace {

using kernels::AttentionProblem;
using kernels::AttentionTangent;
using kernels::TangentKernel;
using kernels::Task;

const TangentKernel& tangent_kernel_of(const AttentionProblem& p) {
  const kernels::TangentTarget* const target = tangent_target_here();
  if (target == nullptr || needs_reference(p)) return kernels::tangent_reference(kernels::reference());
  return p.element == kernels::Element::f64 ? target->f64 : target->f32;
}

/// Returns the bias terms that have a tangent, with its values.
Bias bias_of_tangents(const Bias& bias, const std::vector<Tensor>& tangents) {
  Bias result;
  for (std::size_t n = 0; n < tangents.size(); ++n)
    if (tangents[n].defined()) result = result + with_values(bias.terms()[n], tangents[n].detach());
  return result;
}

/// Runs a kernel for all rows of the call: blocks of 64 rows of a head are the tasks.
void run_tangent(const Call& call, const AttentionTangent& tangent, const TangentKernel& kernel) {
  std::vector<Task> blocks;
  for_each_sequence(call, tangent.call.problem, [&](const AttentionProblem& p, const Task& all) {
    const std::int64_t end = std::min(all.row + all.rows, p.rows_end(all));
    for (std::int64_t h = 0; h < p.q_heads; ++h)
      for (std::int64_t row = all.row; row < end; row += kernels::query_block)
        blocks.push_back(all.with_rows(h, row, std::min<std::int64_t>(kernels::query_block, end - row)));
  });
  const TangentKernel& reference = kernels::tangent_reference(kernels::reference());
  const std::size_t bytes = runtime::aligned(std::max(kernel.scratch_bytes(tangent), reference.scratch_bytes(tangent)));
  const AttentionProblem& whole = tangent.call.problem;
  const std::size_t keep_bytes =
      whole.drop_least != 0 ? static_cast<std::size_t>(kernels::query_block * whole.k_rows) : std::size_t{0};
  runtime::parallel_for_neighbours(static_cast<std::int64_t>(blocks.size()), [&](std::int64_t n) {
    Task rows = blocks[static_cast<std::size_t>(n)];
    auto* const memory = static_cast<char*>(runtime::thread_scratch(bytes + keep_bytes));
    AttentionTangent t = tangent;
    if (rows.sequence != nullptr && rows.sequence->inside) t.call.problem = inside_sequences(call, whole);
    if (kernel.draws && kernel.rows(t, rows, memory)) return;
    if (whole.drop_least != 0) {  // the reference code reads bytes
      auto* keep = reinterpret_cast<std::uint8_t*>(memory + bytes);
      draw_by_counter(whole, rows, keep);
      rows.keep = keep, rows.keep_stride = whole.k_rows, rows.first_row = rows.row;
    }
    (kernel.draws ? reference : kernel).rows(t, rows, memory);
  });
}

}  // namespace

const kernels::TangentTarget* tangent_target_here() {
  constinit static runtime::Once<const kernels::TangentTarget*> here;
  return here.get([] { return kernels::tangent_target(runtime::target().c_str()); });
}

void check_tangent(const char* function, const char* name, const Tensor& tangent, const Tensor& x) {
  if (!tangent.defined()) return;
  if (!x.defined())
    throw ValueError(runtime::format("{}: the tangent of {} is given and there are none in the call", function, name));
  if (!(tangent.sizes() == x.sizes()))
    throw ShapeError(runtime::format("{}: the tangent of {} has shape {}; it must be {} as {}", function, name,
                                     to_string(tangent.sizes()), to_string(x.sizes()), name));
  if (tangent.dtype() != x.dtype())
    throw DtypeError(runtime::format("{}: the tangent of {} is {}; it must be {} as {}", function, name,
                                     name_of(tangent.dtype()), name_of(x.dtype()), name));
}

void check_tangents(const char* function, const Tensor& q, const Tensor& k, const Tensor& v,
                    const AttentionOptions& options, const AttentionTangents& tangents) {
  check_tangent(function, "q", tangents.q, q);
  check_tangent(function, "k", tangents.k, k);
  check_tangent(function, "v", tangents.v, v);
  check_tangent(function, "sinks", tangents.sinks, options.sinks);
  const auto& terms = options.bias.terms();
  if (tangents.bias.size() > terms.size())
    throw ValueError(runtime::format("{}: {} bias tangents are given; the bias has {} terms", function,
                                     tangents.bias.size(), terms.size()));
  for (std::size_t n = 0; n < tangents.bias.size(); ++n)
    check_tangent(function, "a bias", tangents.bias[n], terms[n].values);
}

void check_supported(const char* function, const AttentionOptions& options) {
  const auto no = [&](const char* what) { throw ValueError(runtime::format("{}: {}", function, what)); };
  if (options.score.kind != Score::Kind::scaled_dot && options.score.kind != Score::Kind::dot)
    no("the score is general or additive; it must be the (scaled) dot product, or a score_mod of it");
  for (const Bias::Term& term : options.bias.terms())
    if (term.kind == Bias::Kind::product) no("a relative product is given; it has no tangent here");
  if (!(options.weights == Weights::none)) no("weights are requested; they have no tangent here");
  if (!is_plain_softmax(options)) no("a normalizer or a weight_mod is given; it has no tangent here");
  if (options.out.defined()) no("out is given; the results are always new");
}

void refuse_lost(const char* function, const Call& call, const AttentionTangents& tangents) {
  if (call.score_callback)
    throw ValueError(
        runtime::format("{}: a score_callback has no derivative; write it as a score_mod, which has one", function));
  bool wanted = call.wants_grad() || attn::wants_grad(tangents.bias);
  for (const Tensor* x : {&tangents.q, &tangents.k, &tangents.v, &tangents.sinks})
    wanted = wanted || attn::wants_grad(*x);
  if (wanted && grad_enabled())
    throw ValueError(runtime::format(
        "{}: an operand or a tangent requires a gradient, which the results do not have; call it under NoGrad",
        function));
}

Tensor detached_f32(const Tensor& x) { return x.defined() ? x.detach().to(Dtype::f32) : x; }

AttentionTangents detached_f32(const AttentionTangents& tangents) {
  AttentionTangents wide{
      detached_f32(tangents.q), detached_f32(tangents.k), detached_f32(tangents.v), tangents.sinks, {}};
  for (const Tensor& x : tangents.bias) wide.bias.push_back(detached_f32(x));
  return wide;
}

Tensor rows_as_read(const Call& call, const Tensor& x, const void*& data, std::int64_t (&stride)[3]) {
  if (!x.defined()) return {};
  Tensor rows = call.with_heads(x.detach());
  if (rows.size(-1) > 1 && rows.stride(-1) != 1) rows = rows.contiguous();
  data = rows.data();
  for (int d = 0; d < 3; ++d) stride[d] = rows.stride(d);
  return rows;
}

MovingCall::MovingCall(const Call& call, const SavedAttention& saved, const AttentionOptions& options,
                       const AttentionTangents& tangents)
    : bias(lower_bias(bias_of_tangents(options.bias, tangents.bias), call.scores(), call.lengths, call.dtype())) {
  AttentionProblem& p = tangent.call.problem;
  p = call.problem;
  p.out = saved.output.data(), p.max = saved.max.data(), p.sum = saved.sum.data();
  for (int d = 0; d < 3; ++d) p.out_stride[d] = saved.output.stride(d);
  p.logsumexp = nullptr;
  if (call.score_mod && !p.score_mod.empty()) {
    const std::vector<Tensor> none(call.score_mod->any_rows.values.size());
    expression = lower_score_gradient(call.score_expression, call.score_mod->any_rows, none, call.scores(),
                                      call.lengths, call.compute_dtype());
    p.score_gradient = &expression.gradient;
  }
  q = rows_as_read(call, tangents.q, tangent.dq, tangent.dq_stride);
  k = rows_as_read(call, tangents.k, tangent.dk, tangent.dk_stride);
  v = rows_as_read(call, tangents.v, tangent.dv, tangent.dv_stride);
  tangent.bias = bias.terms.data(), tangent.bias_count = static_cast<int>(bias.terms.size());
  if (!tangents.sinks.defined()) return;
  sinks = tangents.sinks.detach().to(call.compute_dtype()).contiguous();
  tangent.sinks = sinks.data();
}

AttentionResultTangents MovingCall::run(const Call& call, const TangentKernel* kernel) {
  const AttentionProblem& p = tangent.call.problem;
  // rows beyond the lengths, and those of no sequence, are 0
  AttentionResultTangents result{.output = zeros(call.shown_rows(p.value_dim), call.dtype()),
                                 .logsumexp = zeros({p.batch, p.q_heads, p.q_rows}, call.compute_dtype())};
  const Tensor rows = call.with_heads(result.output);
  tangent.out = rows.data(), tangent.logsumexp = result.logsumexp.data();
  for (int d = 0; d < 3; ++d) tangent.out_stride[d] = rows.stride(d);
  run_tangent(call, tangent, kernel != nullptr ? *kernel : tangent_kernel_of(p));
  result.logsumexp = result.logsumexp.reshape(call.shown(result.logsumexp.sizes()));
  return result;
}

AttentionResultTangents tangent_of(const Call& call, const SavedAttention& saved, const AttentionOptions& options,
                                   const AttentionTangents& tangents, const TangentKernel* kernel) {
  return MovingCall(call, saved, options, tangents).run(call, kernel);
}

AttentionResultTangents attention_tangent(const Tensor& q, const Tensor& k, const Tensor& v,
                                          const AttentionOptions& options, const AttentionSaved& saved,
                                          const AttentionTangents& tangents) {
  constexpr const char* function = "attention_tangent";
  const runtime::DefaultFloatingPoint floating_point;
  check_supported(function, options);
  Call call = check(function, q, k, v, options);
  check_tangents(function, q, k, v, options, tangents);
  refuse_lost(function, call, tangents);
  if (call.dtype() != call.compute_dtype())
    throw DtypeError(runtime::format("{}: q is {}; it must be f32 or f64 (attention_jvp takes 16 bits)", function,
                                     name_of(call.dtype())));
  const NoGrad no_grad;
  if (options.dropout_p > 0)
    describe_dropout(options.dropout_p, saved.dropout_seed, call.dtype() == Dtype::f64, call.problem);
  return tangent_of(call, checked_saved(call, saved), options, tangents);
}

AttentionJvp attention_jvp(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionTangents& tangents,
                           const AttentionOptions& options) {
  constexpr const char* function = "attention_jvp";
  const runtime::DefaultFloatingPoint floating_point;
  check_supported(function, options);
  const Call call = check(function, q, k, v, options);
  check_tangents(function, q, k, v, options, tangents);
  refuse_lost(function, call, tangents);
  const NoGrad no_grad;
  AttentionSaved saved;
  const AttentionResult primal = attention_forward(q, k, v, options, saved);
  AttentionJvp result{
      .output = primal.output, .logsumexp = primal.logsumexp, .tangent = {}, .dropout_seed = primal.dropout_seed};
  AttentionOptions same = options;
  if (options.dropout_p > 0) same.dropout_seed = primal.dropout_seed;
  if (call.dtype() == call.compute_dtype()) {
    result.tangent = attention_tangent(q, k, v, same, saved, tangents);
    return result;
  }
  // 16 bits: the tangent in f32, by a forward pass in f32
  same.bias = in_f32(options.bias);
  AttentionSaved in_f32;
  attention_forward(detached_f32(q), detached_f32(k), detached_f32(v), same, in_f32);
  result.tangent =
      attention_tangent(detached_f32(q), detached_f32(k), detached_f32(v), same, in_f32, detached_f32(tangents));
  result.tangent.output = add(result.tangent.output.to(q.dtype()), 0);  // + 0: values that round to -0 become +0
  return result;
}

}  // namespace attn
