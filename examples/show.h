// examples/show.h: printing as Python's print does, and the one line that says two ways give the same numbers.
#pragma once
#include <attn/ops.h>

#include <iostream>
#include <limits>
#include <stdexcept>
#include <string>

namespace show {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// The values with a space between them and a new line at the end.
template <typename... Values>
void print(const Values&... values) {
  const char* between = "";
  ((std::cout << between << values, between = " "), ...);
  std::cout << "\n";
}

inline void title(const std::string& text) { std::cout << "\n--- " << text << "\n"; }

/// torch.Size([6, 16])
inline std::string shape(const attn::Tensor& x) { return "torch.Size(" + attn::to_string(x.sizes()) + ")"; }

/// Says that `ours` has the numbers of `other`, up to rounding; where it has not, the program ends with an error.
inline void same(const std::string& what, const attn::Tensor& ours, const attn::Tensor& other) {
  if (!(ours.sizes() == other.sizes()) || !attn::allclose(ours, other, 1e-5, 1e-6))
    throw std::runtime_error(what + ": the numbers differ");
  print("the same:", what);
}

}  // namespace show
