// src/nn/multihead_masks.cc: checks a call of MultiheadAttention and converts its masks.
#include "nn/multihead_masks.h"

#include <attn/ops.h>

#include "tensor/defined.h"

#include "runtime/format.h"

namespace attn::nn {
namespace {

std::string shape(const Tensor& x) { return to_string(x.sizes()); }

void check_features(const char* name, const Tensor& x, std::int64_t features, const char* option) {
  if (x.size(-1) != features)
    throw ShapeError(runtime::format("MultiheadAttention: {} has shape {}; its last dim must be {} = {}", name,
                                     shape(x), option, features));
}

void check_inputs(const MultiheadAttention& module, const Tensor& query, const Tensor& key, const Tensor& value,
                  int batch_dim) {
  if (query.dim() != 2 && query.dim() != 3)
    throw ShapeError("MultiheadAttention: query has shape " + shape(query) +
                     "; it must have rank 3, or 2 when unbatched");
  for (const auto& [name, x] : {std::pair{"key", key}, std::pair{"value", value}})
    if (x.dim() != query.dim())
      throw ShapeError(runtime::format("MultiheadAttention: {} has shape {}; its rank must be {}, as that of query {}",
                                       name, shape(x), query.dim(), shape(query)));
  check_features("query", query, module.embed_dim, "embed_dim");
  check_features("key", key, module.kdim, "kdim");
  check_features("value", value, module.vdim, "vdim");
  for (int d = 0; d + 1 < key.dim(); ++d)
    if (key.size(d) != value.size(d))
      throw ShapeError("MultiheadAttention: value has shape " + shape(value) +
                       "; all but its last dim must match key " + shape(key));
  if (query.dim() == 3 && key.size(batch_dim) != query.size(batch_dim))
    throw ShapeError("MultiheadAttention: key has shape " + shape(key) + "; its batch must match query " +
                     shape(query));
  for (const auto& [name, x] : {std::pair{"query", query}, std::pair{"key", key}, std::pair{"value", value}})
    if (x.dtype() != module.out_proj.weight.dtype())
      throw DtypeError(runtime::format("MultiheadAttention: {} is {}; it must be {}, as the parameters", name,
                                       name_of(x.dtype()), name_of(module.out_proj.weight.dtype())));
}

void check_mask_dtype(const char* name, const Tensor& mask, Dtype dtype) {
  if (mask.dtype() == Dtype::boolean || mask.dtype() == dtype || mask.dtype() == Dtype::f32) return;
  throw DtypeError(runtime::format("MultiheadAttention: {} is {}; it must be bool (True = blocked) or {} (added)", name,
                                   name_of(mask.dtype()),
                                   dtype == Dtype::f32 ? "f32" : runtime::format("{} or f32", name_of(dtype))));
}

void check_masks(const Tensor& query, const MultiheadAttentionCall& call, const MultiheadSizes& sizes) {
  const auto [batch, heads, q_rows, k_rows] = sizes;
  if (const Tensor& mask = call.key_padding_mask; mask.defined()) {
    check_mask_dtype("key_padding_mask", mask, query.dtype());
    const Dims needed = query.dim() == 3 ? Dims{batch, k_rows} : Dims{k_rows};
    if (!(mask.sizes() == needed))
      throw ShapeError(runtime::format("MultiheadAttention: key_padding_mask has shape {}; it must be {} for query {}",
                                       shape(mask), to_string(needed), shape(query)));
  }
  if (const Tensor& mask = call.attn_mask; mask.defined()) {
    check_mask_dtype("attn_mask", mask, query.dtype());
    const Dims flat = {q_rows, k_rows}, deep = {batch * heads, q_rows, k_rows};
    if (!(mask.sizes() == flat) && !(mask.sizes() == deep))
      throw ShapeError(runtime::format("MultiheadAttention: attn_mask has shape {}; it must be {} or {}", shape(mask),
                                       to_string(flat), to_string(deep)));
  }
  if (call.is_causal && !call.attn_mask.defined())
    throw ValueError("MultiheadAttention: is_causal is a hint about attn_mask; attn_mask must be given with it");
}

/// Appends `extra` columns that mask nothing (False, or 0).
Tensor widened(const Tensor& mask, std::int64_t extra) {
  if (extra == 0) return mask;
  Dims sizes = mask.sizes();
  sizes[sizes.size() - 1] = extra;
  return cat({mask, zeros(sizes, mask.dtype())}, -1);
}

}  // namespace

MultiheadSizes check_call(const MultiheadAttention& module, const Tensor& query, const Tensor& key, const Tensor& value,
                          const MultiheadAttentionCall& call) {
  check_defined("MultiheadAttention", "query", query);
  check_defined("MultiheadAttention", "key", key);
  check_defined("MultiheadAttention", "value", value);
  const bool batched = query.dim() == 3;
  const int batch_dim = module.options.batch_first ? 0 : 1;
  const int row_dim = batched ? 1 - batch_dim : 0;
  check_inputs(module, query, key, value, batch_dim);
  const MultiheadSizes sizes{batched ? query.size(batch_dim) : 1, module.num_heads, query.size(row_dim),
                             key.size(row_dim)};
  check_masks(query, call, sizes);
  return sizes;
}

MultiheadMasks read_masks(const MultiheadAttentionCall& call, const MultiheadSizes& sizes, std::int64_t extra,
                          bool causal) {
  const auto [batch, heads, q_rows, k_rows] = sizes;
  MultiheadMasks masks;
  masks.causal = causal;
  if (call.attn_mask.defined() && !causal) {
    const Tensor mask = widened(call.attn_mask, extra);
    (mask.dtype() == Dtype::boolean ? masks.blocked : masks.added) =
        mask.dim() == 2 ? mask : mask.reshape({batch, heads, q_rows, k_rows + extra});
  }
  if (call.key_padding_mask.defined()) {
    const Tensor mask = widened(call.key_padding_mask, extra).reshape({batch, 1, 1, k_rows + extra});
    (mask.dtype() == Dtype::boolean ? masks.padding : masks.padding_added) = mask;
  }
  return masks;
}

void MultiheadMasks::apply(AttentionOptions& options) const {
  if (causal) options.mask = Mask::causal(Align::top_left);
  if (blocked.defined()) options.mask = Mask::block(blocked);
  if (padding.defined()) options.mask = options.mask & Mask::block(padding);
  if (added.defined()) options.bias = Bias::dense(added);
  if (padding_added.defined()) options.bias = options.bias + Bias::dense(padding_added);
}

}  // namespace attn::nn
