// src/attention/backward.cc: runs the backward pass: prepares the operands, plans, allocates, runs the steps and sums
// their results.
#include "attention/backward.h"

#include <attn/ops.h>
#include <attn/runtime.h>

#include "runtime/format.h"

#include "attention/element.h"
#include "attention/relative/relative_terms.h"
#include "kernels/attention/kv_rows.h"
#include "runtime/memory.h"
#include "runtime/thread_scratch.h"
#include "runtime/parallel.h"
#include "runtime/shares.h"
#include "runtime/trace.h"
#include "tensor/build.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>

namespace attn {
namespace {

using kernels::AttentionGradient;
using kernels::AttentionProblem;
using kernels::BiasOp;
using kernels::BiasTerm;

void copy_strides(const Tensor& x, std::int64_t (&stride)[3]) {
  for (int d = 0; d < 3; ++d) stride[d] = x.stride(d);
}

/// The operands of the backward kernels: q, k, v, the saved output and its gradient in the dtype that the kernels read;
/// the saved maximum and sum and the gradient of the logsumexp in the compute dtype.
struct Described {
  Tensor q, k, v, output, doutput, dlogsumexp;
  AttentionGradient gradient;

  Described(const Call& call, const SavedAttention& saved, const AttentionBackward& options, Dtype read) {
    const auto wide = [&](const Tensor& x) { return x.detach().to(read); };
    q = wide(call.q), k = wide(call.k), v = wide(call.v), output = wide(saved.output), doutput = wide(options.output);
    if (doutput.size(-1) > 1 && doutput.stride(-1) != 1) doutput = doutput.contiguous();
    if (options.logsumexp.defined()) dlogsumexp = options.logsumexp.detach().to(call.compute_dtype()).contiguous();
    AttentionProblem& p = gradient.problem;
    p = call.problem;
    p.element = p.k.element = p.v.element = element_of(read);
    p.q = q.data(), p.k.base = k.data(), p.v.base = v.data(), p.out = output.data();
    copy_strides(q, p.q_stride);
    copy_strides(output, p.out_stride);
    p.k.row_stride = k.stride(2), p.v.row_stride = v.stride(2);
    for (int d = 0; d < 2; ++d) p.k_stride[d] = k.stride(d), p.v_stride[d] = v.stride(d);
    p.max = saved.max.data(), p.sum = saved.sum.data();
    p.logsumexp = nullptr;
    p.copy_rows = kernels::collide(p.k, p.dim, p.k_rows) || kernels::collide(p.v, p.value_dim, p.k_rows);
    gradient.dout = doutput.data();
    copy_strides(doutput, gradient.dout_stride);
    gradient.dlogsumexp = dlogsumexp.defined() ? dlogsumexp.data() : nullptr;
  }
};

/// While tracing is on, writes one line per call, as the forward pass does.
void trace(const Call& call, const BackwardPlan& plan, bool wave) {
  if (!runtime::trace_enabled()) return;
  const AttentionProblem& p = call.problem;
  runtime::trace(runtime::format("{} backward {} B={} Hq={} Hk={} Hv={} Tq={} Tk={} D={} Dv={} mask={} kernel={} ({})",
                                 call.function, name_of(call.dtype()), p.batch, p.q_heads, p.k_heads, p.v_heads,
                                 p.q_rows, p.k_rows, p.dim, p.value_dim, call.mask.to_string(), plan.name,
                                 wave ? "rows in a wave" : "heads"));
}

/// The row ranges of the call (batch items, packed sequences or documents), and which of them may share keys.
struct Segments {
  std::vector<BackwardSegment> segments;
  std::vector<GradientGroup> groups;

  explicit Segments(const Call& call) {
    const AttentionProblem& p = call.problem;
    if (call.sequences.empty())
      for (std::int64_t b = 0; b < p.batch; ++b) segments.push_back({.batch = b, .rows_end = p.q_rows});
    for (const kernels::Sequence& sequence : call.sequences)
      segments.push_back({&sequence, sequence.inside ? call.program.inside.data() : nullptr, sequence.batch,
                          sequence.rows_begin, sequence.rows_end});
    const bool apart = call.sequences.empty() || keys_are_apart(call.sequences);
    std::int64_t block = 0;
    for (std::size_t n = 0; n < segments.size(); ++n) {
      segments[n].first_block = block;
      block += segments[n].blocks();
      if (n == 0 || apart || segments[n].batch != segments[n - 1].batch)
        groups.push_back({static_cast<std::int64_t>(n), 0, segments[n].first_block, 0});
      ++groups.back().segments;
      groups.back().blocks += segments[n].blocks();
    }
  }

  /// Returns whether every key belongs to at most one sequence.
  static bool keys_are_apart(const std::vector<kernels::Sequence>& sequences) {
    std::vector<std::array<std::int64_t, 3>> keys;
    for (const kernels::Sequence& sequence : sequences)
      if (sequence.keys_begin < sequence.keys_end)
        keys.push_back({sequence.batch, sequence.keys_begin, sequence.keys_end});
    std::sort(keys.begin(), keys.end());
    for (std::size_t n = 1; n < keys.size(); ++n)
      if (keys[n][0] == keys[n - 1][0] && keys[n][1] < keys[n - 1][2]) return false;
    return true;
  }
};

/// Computes dq, dk, dv, and for each block of rows its sums for the parameters' gradients. Gradients of relative
/// products are summed for a few groups of rows at a time, which are then computed one after another. `threads`: the
/// number at the start of the call, because another thread may change it meanwhile.
void run_steps(const BackwardSteps& steps, int threads, bool wave, RelativeGradients* products) {
  const std::size_t bytes = steps.scratch_bytes();
  const auto scratch = [bytes] { return static_cast<char*>(runtime::thread_scratch(bytes)); };
  const bool in_order = steps.in_order(threads);
  std::vector<runtime::Progress> progress(static_cast<std::size_t>(wave || in_order ? steps.steps() : 0));
  std::vector<std::atomic<std::uint32_t>> to_recompute(static_cast<std::size_t>(wave ? steps.units() : 0));
  const std::unique_ptr<void, void (*)(void*)> totals(wave ? runtime::allocate(steps.wave_bytes()) : nullptr,
                                                      runtime::deallocate);
  BackwardSteps::Wave all{progress.data(), to_recompute.data(), static_cast<char*>(totals.get())};
  const std::int64_t together = products == nullptr ? steps.groups() : products->groups_together();
  for (std::int64_t group = 0; group < steps.groups(); group += together) {
    const BackwardSteps::Part part = steps.part(group, std::min(together, steps.groups() - group));
    if (products != nullptr) products->begin_groups(group);
    const auto unit_of = [&](std::int64_t n) { steps.unit(part.first_unit + n, scratch()); };
    if (threads == 1) {  // one task, which keeps the units in order
      runtime::parallel_for(1, [&](std::int64_t) {
        for (std::int64_t n = 0; n < part.units; ++n) unit_of(n);
      });
    } else if (wave) {
      all.next = part.first_step;
      runtime::parallel_for(part.steps, [&](std::int64_t) { steps.wave_step(all, scratch()); });
      runtime::parallel_for(part.units, [&](std::int64_t n) { steps.recompute(all, part.first_unit + n, scratch()); });
    } else if (in_order) {
      all.next = part.first_unit;
      runtime::parallel_for(part.units, [&](std::int64_t) { steps.next_unit(all, scratch()); });
    } else {
      runtime::parallel_for_neighbours(part.units, unit_of);
    }
    if (products != nullptr) products->end_groups(part.groups);
  }
}

/// Sums the contributions to each parameter over a head's blocks of rows and batch items, in ascending order; returns
/// [parameters][Hq].
template <typename T>
std::vector<T> sum_parameters(const Tensor& sums) {
  const std::int64_t heads = sums.size(1), count = sums.size(2);
  std::vector<T> totals(static_cast<std::size_t>(count * heads), T(0));
  const T* from = sums.data<T>();
  for (std::int64_t block = 0; block < sums.size(0); ++block)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t n = 0; n < count; ++n) totals[static_cast<std::size_t>(n * heads + h)] += *from++;
  return totals;
}

template <typename T>
void share_parameters(const AttentionProblem& p, const Tensor& sums, FusedGradients& to, const LoweredBias& bias,
                      const std::vector<bool>& wanted) {
  const std::vector<T> totals = sum_parameters<T>(sums);
  const T* from = totals.data();
  const auto take = [&](Dims sizes, Dtype dtype) {
    const Tensor x = empty(sizes, sizeof(T) == 8 ? Dtype::f64 : Dtype::f32);
    std::copy_n(from, x.numel(), x.data<T>());
    from += x.numel();
    return x.to(dtype);
  };
  const Dtype computed = sizeof(T) == 8 ? Dtype::f64 : Dtype::f32;
  if (p.sinks != nullptr) to.sinks = take({p.q_heads}, computed);
  for (int n = 0; n < p.bias_count; ++n) {
    if (p.bias[n].op == BiasOp::dense) continue;
    const Tensor values =
        take(p.bias[n].op == BiasOp::slope ? Dims{p.q_heads} : Dims{p.bias[n].buckets, p.q_heads}, computed);
    if (wanted[bias.place_of(n)]) to.bias[bias.place_of(n)] = values;
  }
  from += kernels::step_lookups(p) * p.q_heads;
  if (p.score != kernels::ScoreOp::additive) return;
  to.additive_w = zeros({p.dim}, computed);  // summed over the heads in ascending order
  for (std::int64_t c = 0; c < p.dim; ++c)
    for (std::int64_t h = 0; h < p.q_heads; ++h) to.additive_w.data<T>()[c] += *from++;
}

/// Adds up the sums of all steps for each lookup of ScoreLine::step, in the order blocks of rows, then heads, both
/// ascending.
template <typename T>
void share_step_lookups(const AttentionProblem& p, const Tensor& sums, const std::vector<std::int64_t>& places) {
  const kernels::ScoreGradient& gradient = *p.score_gradient;
  const T* from = sums.data<T>() + kernels::parameters_before_lookups(p);
  const std::int64_t* place = places.data();
  for (std::int64_t step = 0; step < sums.size(0) * sums.size(1); ++step, from += sums.size(2)) {
    const T* sum = from;
    for (int n = 0; n < gradient.lookup_count; ++n)
      if (gradient.lookups[n].line == kernels::ScoreLine::step)
        static_cast<T*>(gradient.lookups[n].gradient)[*place++] += *sum++;
  }
}

/// Describes the memory to which kernels add the gradient of a dense bias.
kernels::DenseGradient dense_gradient(const Call& call, int term, const Tensor& sums) {
  kernels::DenseGradient to{.term = term, .data = sums.data()};
  std::copy_n(broadcast_to_scores(call.scores(), "a dense bias", sums).stride, 4, to.stride);
  return to;
}

}  // namespace

FusedGradients attention_backward(const Call& call, const SavedAttention& saved, const AttentionBackward& options) {
  const Dtype computed = call.compute_dtype();
  const int threads = num_threads();  // read once, because another thread may change it meanwhile
  FusedGradients result;
  LoweredScoreGradient expression;
  LoweredWeightGradient weight_expression;
  AttentionProblem problem = call.problem;
  const std::vector<Tensor> looked_up = call.looked_up();
  for (std::size_t n = 0; n < looked_up.size(); ++n)
    result.looked_up.push_back(options.looked_up.empty() || options.looked_up[n] ? zeros(looked_up[n].sizes(), computed)
                                                                                 : Tensor());
  if (call.score_mod && !problem.score_mod.empty()) {
    expression = lower_score_gradient(call.score_expression, call.score_mod->any_rows, result.looked_up, call.scores(),
                                      call.lengths, computed);
    problem.score_gradient = &expression.gradient;
  }
  if (call.normalizer && !call.normalizer->described.weight_mod.empty()) {
    const auto first = result.looked_up.end() - static_cast<std::ptrdiff_t>(call.normalizer->weight_mod.values.size());
    lower_weight_gradient(*call.normalizer, {first, result.looked_up.end()}, call.scores(), call.lengths, computed,
                          weight_expression);
    problem.normalization = &weight_expression.described;
  }
  const bool native = options.plan != nullptr ? options.plan->kernel->finish != nullptr
                                              : plan_backward(problem).kernel != nullptr &&
                                                    call.dtype() == Dtype::bf16 && call.bias.products == nullptr;
  const Dtype stored = native ? call.dtype() : computed;  // the dtype that kernels read and write
  Described described(call, saved, options, stored);
  AttentionGradient& g = described.gradient;
  g.problem.score_gradient = problem.score_gradient;
  g.along = options.along;
  g.problem.normalization = problem.normalization;
  const AttentionProblem& p = g.problem;
  std::vector<bool> bias = options.bias;
  bias.resize(call.bias.values.size(), options.bias.empty());
  const auto is_dense = [&](int n) { return p.bias[n].op == BiasOp::dense; };
  bool parameters = expression.gradient.step_count != 0 || (options.sinks && p.sinks != nullptr) ||
                    (options.additive_w && p.score == kernels::ScoreOp::additive);
  for (int n = 0; n < p.bias_count; ++n) parameters = parameters || (bias[call.bias.place_of(n)] && !is_dense(n));

  const BackwardPlan plan = options.plan != nullptr ? *options.plan : plan_backward(p);
  result.bias.resize(call.bias.values.size());
  const Segments segments(call);
  // units set every row of dq, and the rows of dk and dv of their keys; keys that belong to no sequence must start as 0
  const auto memory = [&](const Tensor& given, const Tensor& x) {
    const bool cleared = call.sequences.empty() && p.q_heads > 0;
    if (given.defined() && given.dtype() == stored) return cleared ? given : given.zero_();
    return cleared ? empty(x.sizes(), stored) : zeros(x.sizes(), stored);
  };
  result.q = memory(options.dq, call.q);
  if (options.k) result.k = memory(options.dk, call.k);
  if (options.v) result.v = memory(options.dv, call.v);
  g.dq = result.q.data();
  copy_strides(result.q, g.dq_stride);
  if (options.k) g.dk = result.k.data(), copy_strides(result.k, g.dk_stride);
  if (options.v) g.dv = result.v.data(), copy_strides(result.v, g.dv_stride);
  std::vector<kernels::DenseGradient> dense;
  for (int n = 0; n < p.bias_count; ++n) {
    const std::size_t place = call.bias.place_of(n);
    if (!bias[place] || !is_dense(n) || (call.bias.products != nullptr && call.bias.products->has(n))) continue;
    result.bias[place] = zeros(call.bias.values[place].sizes(), computed);
    dense.push_back(dense_gradient(call, n, result.bias[place]));
  }
  g.dense = dense.data(), g.dense_count = static_cast<int>(dense.size());
  std::unique_ptr<RelativeGradients> products;
  if (call.bias.products != nullptr)
    products = call.bias.products->gradients(
        {call.bias, g, bias, options.k, static_cast<std::int64_t>(segments.groups.size()), threads});
  BackwardSteps steps(g, plan, {segments.segments, segments.groups}, saved.dropout.get(), products.get());
  Tensor sums;
  if (parameters) {
    sums = empty({steps.blocks(), p.q_heads, kernels::parameter_count(p)}, computed);
    g.parameters = sums.data();
  }
  std::vector<std::int64_t> places(
      static_cast<std::size_t>(steps.blocks() * p.q_heads * expression.gradient.step_count));
  g.places = places.data();
  const bool wave = steps.is_wave(threads);
  if ((wave || steps.in_order(threads)) && p.q_heads > 0 && p.q_heads == std::gcd(p.k_heads, p.v_heads))
    // this thread's next head is `threads` heads later, because the other threads compute those in between
    steps.set_heads_ahead(threads);
  trace(call, plan, wave);
  run_steps(steps, threads, wave, products.get());
  if (parameters)
    computed == Dtype::f64 ? share_parameters<double>(p, sums, result, call.bias, bias)
                           : share_parameters<float>(p, sums, result, call.bias, bias);
  if (!places.empty())
    computed == Dtype::f64 ? share_step_lookups<double>(p, sums, places) : share_step_lookups<float>(p, sums, places);

  if (products != nullptr) {
    const std::vector<Tensor> found = products->finish(result.q, result.k);
    for (std::size_t n = 0; n < found.size(); ++n)
      if (found[n].defined()) result.bias[n] = found[n];
  }
  const auto narrow = [](Tensor& x, Dtype dtype) {
    if (x.defined() && x.dtype() != dtype) x = add(x.to(dtype), 0);  // + 0: values that round to -0 become +0
  };
  for (Tensor* x : {&result.q, &result.k, &result.v}) narrow(*x, call.dtype());
  // copies the results to the caller's memory if its dtype is not the one that the kernels write
  const auto into = [&](const Tensor& given, const Tensor& x) {
    if (given.defined() && given.dtype() != stored && x.defined()) copy_values(given, x.to(given.dtype()));
  };
  into(options.dq, result.q), into(options.dk, result.k), into(options.dv, result.v);
  for (std::size_t n = 0; n < result.bias.size(); ++n) narrow(result.bias[n], call.bias.values[n].dtype());
  for (std::size_t n = 0; n < result.looked_up.size(); ++n) narrow(result.looked_up[n], looked_up[n].dtype());
  return result;
}

}  // namespace attn
