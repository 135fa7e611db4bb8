// python/src/numpy_api.h: includes NumPy's C API, which reads the fields of an array in a nanosecond; the buffer
// protocol takes a fifth of a microsecond.
#pragma once
#define NPY_NO_DEPRECATED_API NPY_1_23_API_VERSION
#define NPY_TARGET_VERSION NPY_1_23_API_VERSION
// the name of the table of functions; frameworks.cc fills it when the first array arrives
#define PY_ARRAY_UNIQUE_SYMBOL attn_numpy_api
#include <numpy/arrayobject.h>
