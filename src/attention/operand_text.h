// src/attention/operand_text.h: writes alignments and tensors for the text of masks and biases: "bottom_right", "f32
// [8]".
#pragma once
#include <attn/mask.h>

#include <string>

namespace attn {

inline const char* name_of(Align align) {
  return align == Align::top_left ? "top_left" : align == Align::bottom_right ? "bottom_right" : "";
}

inline std::string shape_of(const Tensor& x) { return std::string(name_of(x.dtype())) + " " + to_string(x.sizes()); }

}  // namespace attn
