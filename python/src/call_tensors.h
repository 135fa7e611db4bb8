// python/src/call_tensors.h: converts NumPy arrays, torch tensors and other DLPack arrays to tensors of the library and
// back, without copies where the memory allows it.
#pragma once
#include <optional>
#include <vector>

#include "array_memory.h"

namespace attn::python {

/// Returns whether `x` is a torch tensor that requires a gradient while torch records gradients.
bool wants_gradient(nb::handle x);
/// Throws a TypeError if `x` is a torch tensor that requires a gradient; for calls whose results have no gradient.
void refuse_gradient(nb::handle x, const Argument& argument);

/// Reads the arguments of one call as tensors. The tensors are valid as long as the array and the reader live; with
/// `keeps` they keep the array's memory alive themselves.
class Reader {
 public:
  explicit Reader(const char* function, bool keeps = false) : function_(function), keeps_(keeps) {}

  const char* function() const { return function_; }
  Tensor operator()(nb::handle x, const char* name);
  /// None gives an undefined tensor.
  Tensor optional(nb::handle x, const char* name) { return x.is_none() ? Tensor() : (*this)(x, name); }
  /// Reads whole numbers from a list or from an array of any width (integers.h).
  Tensor integers(nb::handle x, const char* name);
  /// Returns the array's own memory, to write a result into it; the array must be writable. Arrays of libraries other
  /// than NumPy and torch must say so, by a DLPack of version 1.0 or later.
  Tensor writable(nb::handle x, const char* name);
  /// Returns the framework of the first array that was read.
  Framework framework() const { return framework_.value_or(Framework::numpy); }

 private:
  const char* function_;
  bool keeps_;
  std::optional<Framework> framework_;
  std::vector<nb::object> copies_;
};

/// Returns a tensor that keeps the array's memory alive.
Tensor keep(nb::handle x, const Argument& argument);

/// Returns the tensor's memory as an array of that framework; nothing is copied.
nb::object to_python(const Tensor& x, Framework framework);

/// An array and a tensor over its memory.
struct NewArray {
  nb::object array;
  Tensor tensor;
};
/// Allocates an uninitialised array. Its layout is that of `like` (an array of the framework, read as `like_view`) if
/// the sizes are equal, else row-major.
NewArray empty_array(const Tensor& like_view, nb::handle like, const Dims& sizes, Framework framework);

}  // namespace attn::python
