// src/attention/recurrent/check.cc: checks a call of linear attention with a state.
#include <attn/ops.h>

#include "attention/recurrent/call.h"
#include "runtime/format.h"
#include "tensor/defined.h"
#include "tensor/element.h"

#include <cmath>

namespace attn {
namespace {

bool is_float(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::f64 || dtype == Dtype::bf16 || dtype == Dtype::f16;
}

struct Checks {
  const char* function;

  void operand(const char* name, const Tensor& x) const {
    check_defined(function, name, x);
    if (x.dim() != 4)
      throw ShapeError(
          runtime::format("{}: {} has shape {}; it must be [B, H, T, D]", function, name, to_string(x.sizes())));
  }
  void floating(const char* name, const Tensor& x) const {
    if (!is_float(x.dtype()))
      throw DtypeError(
          runtime::format("{}: {} is {}; it must be f32, f64, bf16 or f16", function, name, name_of(x.dtype())));
  }
  void shape(const char* name, const Tensor& x, const Dims& wanted) const {
    if (!(x.sizes() == wanted))
      throw ShapeError(runtime::format("{}: {} has shape {}; it must be {}", function, name, to_string(x.sizes()),
                                       to_string(wanted)));
  }
  void same_dtype(const char* name, const Tensor& x, const Tensor& q) const {
    if (x.dtype() != q.dtype())
      throw DtypeError(
          runtime::format("{}: {} is {}; it must be {} as q", function, name, name_of(x.dtype()), name_of(q.dtype())));
  }
  std::vector<std::int64_t> integers(const char* name, const Tensor& x) const {
    if (x.dtype() != Dtype::i64 && x.dtype() != Dtype::i32)
      throw DtypeError(runtime::format("{}: {} is {}; it must be i64 or i32", function, name, name_of(x.dtype())));
    return x.to_int_vector();
  }
};

void set_sequences(const Checks& check, RecurrentCall& call, const LinearAttentionOptions& options) {
  if (options.cu_seqlens.defined()) {
    if (options.lengths.defined())
      throw ValueError(
          runtime::format("{}: both lengths and cu_seqlens are given; packed sequences have their lengths "
                          "from cu_seqlens",
                          check.function));
    const std::vector<std::int64_t> starts = check.integers("cu_seqlens", options.cu_seqlens);
    if (options.cu_seqlens.dim() != 1 || starts.empty() || call.batch != 1)
      throw ShapeError(runtime::format("{}: cu_seqlens has shape {} and q a batch of {}; they must be [N + 1] and 1",
                                       check.function, to_string(options.cu_seqlens.sizes()), call.batch));
    for (std::size_t s = 0; s < starts.size(); ++s)
      if (starts[s] < (s == 0 ? 0 : starts[s - 1]) || starts[s] > call.rows || (s == 0 && starts[s] != 0))
        throw ValueError(runtime::format("{}: cu_seqlens[{}] is {}; it must ascend from 0 to {}, the number of rows",
                                         check.function, s, starts[s], call.rows));
    if (starts.back() != call.rows)
      throw ValueError(runtime::format("{}: cu_seqlens ends with {}; it must end with {}, the number of rows",
                                       check.function, starts.back(), call.rows));
    for (std::size_t s = 0; s + 1 < starts.size(); ++s)
      call.sequences.push_back({.item = 0, .first = starts[s], .rows = starts[s + 1] - starts[s]});
  } else {
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(call.batch), call.rows);
    if (options.lengths.defined()) {
      lengths = check.integers("lengths", options.lengths);
      check.shape("lengths", options.lengths, {call.batch});
    }
    for (std::int64_t b = 0; b < call.batch; ++b) {
      const std::int64_t rows = lengths[static_cast<std::size_t>(b)];
      if (rows < 0 || rows > call.rows)
        throw ValueError(runtime::format("{}: lengths[{}] is {}; it must be from 0 to {}, the number of rows",
                                         check.function, b, rows, call.rows));
      call.sequences.push_back({.item = b, .first = 0, .rows = rows});
    }
  }
  for (RecurrentSequence& sequence : call.sequences) {
    sequence.chunk = call.chunks;
    call.chunks += sequence.chunks();
  }
}

/// Returns x with adjacent elements in its last dim.
Tensor adjacent(const Tensor& x) { return x.stride(-1) == 1 || x.size(-1) <= 1 ? x.detach() : x.detach().contiguous(); }

}  // namespace

Tensor as_read(const Tensor& x, Dtype compute) {
  return compute_dtype(x.dtype()) == compute ? x.detach() : x.detach().to(compute);
}

RecurrentCall check_recurrent(const char* function, const Tensor& q, const Tensor& k, const Tensor& v,
                              const LinearAttentionOptions& options) {
  const Checks check{function};
  check.operand("q", q);
  check.operand("k", k);
  check.operand("v", v);
  check.floating("q", q);
  check.same_dtype("k", k, q);
  check.same_dtype("v", v, q);
  check.shape("k", k, q.sizes());
  RecurrentCall call{.q = adjacent(q), .k = adjacent(k), .v = adjacent(v)};
  call.compute = compute_dtype(q.dtype());
  call.batch = q.size(0);
  call.k_heads = q.size(1);
  call.rows = q.size(2);
  call.dim = q.size(3);
  call.v_heads = v.size(1);
  call.value_dim = v.size(3);
  if (v.size(0) != call.batch || v.size(2) != call.rows)
    throw ShapeError(runtime::format("{}: v has shape {}; its batch and rows must be those of q {}", function,
                                     to_string(v.sizes()), to_string(q.sizes())));
  if (call.k_heads == 0 || call.v_heads % call.k_heads != 0)
    throw ShapeError(runtime::format("{}: v has {} heads and k {}; those of v must be a multiple of those of k",
                                     function, call.v_heads, call.k_heads));
  if (call.dim == 0 || call.value_dim == 0)
    throw ShapeError(runtime::format("{}: q has shape {} and v {}; their last dims must not be 0", function,
                                     to_string(q.sizes()), to_string(v.sizes())));
  const Dims rows{call.batch, call.v_heads, call.rows};
  if (options.g.defined()) {
    check.floating("g", options.g);
    Dims channels = rows;
    channels.push_back(call.dim);
    if (options.g.dim() == 1) {
      check.shape("g", options.g, {call.v_heads});
      call.g = as_read(options.g, call.compute).reshape({1, call.v_heads, 1}).expand(rows);
    } else {
      if (options.g.dim() == 4) check.shape("g", options.g, channels);
      else check.shape("g", options.g, rows);
      const Tensor g = as_read(options.g, call.compute);
      call.g = options.g.dim() == 4 ? adjacent(g) : g;
    }
    call.decay = options.g.dim() == 4 ? kernels::Decay::channel : kernels::Decay::scalar;
  }
  if (options.beta.defined()) {
    check.floating("beta", options.beta);
    check.shape("beta", options.beta, rows);
    call.beta = as_read(options.beta, call.compute);
  }
  call.l2norm = options.l2norm;
  call.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(call.dim)));
  if (!std::isfinite(call.scale))
    throw ValueError(runtime::format("{}: scale is {}; it must be finite", function, call.scale));
  set_sequences(check, call, options);
  if (options.initial_state.defined()) {
    check.floating("initial_state", options.initial_state);
    check.shape("initial_state", options.initial_state, call.state_sizes());
    call.initial = options.initial_state.detach().to(call.compute).contiguous();
  }
  return call;
}

}  // namespace attn
