// src/bench/work.cc: defines the call of each operation and counts its cost.
#include "bench/work.h"

#include <attn/linear_attention.h>
#include <attn/ops.h>
#include <attn/runtime.h>

#include "runtime/format.h"

#include "kernels/gemm/packed.h"
#include "kernels/gemm/product.h"
#include "verify/backward.h"
#include "verify/jvp.h"
#include "verify/run.h"
#include "verify/same.h"
#include "verify/spot.h"

namespace attn::bench {
namespace {

using cases::Case;
using cases::Inputs;

/// Limits of the copies of K and V that are read in turn. rotation_bytes: what the calls read in one rotation, many
/// times most last-level caches. most_bytes: the size of all copies together, which is larger if a mask hides most of
/// each.
constexpr std::int64_t rotation_bytes = std::int64_t{1} << 30, most_bytes = std::int64_t{1} << 32, most_caches = 128;
/// The largest number of (row, key) pairs for which the reference code checks the backward pass.
constexpr std::int64_t most_checked_pairs = std::int64_t{1} << 22;
/// K and V smaller than this do not show the speed of memory, so the read limit is sampled from other memory.
constexpr std::int64_t least_read = std::int64_t{1} << 23;

std::int64_t bytes_of(const Tensor& x) { return x.numel() * static_cast<std::int64_t>(size_of(x.dtype())); }

/// Returns the number of (row, key) pairs that are attended over all batch items, for one head; the mean over heads if
/// they have their own blocks of keys. It leaves out what packed sequences, lengths and mask expressions hide; a dense
/// mask counts as all pairs.
double seen_pairs(const Case& c, const AttentionOptions& options) {
  const auto count = [](const Tensor& seen) { return seen.to(Dtype::i64).sum().item(); };
  const bool masked = c.mask != "none" && c.mask != "bool";
  double pairs = 0;
  if (c.lengths == "packed") {
    const std::vector<std::int64_t> q = options.cu_seqlens_q.to_int_vector(), k = options.cu_seqlens_k.to_int_vector();
    for (std::size_t s = 0; s + 1 < q.size(); ++s)
      pairs += count(options.mask.dense(1, 1, q[s + 1] - q[s], k[s + 1] - k[s]));
    return pairs;
  }
  for (std::int64_t b = 0; b < c.batch; ++b) {
    const auto of_item = [&](const Tensor& x) { return x.defined() ? x.narrow(0, b, 1) : x; };
    const auto number = [&](const Tensor& x, std::int64_t otherwise) {
      return x.defined() ? x.to_int_vector()[static_cast<std::size_t>(b)] : otherwise;
    };
    const std::int64_t rows = number(options.query_lengths, c.q_rows), first = number(options.key_start, 0),
                       keys = std::max<std::int64_t>(0, number(options.key_lengths, c.k_rows) - first);
    if (!masked) {
      pairs += static_cast<double>(rows * keys);
      continue;
    }
    const Lengths lengths{of_item(options.query_lengths), of_item(options.key_lengths), of_item(options.key_start),
                          of_item(options.query_start)};
    const std::int64_t heads = c.mask.starts_with("blocks(") ? c.q_heads : 1;
    const Tensor seen = options.mask.dense(1, heads, c.q_rows, c.k_rows, lengths);
    pairs += count(seen.narrow(2, 0, rows).narrow(3, first, keys)) / static_cast<double>(heads);
    if (c.lengths == "none" && !c.is_cached()) return pairs * static_cast<double>(c.batch);  // all items are alike
  }
  return pairs;
}

}  // namespace

Work::Work(const Case& c) : case_(c), inputs_(cases::make_inputs(c)) {
  if ((c.is_attention() || c.is_backward()) && c.dim == 0)
    throw ValueError("bench: D is 0; there is nothing to measure");
  if (c.op == "matmul" && c.k == 0) throw ValueError("bench: K is 0; there is nothing to measure");
  if (c.is_backward()) prepare_backward();
  if (c.is_recurrent()) prepare_recurrent();
  if (c.is_jvp()) prepare_jvp();
  if (c.is_backward() || c.is_recurrent() || c.is_jvp()) {
    count();
    return;
  }
  if (c.is_attention()) {
    Dims sizes = inputs_.q.sizes();
    sizes[3] = c.value_dim;
    out_ = empty(sizes, c.dtype);
    inputs_.options.out = out_;
    if (inputs_.cached) cached_.push_back(inputs_.cached);
    function_ = [this] {
      if (!cached_.empty()) {
        const cases::Cached& rows = *cached_[turn_++ % cached_.size()];
        return attention_cached(inputs_.q, rows.cache, rows.sequences, cases::cached_options(inputs_.options)).output;
      }
      if (caches_.empty()) return attention(inputs_.q, inputs_.k, inputs_.v, inputs_.options).output;
      const auto& [k, v] = caches_[turn_++ % caches_.size()];
      return attention(inputs_.q, k, v, inputs_.options).output;
    };
  } else if (c.op == "matmul" && c.packed != 0) {
    if (inputs_.addend.defined() || c.dtype == Dtype::f16 || (c.dtype == Dtype::bf16 && !exists(Limit::dot_bf16)))
      throw ValueError(
          "bench: packed weights are of f32, f64, or bf16 where the processor multiplies its pairs, without an addend");
    out_ = empty({c.m, c.n}, c.dtype);
    function_ = [this, weights = kernels::PackedWeights(cases::gemm_problem(inputs_, out_))] {
      kernels::multiply_packed(cases::gemm_problem(inputs_, out_), weights);
      return out_;
    };
  } else if (inputs_.blocks) {
    out_ = empty({c.m, c.n}, c.dtype);
    function_ = [this] {
      kernels::multiply(cases::gemm_problem(inputs_, out_));
      return out_;
    };
  } else if (c.op == "matmul") {
    out_ = empty({c.m, c.n}, c.dtype);
    function_ = [this] {
      return inputs_.addend.defined() ? linear(inputs_.a, inputs_.b.transpose(0, 1), inputs_.addend, out_)
                                      : matmul(inputs_.a, inputs_.b, out_);
    };
  } else {
    // The inputs are a few units, as in a model. Far from 0, gelu and similar functions give denormals, which are slow.
    if (!c.op.ends_with("_norm")) inputs_.x = mul(inputs_.x, 0.25);
    out_ = empty(c.op == "sum" ? Dims{c.rows} : Dims{c.rows, c.n}, c.dtype);
    function_ = [this] { return cases::row_result(case_, inputs_, out_); };
  }
  const Tensor result = function_();
  cases::Inputs plain = inputs_;
  plain.options.out = {};
  if (const std::string what = cases::wrong_rows(c, plain, result); !what.empty())
    throw ValueError(runtime::format("bench: {}: {}", cases::to_line(c), what));
  count();
  if (c.op == "attention_decode") rotate();
}

void Work::call() { function_(); }

/// Checks all results if the reference code takes at most about a second.
void Work::check_all_results() const {
  if (case_.q_heads * case_.batch * case_.q_rows * case_.k_rows > most_checked_pairs) return;
  const cases::Results ours = cases::library_way(num_threads()).run(case_, inputs_);
  Case wide = case_;
  if (size_of(case_.dtype) == 2) wide.dtype = Dtype::f32;
  const cases::Results truth =
      cases::by_specification(wide, size_of(case_.dtype) == 2 ? cases::widened(inputs_) : inputs_);
  for (std::size_t n = 0; n < truth.size(); ++n) {
    const std::string what = size_of(case_.dtype) == 2 ? cases::is_far(ours[n], truth[n], case_.dtype)
                                                       : cases::bits_differ(ours[n], truth[n]);
    if (!what.empty()) throw ValueError(runtime::format("bench: {}: {}", cases::to_line(case_), what));
  }
}

/// Runs the forward pass once; a call then runs only the pass of forward mode.
void Work::prepare_jvp() {
  check_all_results();
  function_ = cases::jvp_pass(case_, inputs_);
}

/// Runs the forward pass once; a call then runs only the backward pass.
void Work::prepare_backward() {
  check_all_results();
  AttentionBackward into;
  into.dq = zeros_like(inputs_.q), into.dk = zeros_like(inputs_.k), into.dv = zeros_like(inputs_.v);
  function_ = [passed = std::make_shared<const cases::Differentiated>(inputs_), into] {
    return passed->backward(into).q;
  };
}

/// Runs the forward pass once for the backward pass, as prepare_backward. One head or channel is checked.
void Work::prepare_recurrent() {
  const Inputs& in = inputs_;
  if (case_.op == "causal_conv") {
    function_ = [in] { return causal_conv1d(in.x, in.weight, {.bias = in.bias, .silu = true}).output; };
  } else if (case_.is_recurrent_backward()) {
    LinearAttentionSaved saved;
    linear_attention_forward(in.q, in.k, in.v, in.recurrent, saved);
    function_ = [in, saved] {
      return linear_attention_backward(in.q, in.k, in.v, in.recurrent, saved, in.doutput, {}).q;
    };
  } else {
    function_ = [in] { return linear_attention(in.q, in.k, in.v, in.recurrent).output; };
  }
  if (const std::string what = cases::wrong_rows(case_, in, function_()); !what.empty())
    throw ValueError(runtime::format("bench: {}: {}", cases::to_line(case_), what));
}

/// Of the recurrences over the state: a decay, the delta rule, an update and a result a row; backward the first three
/// again, and in reverse four with two products of 64 rows. A convolution is counted by what it reads and writes.
double Work::recurrent_flops() const {
  const Case& c = case_;
  if (c.op == "causal_conv") return 0;
  const double decay = c.gate == "none" ? 0 : 1, delta = c.delta != 0 ? 2 : 0;
  const double of_state = c.is_recurrent_backward() ? 2 * decay + 2 * delta + 12 : decay + delta + 4;
  return of_state * static_cast<double>(c.batch * c.v_heads * c.q_rows) * static_cast<double>(c.dim * c.value_dim);
}

void Work::count() {
  const Case& c = case_;
  if (c.is_recurrent()) flops_ = recurrent_flops();
  if (c.score == "additive") flops_ = static_cast<double>(c.q_heads * c.channels) * seen_pairs(c, inputs_.options);
  else if (c.is_backward())
    flops_ = 2 * static_cast<double>(c.q_heads * (3 * c.dim + 2 * c.value_dim)) * seen_pairs(c, inputs_.options);
  else if (c.is_backward_tangent())  // with the pass of attention_jvp, which it begins with
    flops_ = 2 * static_cast<double>(c.q_heads * (10 * c.dim + 7 * c.value_dim)) * seen_pairs(c, inputs_.options);
  else if (c.op == "attention_jvp")
    flops_ = 2 * static_cast<double>(c.q_heads * (3 * c.dim + 2 * c.value_dim)) * seen_pairs(c, inputs_.options);
  else if (c.is_attention())
    flops_ = 2 * static_cast<double>(c.q_heads * (c.dim + c.value_dim)) * seen_pairs(c, inputs_.options);
  if (c.op == "matmul") flops_ = 2 * static_cast<double>(c.m) * static_cast<double>(c.n) * static_cast<double>(c.k);
  if (c.op == "attention_decode") {
    bytes_ = row_bytes();
    limit_ = Limit::read;
  } else if (c.op == "matmul" && c.m == 1) {
    bytes_ =
        inputs_.blocks ? static_cast<double>(inputs_.blocks->bytes.size()) : static_cast<double>(bytes_of(inputs_.b));
    limit_ = Limit::read;
  } else if (flops_ == 0) {
    bytes_ = static_cast<double>(bytes_of(inputs_.x) + (c.is_recurrent() ? bytes_of(inputs_.x) : bytes_of(out_)));
    limit_ = Limit::read;
  } else {
    limit_ = limit_of(c.is_recurrent() && size_of(c.dtype) == 2 ? Dtype::f32 : c.dtype);
  }
}

/// Returns the bytes of the keys and values that a call reads.
double Work::row_bytes() const {
  AttentionOptions all_rows = inputs_.options;  // a row less reads no key less
  all_rows.query_lengths = {};
  const double rows = seen_pairs(case_, all_rows) / static_cast<double>(case_.q_rows);
  const auto row = [&](std::int64_t heads, std::int64_t dim) {
    return static_cast<double>(heads) * (case_.storage != "same"
                                             ? static_cast<double>(dim + 4)
                                             : static_cast<double>(dim) * static_cast<double>(size_of(case_.dtype)));
  };
  return rows * (row(case_.k_heads, case_.dim) + (case_.values == "in_keys" ? 0 : row(case_.v_heads, case_.value_dim)));
}

std::int64_t Work::kv_bytes() const {
  return bytes_of(inputs_.k) + (case_.values == "in_keys" ? 0 : bytes_of(inputs_.v));
}

void Work::rotate() {
  const auto read = std::max<std::int64_t>(1, static_cast<std::int64_t>(row_bytes()));
  const std::int64_t whole = std::max<std::int64_t>(1, kv_bytes());
  const std::int64_t caches =
      std::min({most_caches, (rotation_bytes + read - 1) / read, std::max<std::int64_t>(1, most_bytes / whole)});
  for (std::int64_t n = 0; n < caches; ++n)
    if (cached_.empty()) {
      const Tensor k = inputs_.k.clone();
      caches_.emplace_back(k, case_.values == "in_keys" ? k.narrow(3, 0, case_.value_dim) : inputs_.v.clone());
    } else if (n > 0) cached_.push_back(cases::cached_rows(case_, inputs_));
}

std::vector<Tensor> Work::next_memory() {
  if (!caches_.empty() && kv_bytes() >= least_read) {
    const auto& [k, v] = caches_[turn_++ % caches_.size()];
    if (case_.values == "in_keys") return {k};
    return {k, v};
  }
  return memory_in_turn();
}

}  // namespace attn::bench
