// src/ranks/digest.cc: describes tensors in the texts that ranks compare.
#include "ranks/digest.h"

#include <attn/dtype.h>
#include <attn/ops.h>

#include "io/checksum.h"
#include "runtime/format.h"

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace attn {

std::string text_of_tensor(std::string_view name, const Tensor& x) {
  if (!x.defined()) return runtime::format("{} undefined", name);
  const Tensor values = x.detach().contiguous();
  const std::span bytes(static_cast<const std::byte*>(values.data()),
                        static_cast<std::size_t>(values.numel()) * size_of(values.dtype()));
  return runtime::format("{} {} {} {:016x}", name, name_of(x.dtype()), to_string(x.sizes()), io::xxh64(bytes));
}

std::string text_of_tensors(const Call& call) {
  std::string text;
  const auto add = [&](std::string_view name, const Tensor& x) {
    if (x.defined()) text += ", " + text_of_tensor(name, x);
  };
  const Lengths& lengths = call.lengths;
  const std::vector<Tensor> constants = call.constants();
  std::size_t others = 0;  // constants begin with the lengths
  for (const auto& [x, name] : {std::pair{&lengths.query_lengths, "query_lengths"},
                                {&lengths.key_lengths, "key_lengths"},
                                {&lengths.key_start, "key_start"},
                                {&lengths.query_start, "query_start"}}) {
    add(name, *x);
    if (x->defined()) ++others;
  }
  add("sinks", call.sinks), add("w", call.additive_w);
  for (const Tensor& x : call.bias.values) add("bias", x);
  if (call.score_mod)
    for (const Tensor& x : call.score_mod->any_rows.values) add("score_mod", x);
  for (; others < constants.size(); ++others) add("mask or score_mod", constants[others]);
  for (const auto& [offsets, name] : {std::pair{&call.packs.q, "cu_seqlens_q"}, {&call.packs.k, "cu_seqlens_k"}})
    if (!offsets->empty()) add(name, tensor<std::int64_t>(*offsets));
  return text;
}

}  // namespace attn
