// python/src/numpy_api.h: includes NumPy's C API: it reads an array's fields in a nanosecond; the buffer protocol takes
// a fifth of a microsecond.
#pragma once
#define NPY_NO_DEPRECATED_API NPY_1_23_API_VERSION
#define NPY_TARGET_VERSION NPY_1_23_API_VERSION
// one table of functions; frameworks.cc fills it when the first array arrives
#define PY_ARRAY_UNIQUE_SYMBOL attn_numpy_api
#include <numpy/arrayobject.h>
