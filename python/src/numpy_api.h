// python/src/numpy_api.h: NumPy's C interface: an array's fields in a nanosecond, where the buffer protocol takes a
// fifth of a microsecond.
#pragma once
#define NPY_NO_DEPRECATED_API NPY_1_23_API_VERSION
#define NPY_TARGET_VERSION NPY_1_23_API_VERSION
// one table of functions; frameworks.cc fills it when the first array comes
#define PY_ARRAY_UNIQUE_SYMBOL attn_numpy_api
#include <numpy/arrayobject.h>
