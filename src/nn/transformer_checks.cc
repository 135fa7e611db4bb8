// src/nn/transformer_checks.cc: checks the arguments of the transformer's layers, under the names that they have there.
#include "nn/transformer_checks.h"

#include "tensor/defined.h"

#include "runtime/format.h"

namespace attn::nn {

LayerRows check_rows(const std::string& who, const char* name, const Tensor& x, const Tensor& weight,
                     bool batch_first) {
  check_defined(who.c_str(), name, x);
  const std::int64_t d_model = weight.size(0);
  if ((x.dim() != 2 && x.dim() != 3) || x.size(-1) != d_model)
    throw ShapeError(
        runtime::format("{}: {} has shape {}; it must have rank 3, or 2 when unbatched, and the last dim "
                        "must be d_model = {}",
                        who, name, to_string(x.sizes()), d_model));
  if (x.dtype() != weight.dtype())
    throw DtypeError(runtime::format("{}: {} is {}; it must be {}, as the parameters", who, name, name_of(x.dtype()),
                                     name_of(weight.dtype())));
  if (x.dim() == 2) return {.batched = false, .batch = 1, .rows = x.size(0)};
  return {.batched = true, .batch = x.size(batch_first ? 0 : 1), .rows = x.size(batch_first ? 1 : 0)};
}

void check_layer_masks(const std::string& who, const LayerMask& mask, const LayerMask& padding, bool is_causal,
                       const LayerRows& q, const LayerRows& k, std::int64_t heads, Dtype dtype) {
  for (const auto& [name, given] : {mask, padding})
    if (given.defined() && given.dtype() != Dtype::boolean && given.dtype() != dtype && given.dtype() != Dtype::f32)
      throw DtypeError(runtime::format("{}: {} is {}; it must be bool (True = blocked) or {} (added)", who, name,
                                       name_of(given.dtype()), name_of(dtype)));
  if (mask.mask.defined()) {
    const Dims flat = {q.rows, k.rows}, deep = {q.batch * heads, q.rows, k.rows};
    if (!(mask.mask.sizes() == flat) && !(mask.mask.sizes() == deep))
      throw ShapeError(runtime::format("{}: {} has shape {}; it must be {} or {}", who, mask.name,
                                       to_string(mask.mask.sizes()), to_string(flat), to_string(deep)));
  }
  if (padding.mask.defined()) {
    const Dims needed = k.batched ? Dims{k.batch, k.rows} : Dims{k.rows};
    if (!(padding.mask.sizes() == needed))
      throw ShapeError(runtime::format("{}: {} has shape {}; it must be {}", who, padding.name,
                                       to_string(padding.mask.sizes()), to_string(needed)));
  }
  if (is_causal && !mask.mask.defined())
    throw ValueError(runtime::format("{}: the causal hint is about {}, which must be given with it", who, mask.name));
}

}  // namespace attn::nn
