// src/attention/sdpa.cc: implements torch's scaled_dot_product_attention: its shapes, types, masks, dropout and error
// conditions.
#include <attn/attention.h>
#include <attn/ops.h>

#include "runtime/format.h"

#include "attention/internal.h"
#include "tensor/build.h"

#include <algorithm>

namespace attn {
namespace {

constexpr const char* function = "scaled_dot_product_attention";

std::string shape(const Tensor& x) { return to_string(x.sizes()); }

/// Returns the first `count` sizes.
Dims leading(const Tensor& x, int count) {
  return std::span<const std::int64_t>(x.sizes().begin(), static_cast<std::size_t>(count));
}

/// Returns whether nothing must be broadcast: both tensors have rank 4 and the same leading sizes; the last `own` dims
/// may differ.
bool fit(const Tensor& query, const Tensor& x, int own) {
  const Dims &a = query.impl()->sizes, &b = x.impl()->sizes;
  bool same = a.size() == 4 && b.size() == 4;
  for (int d = 0; same && d < 4 - own; ++d) same = a[d] == b[d];
  return same;
}

Dims joined(Dims sizes, std::initializer_list<std::int64_t> more) {
  for (const std::int64_t size : more) sizes.push_back(size);
  return sizes;
}

void check_inputs(const Tensor& query, const Tensor& key, const Tensor& value) {
  const struct {
    const Tensor& x;
    const char* name;
  } inputs[] = {{query, "query"}, {key, "key"}, {value, "value"}};
  for (const auto& [x, name] : inputs) {
    if (!x.defined()) throw ValueError(runtime::format("{}: {} is undefined", function, name));
    const Dtype dtype = x.impl()->dtype;
    if (x.impl()->sizes.size() < 2)
      throw ShapeError(runtime::format("{}: {} has shape {}; it must have 2 or more dims", function, name, shape(x)));
    if (!is_floating(dtype))
      throw DtypeError(
          runtime::format("{}: {} is {}; it must be f32, f64, bf16 or f16", function, name, name_of(dtype)));
    if (dtype != query.impl()->dtype)
      throw DtypeError(runtime::format("{}: {} is {}; it must be {} as query", function, name, name_of(dtype),
                                       name_of(query.dtype())));
  }
  const auto last_but_one = [](const Dims& sizes) { return sizes[sizes.size() - 2]; };
  const Dims &q = query.impl()->sizes, &k = key.impl()->sizes, &v = value.impl()->sizes;
  const std::int64_t dim = q.back(), rows = last_but_one(v), keys = last_but_one(k);
  if (k.back() != dim)
    throw ShapeError(runtime::format("{}: key has shape {}; its last dim must be {} to match query {}", function,
                                     shape(key), dim, shape(query)));
  if (rows != keys)
    throw ShapeError(runtime::format("{}: value has shape {}; its {} rows must be {} to match key {}", function,
                                     shape(value), rows, keys, shape(key)));
}

void check_groups(const Tensor& query, const Tensor& x, const char* name) {
  if (x.dim() < 3 || query.dim() < 3)
    throw ShapeError(runtime::format("{}: enable_gqa with query {} and {} {}; both must have 3 or more dims", function,
                                     shape(query), name, shape(x)));
  const std::int64_t heads = query.size(-3), groups = x.size(-3);
  if (groups == 0 ? heads != 0 : heads % groups != 0)
    throw ShapeError(runtime::format("{}: {} has shape {}; its {} heads must divide the {} heads of query {}", function,
                                     name, shape(x), groups, heads, shape(query)));
}

/// The inputs query, key and value; `broadcast` gives them common leading dims and rank 4 or more. They are the given
/// tensors, or views of them.
struct Inputs {
  const Tensor &query, &key, &value;
};
struct Views {
  Tensor query, key, value;
};

/// Broadcasts the inputs. Makes views, in `views`, unless all have rank 4 and nothing must broadcast.
Inputs broadcast(const Inputs& given, bool grouped, Views& views) {
  const auto& [query, key, value] = given;
  if (grouped) {
    check_groups(query, key, "key");
    check_groups(query, value, "value");
  }
  const int own = grouped ? 3 : 2;  // dims that do not broadcast
  if (fit(query, key, own) && fit(query, value, own)) return given;
  const auto check_heads = [&](const Tensor& x, const char* name) {
    if (grouped || x.dim() < 3 || query.dim() < 3) return;
    const std::int64_t heads = query.size(-3), groups = x.size(-3);
    if (groups > 1 && heads != groups && heads % groups == 0)
      throw ShapeError(
          runtime::format("{}: {} has shape {}; its {} heads for the {} of query {} need enable_gqa = true", function,
                          name, shape(x), groups, heads, shape(query)));
  };
  check_heads(key, "key");
  check_heads(value, "value");
  Dims common = broadcast_shapes(function, leading(query, query.dim() - own), leading(key, key.dim() - own));
  common = broadcast_shapes(function, common, leading(value, value.dim() - own));
  const auto expand = [&](const Tensor& x) {
    Dims sizes = common;
    for (int d = x.dim() - own; d < x.dim(); ++d) sizes.push_back(x.size(d));
    return x.sizes() == sizes ? x : x.expand(sizes);
  };
  views = {expand(query), expand(key), expand(value)};
  while (views.query.dim() < 4)
    for (Tensor* x : {&views.query, &views.key, &views.value}) *x = x->unsqueeze(0);
  return {views.query, views.key, views.value};
}

/// Checks that attn_mask broadcasts to the scores [..., Hq, L, S], and returns it, expanded if necessary.
Tensor checked_mask(const Tensor& mask, const Tensor& query, const Tensor& key, Dtype dtype) {
  if (!mask.defined()) return mask;
  if (mask.dtype() != Dtype::boolean && mask.dtype() != Dtype::f32 && mask.dtype() != dtype)
    throw DtypeError(runtime::format("{}: attn_mask is {}; it must be bool{} or {} as query", function,
                                     name_of(mask.dtype()), dtype == Dtype::f32 ? "" : ", f32", name_of(dtype)));
  const Dims scores = joined(leading(query, query.dim() - 1), {key.size(-2)});
  bool fits = mask.dim() <= scores.size();
  for (int d = 1; fits && d <= mask.dim(); ++d) fits = mask.size(-d) == 1 || mask.size(-d) == scores[scores.size() - d];
  if (!fits)
    throw ShapeError(runtime::format("{}: attn_mask has shape {}; it must broadcast to the scores {}", function,
                                     shape(mask), to_string(scores)));
  // a float mask is not expanded, because its gradient must have the given shape
  return mask.dtype() == Dtype::boolean || scores.size() > 4 ? mask.expand(scores) : mask;
}

/// Computes inputs of rank 4 in one call, and those of higher rank item by item over dim 0. This is the row-major order
/// of the weights, and so the order of dropout's random numbers.
Tensor attend(const Inputs& inputs, const Tensor& mask, const SdpaOptions& options) {
  if (inputs.query.dim() > 4) {
    std::vector<Tensor> parts;
    for (std::int64_t n = 0; n < inputs.query.size(0); ++n)
      parts.push_back(
          attend({inputs.query[n], inputs.key[n], inputs.value[n]}, mask.defined() ? mask[n] : mask, options));
    return stack(parts);
  }
  AttentionOptions attention{.scale = options.scale};
  if (options.is_causal) attention.mask = Mask::causal(Align::top_left);
  if (mask.defined() && mask.dtype() == Dtype::boolean) attention.mask = attention.mask & Mask::attend(mask);
  if (mask.defined() && mask.dtype() != Dtype::boolean) attention.bias = Bias::dense(mask);
  if (options.out.defined() && options.out.dim() <= 4) {
    attention.out = options.out;
    while (attention.out.dim() < 4) attention.out = attention.out.unsqueeze(0);
  }
  return attention_call(
             inputs.query, inputs.key, inputs.value, attention,
             {.function = function, .dropout_p = options.dropout_p, .generator = options.generator, .logsumexp = false})
      .output;
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const SdpaOptions& options) {
  check_inputs(query, key, value);
  if (!(options.dropout_p >= 0 && options.dropout_p <= 1))
    throw ValueError(runtime::format("{}: dropout_p is {}; it must be from 0 to 1", function, options.dropout_p));
  Views views;
  const Inputs inputs = broadcast({query, key, value}, options.enable_gqa, views);
  const Tensor mask = checked_mask(options.attn_mask, inputs.query, inputs.key, query.dtype());
  Dims sizes = inputs.query.sizes();
  sizes[sizes.size() - 1] = value.sizes().back();
  const int rank = std::max({query.dim(), key.dim(), value.dim()});
  Dims shown = sizes;
  for (int d = rank; d < std::min(4, inputs.query.dim()); ++d) shown.erase(0);
  const bool none = sizes.product() == 0;
  const bool checked_below = !none && shown.size() == 4 && options.out.defined() && options.out.dim() == 4;
  const Tensor memory =
      options.out.defined() && !checked_below ? result_memory(function, options.out, shown, query.dtype()) : Tensor();
  const auto zero = [](const Tensor& x) {
    return wrt(x, [sizes = x.sizes()](auto& dy) { return zeros(sizes, dy.dtype()); });
  };
  Tensor output = none ? record("AttentionBackward0", zeros(sizes, query.dtype()), zero(query), zero(key), zero(value))
                       : attend(inputs, mask, options);
  if (!(output.sizes() == shown)) output = output.reshape(shown);
  if (!memory.defined() || output.data() == memory.data()) return output;
  copy_values(memory, output);
  return record("AttentionBackward0", memory, wrt(output, [](auto& dy) { return dy; }));
}

}  // namespace attn
