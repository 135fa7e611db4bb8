// python/src/frameworks.h: the objects of NumPy and torch that the glue asks for, found once, and never imported before
// they are needed.
#pragma once
#include <attn/dtype.h>

#include <nanobind/nanobind.h>

#include <array>

namespace attn::python {

namespace nb = nanobind;

inline constexpr int dtype_count = 7;

/// Held for the life of the process: modules may be gone before the last array is.
struct Numpy {
  PyObject* ndarray;
  nb::object *array, *masked;
  std::array<PyObject*, dtype_count> dtypes{};  // by Dtype; bfloat16 is asked for when needed

  static const Numpy& get();
  /// NumPy's dtype; of bfloat16, ml_dtypes'.
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
/// Whether it is a torch.Tensor. False without asking when nobody has imported torch.
bool is_torch(nb::handle x);

}  // namespace attn::python
