// src/ranks/stripes_backward.cc: the backward pass of rows in stripes, in two passes, so that no sum crosses ranks: the
// keys pass by for dQ, then the rows for dK and dV.
#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/runtime.h>

#include "attention/lower.h"
#include "attention/schedule/backward_plan.h"
#include "attention/schedule/partial_backward.h"
#include "attention/score/dropout.h"
#include "ranks/stripes.h"
#include "ranks/stripes_call.h"
#include "runtime/floating_point.h"
#include "runtime/format.h"
#include "runtime/memory.h"
#include "runtime/parallel.h"
#include "runtime/thread_scratch.h"
#include "tensor/build.h"

#include <cstring>
#include <memory>
#include <optional>

namespace attn {
namespace {

constexpr const char* backward_name = "rank_attention_backward";

void check_stripe_rows(const Tensor& x, const Dims& sizes, Dtype dtype, const char* name) {
  if (!x.defined()) throw ValueError(runtime::format("{}: {} is undefined; it is needed", backward_name, name));
  if (!(x.sizes() == sizes))
    throw ShapeError(runtime::format("{}: {} has shape {}; it must be {}", backward_name, name, to_string(x.sizes()),
                                     to_string(sizes)));
  if (x.dtype() != dtype)
    throw DtypeError(
        runtime::format("{}: {} is {}; it must be {}", backward_name, name, name_of(x.dtype()), name_of(dtype)));
}

/// The operands of both passes, in the dtype that the kernels read, and the results of this rank.
struct StripesBackward {
  StripesCall call;
  BackwardPlan plan;
  Dtype stored = Dtype::f32, computed = Dtype::f32;
  Tensor output, doutput, dlogsumexp, max, sum;
  Tensor dq, dk, dv, dq_totals, delta, block_sums;
  bool k = true, v = true, sinks = false;
  std::unique_ptr<void, void (*)(void*)> key_totals{nullptr, runtime::deallocate};
  std::optional<StripeStream> keys, rows;

  void prepare(const Tensor& q, const Tensor& k_rows, const Tensor& v_rows, std::int64_t length, const Ranks& ranks,
               const AttentionOptions& options, const AttentionSaved& saved, const AttentionBackwardOptions& wanted);
  void allocate(const Ranks& ranks);
  kernels::AttentionGradient gradient() const;
  std::int64_t heads_of_unit() const {
    const kernels::AttentionProblem& p = call.whole.problem;
    return p.q_heads == 0 ? 0 : p.q_heads / PartialKeys::units(p);
  }
};

void StripesBackward::prepare(const Tensor& q, const Tensor& k_rows, const Tensor& v_rows, std::int64_t length,
                              const Ranks& ranks, const AttentionOptions& options, const AttentionSaved& saved,
                              const AttentionBackwardOptions& wanted) {
  AttentionOptions forward = options;
  forward.out = {};
  const bool half = q.defined() && (q.dtype() == Dtype::bf16 || q.dtype() == Dtype::f16);
  if (half) forward.bias = in_f32(options.bias);
  call = check_stripes_call(backward_name, q, k_rows, v_rows, length, ranks, forward);
  kernels::AttentionProblem& p = call.whole.problem;
  if (wanted.bias && !options.bias.empty())
    throw ValueError(
        runtime::format("{}: the gradient of a bias is wanted, which the layout stripes does not do: set "
                        "`bias` to false",
                        backward_name));
  if (wanted.grad_q.defined() || wanted.grad_k.defined() || wanted.grad_v.defined())
    throw ValueError(
        runtime::format("{}: memory for a gradient is given, which the layout stripes does not take", backward_name));
  computed = call.whole.compute_dtype();
  plan = plan_backward(p);
  stored = plan.kernel != nullptr && call.q.dtype() == Dtype::bf16 ? call.q.dtype() : computed;
  const bool wide_output = saved.exact && saved.output.defined() && saved.output.dtype() == computed;
  check_stripe_rows(saved.output, call.rows(p.value_dim), wide_output ? computed : q.dtype(), "saved.output");
  check_stripe_rows(saved.max, call.numbers(), computed, "saved.max");
  check_stripe_rows(saved.sum, call.numbers(), computed, "saved.sum");
  check_stripe_rows(wanted.grad_output, call.rows(p.value_dim), wanted.grad_output.defined() ? q.dtype() : computed,
                    "grad_output");
  if (wanted.grad_logsumexp.defined()) {
    check_stripe_rows(wanted.grad_logsumexp, call.numbers(), wanted.grad_logsumexp.dtype(), "grad_logsumexp");
    dlogsumexp = wanted.grad_logsumexp.detach().to(computed).contiguous();
  }
  const auto read = [&](const Tensor& x) { return in_adjacent_rows(x.detach().to(stored)); };
  call.q = read(call.q), call.k = read(call.k), call.v = read(call.v);
  output = read(saved.output), doutput = read(wanted.grad_output);
  max = saved.max.detach().contiguous(), sum = saved.sum.detach().contiguous();
  p.element = stored == Dtype::bf16  ? kernels::Element::bf16
              : stored == Dtype::f64 ? kernels::Element::f64
                                     : kernels::Element::f32;
  p.k.element = p.v.element = p.element;
  plan = plan_backward(p);
  k = wanted.k, v = wanted.v, sinks = wanted.sinks && p.sinks != nullptr;
  if (options.dropout_p > 0) describe_dropout(options.dropout_p, saved.dropout_seed, computed == Dtype::f64, p);
  call.text +=
      runtime::format(", saved {}{}, dropout of seed {}, gradients of q{}{}{}{}, in {}", name_of(saved.output.dtype()),
                      saved.exact ? " exactly" : "", saved.dropout_seed, k ? ", k" : "", v ? ", v" : "",
                      sinks ? ", sinks" : "", dlogsumexp.defined() ? ", from the logsumexp too" : "", name_of(stored));
}

void StripesBackward::allocate(const Ranks& ranks) {
  const kernels::AttentionProblem& p = call.whole.problem;
  const auto bytes = [](std::int64_t width, Dtype dtype) { return static_cast<std::size_t>(width) * size_of(dtype); };
  keys.emplace(ranks, call.stripes,
               std::vector<StripeStream::Array>{{planes_of(call.k), bytes(p.dim, stored)},
                                                {planes_of(call.v), bytes(p.value_dim, stored)}});
  dq = empty(call.q.sizes(), stored);
  if (k) dk = empty(call.k.sizes(), stored);
  if (v) dv = empty(call.v.sizes(), stored);
  delta = empty(call.numbers(), computed);
  if (keys->chunks() > 1) dq_totals = empty(call.q.sizes(), computed);
  const std::int64_t blocks = Stripes::blocks_of(call.own);
  if (sinks) block_sums = empty({p.batch, blocks, p.q_heads, kernels::parameter_count(p)}, computed);
  if (!k && !v) return;

  // the heads of a unit follow each other: round n has the nth of each
  const std::int64_t rounds = heads_of_unit(), units = p.q_heads == 0 ? 0 : PartialKeys::units(p);
  if (rounds == 0) {  // no query head: nothing passes by
    for (const Tensor& x : {dk, dv})
      if (x.defined()) copy_values(x, zeros({}, stored));
    return;
  }
  const auto array = [&](const Tensor& x, std::size_t row_bytes) {
    StripeStream::Array result{{}, row_bytes};
    for (std::int64_t n = 0; n < rounds; ++n)
      for (std::int64_t b = 0; b < p.batch; ++b)
        for (std::int64_t unit = 0; unit < units; ++unit)
          result.planes.push_back(static_cast<const char*>(x.data()) +
                                  (b * x.stride(0) + (unit * rounds + n) * x.stride(1)) *
                                      static_cast<std::int64_t>(size_of(x.dtype())));
    return result;
  };
  rows.emplace(ranks, call.stripes,
               std::vector<StripeStream::Array>{
                   array(call.q, bytes(p.dim, stored)), array(doutput, bytes(p.value_dim, stored)),
                   array(max, bytes(1, computed)), array(sum, bytes(1, computed)), array(delta, bytes(1, computed))},
               rounds);
  kernels::AttentionGradient g = gradient();
  g.problem.k_rows = call.own;
  if (const std::size_t totals = PartialKeys::totals_bytes(g, plan); totals != 0)
    key_totals.reset(runtime::allocate(static_cast<std::size_t>(p.batch * units) * totals));
}

/// Returns the gradient of this rank's rows, without keys.
kernels::AttentionGradient StripesBackward::gradient() const {
  kernels::AttentionGradient g;
  g.problem = call.problem();
  g.problem.out = output.data();
  g.problem.max = max.data(), g.problem.sum = sum.data();
  g.dout = doutput.data();
  g.dlogsumexp = dlogsumexp.defined() ? dlogsumexp.data() : nullptr;
  for (int d = 0; d < 3; ++d) g.problem.out_stride[d] = output.stride(d), g.dout_stride[d] = doutput.stride(d);
  return g;
}

void set_gradient(void*& data, std::int64_t (&stride)[3], const Tensor& x) {
  if (!x.defined()) return;
  data = x.data();
  for (int d = 0; d < 3; ++d) stride[d] = x.stride(d);
}

/// Runs the tasks of a chunk in groups, between which messages can move.
template <typename Part>
void run_tasks(const Part& part, std::int64_t group, StripeStream& stream) {
  const std::size_t bytes = part.scratch_bytes();
  for (std::int64_t first = 0; first < part.tasks(); first += group) {
    runtime::parallel_for(std::min(group, part.tasks() - first),
                          [&](std::int64_t n) { part.run(first + n, runtime::thread_scratch(bytes)); });
    stream.progress();
  }
}

/// dQ of this rank's rows: the keys pass by.
void gradients_of_rows(StripesBackward& back, const Ranks& ranks) {
  kernels::AttentionGradient g = back.gradient();
  kernels::AttentionProblem& p = g.problem;
  set_gradient(g.dq, g.dq_stride, back.dq);
  StripeStream& stream = *back.keys;
  std::exception_ptr failure;  // this rank then takes part without computing, until all agree
  stream.start();
  while (stream.next()) {
    const Span keys = stream.rows();
    set_chunks(p, stream.plane(0, 0), stream.plane(1, 0), keys.size());
    g.rows = {back.dq_totals.defined() ? back.dq_totals.data() : nullptr, back.delta.data(), stream.is_first(),
              stream.is_last()};
    g.parameters = back.sinks && stream.is_last() ? back.block_sums.data() : nullptr;
    const CallPart part = back.call.own_rows(ranks, keys.begin);
    if (!failure) failure = failure_of([&] { run_tasks(PartialRows(g, back.plan, part), 8 * num_threads(), stream); });
  }
  ranks.agree(failure);
}

/// dK and dV of this rank's keys: the rows pass by, once for each head of a group.
void gradients_of_keys(StripesBackward& back, const Ranks& ranks) {
  kernels::AttentionGradient g = back.gradient();
  kernels::AttentionProblem& p = g.problem;
  p.out = nullptr, g.dlogsumexp = nullptr;
  p.k.base = back.call.k.data(), p.k.row_stride = p.dim;
  p.v.base = back.call.v.data(), p.v.row_stride = p.value_dim;
  for (int d = 0; d < 2; ++d) p.k_stride[d] = back.call.k.stride(d), p.v_stride[d] = back.call.v.stride(d);
  p.k_rows = back.call.own;
  set_gradient(g.dk, g.dk_stride, back.dk);
  set_gradient(g.dv, g.dv_stride, back.dv);
  StripeStream& stream = *back.rows;
  const std::int64_t units = PartialKeys::units(p), each = back.heads_of_unit();
  const auto size = static_cast<std::int64_t>(size_of(back.computed));
  PartialKeys::Chunk chunk{.totals = static_cast<float*>(back.key_totals.get())};
  chunk.place = [&](kernels::AttentionGradient& to, std::int64_t b, std::int64_t h) {
    const auto plane = static_cast<std::size_t>(b * units + h / each);
    // kernels count the numbers of a row from those of batch item 0, head 0
    const std::int64_t before = (b * p.q_heads + h) * p.q_rows * size;
    const auto numbers = [&](std::size_t array) { return stream.plane(array, plane) - before; };
    to.problem.q = stream.plane(0, plane), to.dout = stream.plane(1, plane);
    to.problem.max = numbers(2), to.problem.sum = numbers(3), to.rows.delta = numbers(4);
    to.problem.q_stride[0] = to.problem.q_stride[1] = to.dout_stride[0] = to.dout_stride[1] = 0;
    to.problem.q_stride[2] = p.dim, to.dout_stride[2] = p.value_dim;
  };
  g.rows.delta = back.delta.data();
  std::exception_ptr failure;
  stream.start();
  while (stream.next()) {
    const Span rows = stream.rows();
    p.q_rows = rows.size();
    chunk.begins = stream.is_first(), chunk.ends = stream.is_last(), chunk.head_of_unit = stream.round();
    const CallPart part{.whole = &back.call.whole.problem,
                        .first_row = rows.begin,
                        .first_key = ranks.rank() * Stripes::block,
                        .key_block_step = back.call.stripes.step()};
    if (failure || back.call.own == 0) continue;
    failure =
        failure_of([&] { run_tasks(PartialKeys(g, back.plan, part, chunk, num_threads()), num_threads(), stream); });
  }
  ranks.agree(failure);
}

/// Adds the block sums of all ranks: batch items ascending, and in each its blocks of rows ascending.
template <typename T>
Tensor add_blocks(const StripesBackward& back, const Ranks& ranks) {
  const kernels::AttentionProblem& p = back.call.whole.problem;
  const std::int64_t count = kernels::parameter_count(p), blocks = Stripes::blocks_of(back.call.stripes.length);
  const Tensor& own = back.block_sums;
  const std::vector<std::string> all =
      ranks.gather({static_cast<const char*>(own.data()), static_cast<std::size_t>(own.numel()) * sizeof(T)});
  const Tensor sums = zeros({p.q_heads}, back.computed);
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t n = 0; n < blocks; ++n) {
      const std::string& from = all[static_cast<std::size_t>(n % ranks.size())];
      const std::int64_t owned = Stripes::blocks_of(back.call.stripes.rows_of(static_cast<int>(n % ranks.size())));
      for (std::int64_t h = 0; h < p.q_heads; ++h) {
        T value;
        std::memcpy(&value,
                    from.data() +
                        static_cast<std::size_t>(((b * owned + n / ranks.size()) * p.q_heads + h) * count) * sizeof(T),
                    sizeof value);
        sums.data<T>()[h] += value;
      }
    }
  return sums;
}

}  // namespace

AttentionGradients attention_backward_by_stripes(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t length,
                                                 const Ranks& ranks, const AttentionOptions& options,
                                                 const AttentionSaved& saved, const AttentionBackwardOptions& wanted) {
  const runtime::DefaultFloatingPoint floating_point;
  const NoGrad no_grad;
  StripesBackward back;
  ranks.agree(failure_of([&] { back.prepare(q, k, v, length, ranks, options, saved, wanted); }));
  ranks.same("rank_attention_backward: the call", back.call.text);
  ranks.agree(failure_of([&] { back.allocate(ranks); }));
  gradients_of_rows(back, ranks);
  if (back.rows) gradients_of_keys(back, ranks);
  AttentionGradients result;
  result.bias.resize(options.bias.terms().size());
  if (back.sinks)
    result.sinks = back.computed == Dtype::f64 ? add_blocks<double>(back, ranks) : add_blocks<float>(back, ranks);
  const auto narrow = [&](const Tensor& x) {
    return !x.defined() || x.dtype() == q.dtype() ? x : add(x.to(q.dtype()), 0);  // + 0: -0 becomes +0
  };
  result.q = narrow(back.dq), result.k = narrow(back.dk), result.v = narrow(back.dv);
  return result;
}

}  // namespace attn
