// python/src/array_memory.h: finds the memory of a NumPy array, a torch tensor or another DLPack array, without a copy
// where the memory allows it.
#pragma once
#include <attn/tensor.h>

#include <nanobind/nanobind.h>

#include <string>

namespace attn::python {

namespace nb = nanobind;

/// The library from which an array came; results are arrays of the same library. For arrays of other libraries, results
/// are NumPy arrays.
enum class Framework : std::uint8_t { numpy, torch };

/// The memory of a Python array.
struct View {
  void* data = nullptr;
  Dims sizes = {}, strides = {};  // in elements
  Dtype dtype = Dtype::f32;
  Framework framework = Framework::numpy;
  nb::object copy = {};  // a copy, if the array's own memory cannot be used; of DLPack what keeps the memory alive
};

/// A function and its argument, named for error messages.
struct Argument {
  const char* function;
  const char* name;
};

/// Reads pointer, sizes and strides of an array; normally the memory is the array's own. Copied are only arrays that
/// are not aligned, arrays with a stride that is not a whole number of elements, and lazily negated torch tensors.
///
/// Errors   TypeError for anything but an array, for dtypes the library does not have (the error names other byte
///          orders and objects), masked arrays, sparse tensors; ValueError for memory that is not the CPU's.
View view_of(nb::handle x, const Argument& argument);
/// The same for an array that is written to: it must be writable and the memory its own. Arrays of libraries other than
/// NumPy and torch must say so, by a DLPack of version 1.0 or later.
View writable_view_of(nb::handle x, const Argument& argument);

/// Reads a tuple of sizes or strides.
Dims dims_of(const nb::object& tuple);

}  // namespace attn::python
