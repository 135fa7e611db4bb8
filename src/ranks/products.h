// src/ranks/products.h: refuses ranks whose processors compute a dtype's products with other bits.
#pragma once
#include <attn/ranks.h>
#include <attn/runtime.h>

#include "runtime/cpu.h"
#include "runtime/format.h"

#include <string_view>

namespace attn {

/// Only bf16 has other bits on some processors. `function` begins the error.
inline void compare_products(std::string_view function, Dtype dtype, const Ranks& ranks) {
  if (dtype != Dtype::bf16) return;
  ranks.same(runtime::format("{}: the processor's bf16 product", function),
             info().target == "amx"       ? "that of tile registers"
             : runtime::cpu().avx512_bf16 ? "the dot product"
                                          : "computed in f32");
}

}  // namespace attn
