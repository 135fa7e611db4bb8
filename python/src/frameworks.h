// python/src/frameworks.h: finds the objects of NumPy and torch that the bindings need, each once. It imports neither
// library before it is needed.
#pragma once
#include <attn/dtype.h>

#include <nanobind/nanobind.h>

#include <array>

namespace attn::python {

namespace nb = nanobind;

inline constexpr int dtype_count = 7;

/// These references are held as long as the process lives, because a module may be gone before the last array is.
struct Numpy {
  PyObject* ndarray;
  nb::object *array, *masked;
  std::array<PyObject*, dtype_count> dtypes{};  // index: Dtype; bfloat16 is looked up when needed

  static const Numpy& get();
  /// Returns NumPy's dtype; for bfloat16 that of ml_dtypes.
  nb::handle dtype(Dtype dtype) const;
};

struct Torch {
  PyObject *tensor, *parameter, *strided;
  nb::object *empty, *empty_like;
  std::array<PyObject*, dtype_count> dtypes{};
  // names of methods and attributes
  PyObject *data_ptr, *shape, *stride, *dtype_name, *is_cpu, *layout, *is_neg, *resolve_neg, *detach, *device;

  static const Torch& get();
};

bool is_numpy(nb::handle x);
/// Returns whether x is a torch.Tensor; false if torch has not been imported.
bool is_torch(nb::handle x);
/// Calls a method without arguments.
nb::object call_method(nb::handle x, PyObject* name);

}  // namespace attn::python
