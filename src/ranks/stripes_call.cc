// src/ranks/stripes_call.cc: checks a call whose rows are dealt in stripes as one process checks it, and refuses by
// name what stripes do not support.
#include "ranks/stripes_call.h"

#include <attn/autograd.h>
#include <attn/ops.h>

#include "attention/call/check.h"
#include "attention/mask/mask_expression.h"
#include "attention/normalizer/lowered_normalizer.h"
#include "ranks/digest.h"
#include "ranks/products.h"
#include "runtime/format.h"
#include "tensor/record.h"

#include <cstring>
#include <set>

namespace attn {
namespace {

void check_own_rows(const char* function, const Tensor& x, const char* name, std::int64_t length, std::int64_t own,
                    int ranks) {
  if (!x.defined()) throw ValueError(runtime::format("{}: {} is undefined", function, name));
  if (x.dim() != 4)
    throw ShapeError(runtime::format("{}: {} has shape {}; it must be [B, H, rows of this rank, D]", function, name,
                                     to_string(x.sizes())));
  if (x.size(2) != own)
    throw ShapeError(runtime::format("{}: {} has shape {}; of {} rows in stripes on {} ranks this one must have {}",
                                     function, name, to_string(x.sizes()), length, ranks, own));
}

/// Returns an operand of all rows without memory for them.
Tensor of_all_rows(const Tensor& x, std::int64_t length) {
  const Dims sizes{x.size(0), x.size(1), length, x.size(3)};
  return sizes.product() == 0 ? empty(sizes, x.dtype()) : empty({1, 1, 1, x.size(3)}, x.dtype()).expand(sizes);
}

[[noreturn]] void refuse_in_stripes(const char* function, const std::string& what) {
  throw ValueError(runtime::format("{}: {}, which the layout stripes does not do", function, what));
}

/// Returns why stripes do not take a mask of that kind; null if they do.
const char* why_refused(Mask::Expression::Kind kind) {
  using Kind = Mask::Expression::Kind;
  switch (kind) {
    case Kind::dense: return "the mask has a tensor of pairs";
    case Kind::documents: return "the mask is one of documents";
    case Kind::blocks: return "the mask chooses blocks of keys";
    case Kind::causal:
    case Kind::window:
    case Kind::prefix:
    case Kind::none:
    case Kind::both:
    case Kind::either:
    case Kind::negation: return nullptr;
  }
  return "the mask is of an unknown kind";
}

void refuse_masks(const char* function, const Mask& mask) {
  if (mask.is_all()) return;
  using Expression = Mask::Expression;
  std::set<const Expression*> seen;  // a list, because a tree may be deep
  std::vector<const Expression*> next{mask.expression().get()};
  while (!next.empty()) {
    const Expression& part = *next.back();
    next.pop_back();
    if (!seen.insert(&part).second) continue;
    if (const char* const why = why_refused(part.kind)) refuse_in_stripes(function, why);
    for (const Expression::Part* each : {&part.a, &part.b})
      if (*each) next.push_back(each->get());
  }
}

void refuse_options(const char* function, const AttentionOptions& options) {
  const Score::Kind kind = options.score.kind;
  if (kind == Score::Kind::general) refuse_in_stripes(function, "the score is general");
  if (kind == Score::Kind::additive) refuse_in_stripes(function, "the score is additive");
  refuse_masks(function, options.mask);
  for (const Bias::Term& term : options.bias.terms())
    if (term.kind == Bias::Kind::dense) refuse_in_stripes(function, "a dense bias is given");
    else if (term.kind == Bias::Kind::product) refuse_in_stripes(function, "a relative product is given");
  if (!options.score_mod.empty()) refuse_in_stripes(function, "a score_mod is given");
  if (options.score_callback.function) refuse_in_stripes(function, "a score_callback is given");
  if (!is_plain_softmax(options)) refuse_in_stripes(function, "a normalizer or a weight_mod is given");
  if (options.key_start.defined()) refuse_in_stripes(function, "key_start is given");
  if (options.cu_seqlens_q.defined() || options.cu_seqlens_k.defined())
    refuse_in_stripes(function, "cu_seqlens is given");
  if (!(options.weights == Weights::none))
    refuse_in_stripes(function, runtime::format("weights are {}", options.weights.to_string()));
  if (options.out.defined()) refuse_in_stripes(function, "out is given");
}

std::string text_of_stripes(const Call& call, const AttentionOptions& o) {
  const kernels::AttentionProblem& p = call.problem;
  std::string text = runtime::format(
      "{} B={} Hq={} Hk={} Hv={} T={} D={} Dv={}, scale {:.17g}, softcap {:.17g}, "
      "temperature {:.17g}, dropout_p {:.17g}",
      name_of(call.dtype()), p.batch, p.q_heads, p.k_heads, p.v_heads, p.q_rows, p.dim, p.value_dim, p.scale, o.softcap,
      o.temperature, o.dropout_p);
  if (o.dropout_seed) text += runtime::format(", dropout_seed {}", *o.dropout_seed);
  if (!o.mask.is_all()) text += ", mask " + o.mask.to_string();
  if (!o.bias.empty()) text += ", bias " + o.bias.to_string();
  text += text_of_tensors(call);
  text += text_of_product(call.dtype());
  return text;
}

}  // namespace

Tensor in_adjacent_rows(const Tensor& x) {
  const bool columns = x.size(3) <= 1 || x.stride(3) == 1, rows = x.size(2) <= 1 || x.stride(2) == x.size(3);
  return columns && rows ? x.detach() : x.detach().contiguous();
}

std::vector<const void*> planes_of(const Tensor& x) {
  std::vector<const void*> planes;
  for (std::int64_t b = 0; b < x.size(0); ++b)
    for (std::int64_t h = 0; h < x.size(1); ++h)
      planes.push_back(static_cast<const char*>(x.data()) +
                       (b * x.stride(0) + h * x.stride(1)) * static_cast<std::int64_t>(size_of(x.dtype())));
  return planes;
}

void set_chunks(kernels::AttentionProblem& problem, const void* keys, const void* values, std::int64_t rows) {
  const auto set = [rows](kernels::KvRows& to, std::int64_t(&stride)[2], const void* chunk, std::int64_t heads,
                          std::int64_t columns) {
    to.base = chunk;
    to.row_stride = columns;
    stride[0] = heads * rows * columns, stride[1] = rows * columns;
  };
  set(problem.k, problem.k_stride, keys, problem.k_heads, problem.dim);
  set(problem.v, problem.v_stride, values, problem.v_heads, problem.value_dim);
  problem.k_rows = rows;
}

kernels::AttentionProblem StripesCall::problem() const {
  kernels::AttentionProblem p = whole.problem;
  p.query_lengths = p.key_lengths = p.key_start = p.query_start = nullptr;  // CallPart reads those of the whole call
  p.q_rows = own, p.k_rows = 0;
  p.q = q.data();
  for (int d = 0; d < 3; ++d) p.q_stride[d] = q.stride(d);
  p.k.base = p.v.base = nullptr;
  return p;
}

StripesCall check_stripes_call(const char* function, const Tensor& q, const Tensor& k, const Tensor& v,
                               std::int64_t length, const Ranks& ranks, const AttentionOptions& options) {
  if (length < 0) throw ValueError(runtime::format("{}: length is {}; it must be at least 0", function, length));
  StripesCall call{.stripes = {length, ranks.size()}, .own = 0, .whole = {}, .q = {}, .k = {}, .v = {}, .text = {}};
  call.own = call.stripes.rows_of(ranks.rank());
  for (const auto& [x, name] : {std::pair{&q, "q"}, {&k, "k"}, {&v, "v"}})
    check_own_rows(function, *x, name, length, call.own, ranks.size());
  refuse_options(function, options);
  call.whole = check(function, of_all_rows(q, length), of_all_rows(k, length), of_all_rows(v, length), options);
  if (grad_enabled() && (call.whole.wants_grad() || wants_grad(q) || wants_grad(k) || wants_grad(v)))
    throw ValueError(
        runtime::format("{}: an operand requires a gradient, which the layout stripes does not record: call "
                        "rank_attention_forward and rank_attention_backward, or set NoGrad",
                        function));
  call.q = in_adjacent_rows(q), call.k = in_adjacent_rows(k), call.v = in_adjacent_rows(v);
  call.text = text_of_stripes(call.whole, options);
  return call;
}

}  // namespace attn
