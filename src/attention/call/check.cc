// src/attention/call/check.cc: checks a call; every check has the error text that the user reads.
#include "attention/call/check.h"

#include <attn/ops.h>

#include "runtime/enum_value.h"
#include "runtime/format.h"

#include "attention/element.h"
#include "attention/relative/relative_terms.h"
#include "attention/sequences.h"
#include "attention/score/projection.h"
#include "tensor/build.h"

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

std::string shape(const Tensor& x) { return to_string(x.sizes()); }

void check_tensors(const char* function, const Tensor& q, const Tensor& x, const char* name) {
  if (!x.defined()) throw ValueError(runtime::format("{}: {} is undefined", function, name));
  const TensorImpl &is = *x.impl(), &first = *q.impl();
  const Dtype dtype = is.dtype;
  const int rank = is.sizes.size(), q_rank = first.sizes.size();
  if (!is_floating(dtype))
    throw DtypeError(runtime::format("{}: {} is {}; it must be f32, f64, bf16 or f16", function, name, name_of(dtype)));
  if (rank < 2 || rank > 4)
    throw ShapeError(
        runtime::format("{}: {} has shape {}; it must be [B, H, T, D], [B, T, D] or [T, D]", function, name, shape(x)));
  if (dtype != first.dtype)
    throw DtypeError(
        runtime::format("{}: {} is {}; it must be {} as q", function, name, name_of(dtype), name_of(first.dtype)));
  if (rank != q_rank)
    throw ShapeError(runtime::format("{}: {} has shape {}; its rank must be {} to match q {}", function, name, shape(x),
                                     q_rank, shape(q)));
}

/// Makes the last dim contiguous, by a copy if needed.
void make_rows_contiguous(Tensor& x) {
  if (x.impl()->sizes.back() > 1 && x.impl()->strides.back() != 1) x = x.contiguous();
}

/// Return the batch size and the number of heads, as in the [B, H, T, D] view.
std::int64_t batch_of(const Dims& x, bool packed) { return x.size() == 4 || (x.size() == 3 && !packed) ? x[0] : 1; }
std::int64_t heads_of(const Dims& x, bool packed) { return x.size() == 4 || (x.size() == 3 && packed) ? x[1] : 1; }

void check_grouped(const char* function, const Tensor& q, const Tensor& x, const char* name, bool packed) {
  const Dims &q_sizes = q.impl()->sizes, &sizes = x.impl()->sizes;
  const std::int64_t batch = batch_of(q_sizes, packed);
  if (batch_of(sizes, packed) != batch)
    throw ShapeError(runtime::format("{}: {} has shape {}; its batch must be {} to match q {}", function, name,
                                     shape(x), batch, shape(q)));
  if (packed && batch != 1)
    throw ShapeError(runtime::format("{}: {} has shape {}; packed sequences are [total, H, D] or [1, H, total, D]",
                                     function, name, shape(x)));
  const std::int64_t heads = heads_of(q_sizes, packed), groups = heads_of(sizes, packed);
  if (heads != groups && (groups == 0 || heads % groups != 0))
    throw ShapeError(runtime::format("{}: {} has shape {}; its {} heads must divide the {} heads of q {}", function,
                                     name, shape(x), groups, heads, shape(q)));
}

void check_options(const char* function, const AttentionOptions& options, Dtype computed) {
  const auto in = [&](double x) { return computed == Dtype::f64 ? x : static_cast<double>(static_cast<float>(x)); };
  if (!(in(options.temperature) > 0) || std::isinf(in(options.temperature)))
    throw ValueError(
        runtime::format("{}: temperature is {}; it must be above 0, and finite", function, options.temperature));
  if (!(in(options.softcap) >= 0) || std::isinf(in(options.softcap)))
    throw ValueError(
        runtime::format("{}: softcap is {}; it must be above 0 and finite, or 0 for none", function, options.softcap));
  if (!(options.dropout_p >= 0 && options.dropout_p <= 1))
    throw ValueError(runtime::format("{}: dropout_p is {}; it must be from 0 to 1", function, options.dropout_p));
}

/// Rejects cu_seqlens together with options that it already implies, and with a cache, whose sequences have their own
/// lengths.
void check_packed(const char* function, const AttentionOptions& options, const CachedKv* cached) {
  if (cached != nullptr)
    throw ValueError(
        runtime::format("{}: cu_seqlens is given; the sequences of a cache have their own lengths", function));
  const std::pair<const char*, const Tensor&> lengths[] = {
      {"query_lengths", options.query_lengths}, {"key_lengths", options.key_lengths}, {"key_start", options.key_start}};
  for (const auto& [name, given] : lengths)
    if (given.defined())
      throw ValueError(
          runtime::format("{}: {} is given with cu_seqlens, which says where sequences begin and end", function, name));
}

Tensor checked_sinks(const char* function, const Tensor& sinks, std::int64_t heads, Dtype dtype) {
  if (!is_floating(sinks.dtype()))
    throw DtypeError(runtime::format("{}: sinks are {}; they must be floating", function, name_of(sinks.dtype())));
  if (sinks.dim() != 1 || sinks.size(0) != heads)
    throw ShapeError(runtime::format("{}: sinks have shape {}; they must be [{}], one for each query head", function,
                                     shape(sinks), heads));
  return sinks.to(dtype).contiguous();
}

void describe_query(const Tensor& q, kernels::AttentionProblem& problem) {
  const TensorImpl& rows = *q.impl();
  problem.element = element_of(rows.dtype);
  problem.dim = rows.sizes[3];
  problem.q = rows.data;
  for (int d = 0; d < 3; ++d) problem.q_stride[d] = rows.strides[d];
}

void describe_keys(const Tensor& x, kernels::KvRows& rows, std::int64_t (&stride)[2]) {
  const TensorImpl& given = *x.impl();
  rows.base = given.data;
  rows.element = element_of(given.dtype);
  rows.row_stride = given.strides[2];
  stride[0] = given.strides[0];
  stride[1] = given.strides[1];
}

void describe_cached(const CachedKv& cached, kernels::AttentionProblem& problem) {
  problem.k = cached.k;
  problem.v = cached.v;
  problem.k_stride[0] = problem.v_stride[0] = 0;
  problem.k_stride[1] = cached.k_head_stride;
  problem.v_stride[1] = cached.v_head_stride;
}

/// Begins a checked call: checks q, k and the score, which `check` and `check_scores` share.
Call begin(const char* function, const Tensor& q, const Tensor& k, const AttentionOptions& options) {
  check_tensors(function, q, q, "q");
  check_tensors(function, q, k, "k");
  const bool packed = options.cu_seqlens_q.defined() || options.cu_seqlens_k.defined();
  check_grouped(function, q, k, "k", packed);
  Call call;
  call.function = function;
  call.rank = q.impl()->sizes.size();
  call.packed = packed;
  call.q = viewed(q, packed);
  call.k = viewed(k, packed);
  check_score(function, q, k, call.q.impl()->sizes[1], options);
  return call;
}

void project_and_describe(Call& call, const AttentionOptions& options) {
  project(options.score, call.q, call.k);
  make_rows_contiguous(call.q);
  make_rows_contiguous(call.k);
  kernels::AttentionProblem& problem = call.problem;
  describe_query(call.q, problem);
  describe_keys(call.k, problem.k, problem.k_stride);
  problem.k_heads = call.k.impl()->sizes[1];
  problem.scale = score_scale(options, problem.dim);
  if (options.score.kind == Score::Kind::additive) {
    call.additive_w = options.score.w.reshape({-1}).to(call.compute_dtype()).contiguous();
    problem.score = kernels::ScoreOp::additive;
    problem.additive_w = call.additive_w.data();
  }
}

/// Converts negative row numbers (-1: the last row) to rows counted from the front. Invalid numbers stay;
/// returned_memory rejects them.
Weights from_front(Weights weights, std::int64_t rows) {
  if (weights.kind != Weights::row_subset || !weights.indices.defined() || !is_integral(weights.indices.dtype()))
    return weights;
  std::vector<std::int64_t> numbers = weights.indices.to_int_vector();
  for (std::int64_t& row : numbers)
    if (row < 0 && row >= -rows) row += rows;
  weights.indices = tensor<std::int64_t>(numbers, weights.indices.sizes());
  return weights;
}

/// Lowers the options. Each rarely used option costs only one test if it is not given, to keep a small call fast.
void lower_options(Call& call, const AttentionOptions& options, const ScoreShape& scores) {
  if (options.query_lengths.defined() || options.key_lengths.defined() || options.key_start.defined() ||
      options.query_start.defined())
    call.lengths =
        lower_lengths({options.query_lengths, options.key_lengths, options.key_start, options.query_start}, scores);
  if (options.weights.kind != Weights::none) {
    runtime::check_enum(options.weights.kind, Weights::largest, "{}: the kind of weights", scores.function);
    call.weights = from_front(options.weights, scores.q_rows);
  }
  if (!options.mask.is_all()) {
    call.mask = options.mask;
    call.program = lower_mask(options.mask, scores, call.lengths);
  }
  if (!options.bias.empty()) call.bias = lower_bias(options.bias, scores, call.lengths, call.dtype());
  if (!options.score_mod.empty()) {
    call.score_expression = options.score_mod;
    call.score_mod = lower_score(options.score_mod, scores, call.lengths, call.compute_dtype());
  }
  if (options.score_callback.function) call.score_callback.emplace(options.score_callback, scores, call.lengths);
}

ScoreShape score_shape(const Call& call) {
  const Dims& q = call.q.impl()->sizes;
  return {call.function, q[0], q[1], q[2], call.k.impl()->sizes[2], call.rank};
}

}  // namespace

Call check(const char* function, const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
           const CachedKv* cached, bool rows_at_end) {
  Call call = begin(function, q, k, options);
  check_tensors(function, q, v, "v");
  check_grouped(function, q, v, "v", call.packed);
  call.v = viewed(v, call.packed);
  make_rows_contiguous(call.v);
  ScoreShape scores = score_shape(call);
  scores.rows_at_end = rows_at_end;
  if (const std::int64_t v_rows = call.v.impl()->sizes[2]; v_rows != scores.k_rows)
    throw ShapeError(runtime::format("{}: v has shape {}; its {} rows must be {} to match k {}", function, shape(v),
                                     v_rows, scores.k_rows, shape(k)));
  check_options(function, options, call.compute_dtype());
  if (options.sinks.defined()) call.sinks = checked_sinks(function, options.sinks, scores.heads, call.compute_dtype());
  if (call.packed) {
    check_packed(function, options, cached);
    call.packs = lower_packed(scores, options.cu_seqlens_q, options.cu_seqlens_k);
    scores.packed = &call.packs;
  }
  lower_options(call, options, scores);

  project_and_describe(call, options);
  kernels::AttentionProblem& problem = call.problem;
  describe_scores(scores, call.lengths, problem);
  describe_mask(call.program, problem);
  if (call.packed) call.sequences = packed_sequences(call.packs, call.lengths.query_start);
  else if (call.program.documents >= 0)
    call.sequences = document_sequences(call.program.nodes[static_cast<std::size_t>(call.program.documents)], problem);
  describe_keys(call.v, problem.v, problem.v_stride);
  if (cached != nullptr) describe_cached(*cached, problem);
  problem.v_heads = call.v.impl()->sizes[1];
  problem.value_dim = call.v.impl()->sizes[3];
  problem.softcap = options.softcap;
  problem.temperature = options.temperature;
  problem.sinks = call.sinks.defined() ? call.sinks.data() : nullptr;
  problem.bias = call.bias.terms.data();
  problem.bias_count = static_cast<int>(call.bias.terms.size());
  if (call.bias.products != nullptr)
    call.bias.products->bind({function, call.q, call.k, problem.scale,
                              options.score.kind == Score::Kind::scaled_dot || options.score.kind == Score::Kind::dot,
                              cached != nullptr, call.packed});
  if (call.score_mod) {
    problem.score_mod = call.score_mod->any_rows.program;
    problem.score_mod_one_head = call.score_mod->one_head.program;
  }
  if (call.score_callback) problem.score_callback = call.score_callback->describe();
  return call;
}

Call check_scores(const char* function, const Tensor& q, const Tensor& k, const AttentionOptions& options) {
  Call call = begin(function, q, k, options);
  const ScoreShape scores = score_shape(call);
  project_and_describe(call, options);
  describe_scores(scores, {}, call.problem);
  call.problem.v_heads = call.problem.k_heads;
  return call;
}

}  // namespace attn
