// src/io/npy_header.h: reads and writes the header of a NumPy file: magic, version, and a Python dictionary as text.
#pragma once
#include <attn/dims.h>
#include <attn/dtype.h>

#include "io/source.h"

#include <cstdint>
#include <string>

namespace attn::io {

struct NpyHeader {
  Dtype dtype = Dtype::f32;
  bool big_endian = false;
  bool fortran_order = false;
  Dims sizes;
  std::uint64_t data_begin = 0;
};

NpyHeader read_npy_header(const Source& source);
/// Returns the header for a row-major tensor; `dtype` must not be bf16.
std::string make_npy_header(const Dims& sizes, Dtype dtype);

}  // namespace attn::io
