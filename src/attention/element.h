// src/attention/element.h: converts a dtype to the element type of kernels.
#pragma once
#include <attn/dtype.h>

#include "kernels/attention/problem.h"

namespace attn {

/// Returns the kernels' element type; `dtype` must be a floating type.
inline kernels::Element element_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64: return kernels::Element::f64;
    case Dtype::bf16: return kernels::Element::bf16;
    case Dtype::f16: return kernels::Element::f16;
    default: return kernels::Element::f32;
  }
}

}  // namespace attn
