// src/verify/spot.cc: checks the first, middle and last row, or the last head, with the reference code.
#include "verify/spot.h"

#include "runtime/format.h"

#include "attention/call/call.h"
#include "kernels/attention/normalizer_problem.h"
#include "kernels/attention/reference.h"
#include "kernels/recurrent/target.h"
#include "kernels/reference.h"
#include "kernels/relative/relative_product.h"
#include "verify/attended.h"
#include "verify/recurrent.h"
#include "verify/same.h"
#include "verify/tile_call.h"

namespace attn::cases {
namespace {

std::string compared(const Case& c, const Tensor& ours, const Tensor& expected, std::int64_t row) {
  const Result mine{"row", ours.contiguous()}, theirs{"row", expected.contiguous()};
  const std::string what = size_of(c.dtype) == 2 ? is_far(mine, theirs, c.dtype) : bits_differ(mine, theirs);
  return what.empty() ? what : runtime::format("row {}: {}", row, what);
}

/// Checks three rows of attention. Row n of all heads is row i of head h in batch item b.
std::string wrong_attention(const Case& c, const Inputs& in, const Tensor& output) {
  // the reference code of normalizers and relative products computes in f32 what has 16 bits
  const bool normalized = has_normalizer(in.options);
  const bool wide = size_of(c.dtype) == 2 && (normalized || c.has_relative_products());
  Attended a(wide ? widened(in) : in);
  kernels::AttentionProblem& p = a.call.problem;
  const kernels::AttentionReference& reference = kernels::attention_reference();
  if (a.call.bias.products != nullptr) a.call.bias.products->use(kernels::relative_reference(kernels::reference()));
  kernels::Normalization stage;
  if (normalized) {
    stage = *p.normalization;
    stage.kernel = stage.reference = &kernels::normalizer_reference(kernels::reference());
    p.normalization = &stage;
  }
  const TileCall tiles(a.call, normalized ? normalizer_scratch_bytes(p) : reference.scratch_bytes(p));
  char* const scratch = tiles.scratch();
  const auto row_by_reference = [&](const kernels::AttentionProblem& of, const kernels::Task& task) {
    if (normalized) normalizer_rows(of, task, scratch);
    else reference.rows(of, task, scratch);
  };
  const std::int64_t rows = p.batch * p.q_heads * p.q_rows;
  for (const std::int64_t n : {std::int64_t{0}, rows / 2, rows - 1}) {
    const std::int64_t i = n % p.q_rows, h = n / p.q_rows % p.q_heads, b = n / p.q_rows / p.q_heads;
    for_each_sequence(a.call, p, [&](const kernels::AttentionProblem& part, const kernels::Task& all) {
      if (all.batch == b && all.row <= i && i < all.row + all.rows)
        tiles.rows(part, all.with_rows(h, i, 1), scratch, row_by_reference);
    });
    const auto row = [&](const Tensor& x) { return x.select(0, b).select(0, h).select(0, i); };
    if (std::string what = compared(c, row(output), row(a.results[0].values), n); !what.empty()) return what;
  }
  return {};
}

/// Checks the last head, or channel.
std::string wrong_head(const Case& c, const Inputs& in, const Tensor& result) {
  Case one = c;
  one.batch = one.q_heads = one.k_heads = one.n = 1;
  one.v_heads = c.v_heads / c.q_heads;
  if (size_of(c.dtype) == 2) one.dtype = Dtype::f32;
  const auto last = [&](const Tensor& x, std::int64_t count) {
    return x.defined() ? x.narrow(0, c.batch - 1, 1).narrow(1, x.size(1) - count, count) : x;
  };
  Inputs part = size_of(c.dtype) == 2 ? widened(in) : in;
  for (Tensor* x : {&part.q, &part.k, &part.x}) *x = last(*x, 1);
  for (Tensor* x : {&part.v, &part.doutput, &part.recurrent.g, &part.recurrent.beta}) *x = last(*x, one.v_heads);
  for (Tensor* x : {&part.weight, &part.bias})
    if (x->defined()) *x = x->narrow(0, c.n - 1, 1);
  const kernels::Reference& reference = kernels::reference();
  const Tensor truth = recurrent_by(kernels::recurrent_reference(reference), reference.unary, one, part)[0].values;
  const Result mine{"last head", last(result, truth.size(1)).contiguous()}, theirs{"last head", truth.contiguous()};
  return size_of(c.dtype) == 2 ? is_far(mine, theirs, c.dtype) : bits_differ(mine, theirs);
}

}  // namespace

std::string wrong_rows(const Case& c, const Inputs& in, const Tensor& result) {
  if (result.numel() == 0) return {};
  if (c.is_attention()) return wrong_attention(c, in, result);
  if (c.is_recurrent()) return wrong_head(c, in, result);
  const std::int64_t rows = result.size(0);
  Case one = c;
  one.m = one.rows = 1;
  if (size_of(c.dtype) == 2) one.dtype = Dtype::f32;
  const Inputs wide = size_of(c.dtype) == 2 ? widened(in) : in;
  for (const std::int64_t n : {std::int64_t{0}, rows / 2, rows - 1}) {
    Inputs row = wide;
    if (row.a.defined()) row.a = row.a.narrow(0, n, 1);
    if (row.x.defined()) row.x = row.x.narrow(0, n, 1);
    if (std::string what = compared(c, result.narrow(0, n, 1), by_specification(one, row)[0].values, n); !what.empty())
      return what;
  }
  return {};
}

}  // namespace attn::cases
