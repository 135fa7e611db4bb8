// src/ranks/products.h: names the product of bf16, and refuses ranks whose processors compute products of a dtype with
// other bits.
#pragma once
#include <attn/ranks.h>
#include <attn/runtime.h>

#include "runtime/cpu.h"
#include "runtime/format.h"

#include <string>
#include <string_view>

namespace attn {

/// Returns how this process multiplies numbers of bf16, which decides their bits: by the kernels of its target.
inline const char* bf16_product() {
  const std::string& target = info().target;
  return target == "amx"                                    ? "that of tile registers"
         : target == "avx512" && runtime::cpu().avx512_bf16 ? "the dot product"
                                                            : "computed in f32";
}

/// Returns what the text of a call says of it: nothing for other dtypes.
inline std::string text_of_product(Dtype dtype) {
  return dtype == Dtype::bf16 ? runtime::format(", the bf16 product is {}", bf16_product()) : "";
}

/// Only bf16 has other bits on some processors. `function` begins the error.
inline void compare_products(std::string_view function, Dtype dtype, const Ranks& ranks) {
  if (dtype != Dtype::bf16) return;
  ranks.same(runtime::format("{}: the processor's bf16 product", function), bf16_product());
}

}  // namespace attn
