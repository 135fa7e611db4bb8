// examples/show.h: prints as Python's print does, and checks that two computations give the same numbers.
#pragma once
#include <attn/ops.h>

#include <iostream>
#include <limits>
#include <stdexcept>
#include <string>

namespace show {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// Prints the values with a space between them and a line end.
template <typename... Values>
void print(const Values&... values) {
  const char* between = "";
  ((std::cout << between << values, between = " "), ...);
  std::cout << "\n";
}

inline void title(const std::string& text) { std::cout << "\n--- " << text << "\n"; }

/// Formats a shape as torch does: torch.Size([6, 16]).
inline std::string shape(const attn::Tensor& x) { return "torch.Size(" + attn::to_string(x.sizes()) + ")"; }

/// Checks that `ours` equals `other` up to rounding, and prints so; throws if they differ.
inline void same(const std::string& what, const attn::Tensor& ours, const attn::Tensor& other) {
  if (!(ours.sizes() == other.sizes()) || !attn::allclose(ours, other, 1e-5, 1e-6))
    throw std::runtime_error(what + ": the numbers differ");
  print("the same:", what);
}

}  // namespace show
