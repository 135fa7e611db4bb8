// src/ranks/heads_call.cc: checks a call whose heads are dealt as one process checks it, and describes it in the text
// that ranks compare.
#include "ranks/heads_call.h"

#include <attn/ops.h>

#include "attention/call/check.h"
#include "attention/normalizer/lowered_normalizer.h"
#include "attention/score/projection.h"
#include "ranks/digest.h"
#include "ranks/products.h"
#include "runtime/format.h"
#include "tensor/record.h"

#include <numeric>

namespace attn {
namespace {

void check_operand(const char* function, const Tensor& x, const char* name) {
  if (!x.defined()) throw ValueError(runtime::format("{}: {} is undefined", function, name));
  if (x.dim() != 4)
    throw ShapeError(runtime::format("{}: {} has shape {}; it must be [B, H, rows of this rank, D]", function, name,
                                     to_string(x.sizes())));
}

/// Returns an operand of all rows without memory for them.
Tensor without_rows(const Tensor& x, std::int64_t length, std::int64_t width) {
  const Dims sizes{x.size(0), x.size(1), length, width};
  return sizes.product() == 0 ? empty(sizes, x.dtype()) : empty({1, 1, 1, width}, x.dtype()).expand(sizes);
}

/// Throws the errors of the whole call; returns a text of the tensors among the options.
std::string check_whole(const char* function, const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t length,
                        const AttentionOptions& options, bool& wants_grad) {
  AttentionOptions checked = options;
  checked.out = {};
  std::int64_t q_dim = q.size(3), k_dim = k.size(3);
  std::string tensors;
  if (const Score::Kind kind = options.score.kind; kind == Score::Kind::general || kind == Score::Kind::additive) {
    check_score(function, q, k, q.size(1), options);
    for (const auto& [x, name] :
         {std::pair{&options.score.w_q, "w_q"}, {&options.score.w_k, "w_k"}, {&options.score.w, "w"}})
      if (x->defined()) tensors += ", " + text_of_tensor(name, *x);
    checked.score = {}, checked.scale = std::nullopt;  // the check would project all rows
    q_dim = k_dim = 1;
  }
  const Call call = check(function, without_rows(q, length, q_dim), without_rows(k, length, k_dim),
                          without_rows(v, length, v.size(3)), checked);
  wants_grad = call.wants_grad();
  for (const Tensor* x : {&q, &k, &v, &options.score.w_q, &options.score.w_k, &options.score.w})
    wants_grad = wants_grad || attn::wants_grad(*x);
  return tensors + text_of_tensors(call);
}

const char* name_of_score(Score::Kind kind) {
  switch (kind) {
    case Score::Kind::scaled_dot: return "scaled_dot";
    case Score::Kind::dot: return "dot";
    case Score::Kind::general: return "general";
    case Score::Kind::additive: return "additive";
  }
  return "";
}

std::string text_of_call(const HeadsCall& call, const AttentionOptions& options, const std::string& tensors) {
  const AttentionOptions& o = options;
  const auto named = [](const char* name, const std::string& text) {
    return text.empty() ? text : runtime::format(", {} {}", name, text);
  };
  return runtime::format(
      "{} B={} Hq={} Hk={} Hv={} T={} D={} Dv={}, score {}{}{}{}{}{}, softcap {:.17g}, temperature {:.17g}, dropout_p "
      "{:.17g}{}{}{}{}",
      name_of(call.dtype), call.batch, call.q_heads, call.k_heads, call.v_heads, call.length, call.dim, call.value_dim,
      name_of_score(o.score.kind), o.scale ? runtime::format(", scale {:.17g}", *o.scale) : std::string(),
      named("mask", o.mask.is_all() ? std::string() : o.mask.to_string()), named("bias", o.bias.to_string()),
      named("score_mod", o.score_mod.empty() ? std::string() : o.score_mod.to_string()),
      o.score_callback.function ? ", a score_callback" : "", o.softcap, o.temperature, o.dropout_p,
      o.dropout_seed ? runtime::format(", dropout_seed {}", *o.dropout_seed) : std::string(),
      o.weights == Weights::none ? std::string() : named("weights", o.weights.to_string()), tensors,
      text_of_product(call.dtype));
}

}  // namespace

HeadsCall check_heads_call(const char* function, const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t length,
                           const Ranks& ranks, const AttentionOptions& options) {
  for (const auto& [x, name] : {std::pair{&q, "q"}, {&k, "k"}, {&v, "v"}}) check_operand(function, *x, name);
  if (!is_plain_softmax(options))
    throw ValueError(
        runtime::format("{}: a normalizer or a weight_mod is given; ranks that share heads have softmax", function));
  HeadsCall call{.function = function,
                 .batch = q.size(0),
                 .length = length,
                 .dim = q.size(3),
                 .value_dim = v.size(3),
                 .q_heads = q.size(1),
                 .k_heads = k.size(1),
                 .v_heads = v.size(1),
                 .dtype = q.dtype(),
                 .rows = share_of(length, ranks.rank(), ranks.size()),
                 .heads = {0, 0, 0},
                 .alone = ranks.size() == 1,
                 .text = {}};
  for (const auto& [x, name] : {std::pair{&q, "q"}, {&k, "k"}, {&v, "v"}})
    if (x->size(2) != call.rows.size())
      throw ShapeError(runtime::format("{}: {} has shape {}; of {} rows on {} ranks this one must have {}", function,
                                       name, to_string(x->sizes()), length, ranks.size(), call.rows.size()));
  for (const Bias::Term& term : options.bias.terms())
    if (term.kind == Bias::Kind::product)
      throw ValueError(runtime::format("{}: a relative product is given, which ranks do not do", function));
  const std::string tensors = check_whole(function, q, k, v, length, options, call.wants_grad);
  call.units = std::gcd(call.k_heads, call.v_heads);
  if (ranks.size() > call.units)
    throw ValueError(runtime::format(
        "{}: {} ranks, but k has {} heads{}; when heads are exchanged each rank needs one: use at most {} ranks, or "
        "stripes",
        function, ranks.size(), call.k_heads,
        call.units == call.k_heads ? std::string()
                                   : runtime::format(" and v {}, in {} groups", call.v_heads, call.units),
        call.units));
  const Span units = share_of(call.units, ranks.rank(), ranks.size());
  const std::int64_t each = call.q_heads / call.units;
  call.heads = {units.begin * each, units.end * each, call.q_heads};
  using W = Weights;
  if (!call.alone && options.weights.kind != W::none && options.weights.kind != W::full &&
      options.weights.kind != W::largest)
    throw ValueError(runtime::format(
        "{}: weights are {}, which ranks do not return; full and top_k(n) are the ones of a rank's own rows", function,
        options.weights.to_string()));
  call.text = text_of_call(call, options, tensors);
  return call;
}

void check_rows(const HeadsCall& call, const Tensor& x, const Dims& sizes, const char* name) {
  if (!x.defined()) throw ValueError(runtime::format("{}: {} is undefined; it is needed", call.function, name));
  if (!(x.sizes() == sizes))
    throw ShapeError(runtime::format("{}: {} has shape {}; it must be {}", call.function, name, to_string(x.sizes()),
                                     to_string(sizes)));
}

}  // namespace attn
