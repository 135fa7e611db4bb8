// include/attn/npy.h: one tensor in a file, in NumPy's format.
#pragma once
#include <attn/tensor.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace attn {

/// Reads what `numpy.save` wrote (format 1, 2 and 3). Fortran order becomes strides; big-endian values are converted.
///
/// Dtypes   float64, float32, float16, int64, int32, bool; DtypeError for any other (NumPy has no bfloat16).
/// Errors   IoError when the file cannot be read; FormatError with the byte offset when it is not what it says, down to
///          missing or left-over bytes. Then nothing is returned.
ATTN_API Tensor load_npy(const std::string& path);
/// The same from memory; the bytes are copied.
ATTN_API Tensor parse_npy(std::span<const std::byte> bytes);

/// Writes a tensor of any strides in row-major order; the same bytes as `numpy.save` writes. The file appears whole or
/// not at all: a temporary file beside it is synced and renamed.
///
/// Errors   DtypeError for bf16, which NumPy does not have (use safetensors, or `to(Dtype::f32)`); IoError.
ATTN_API void save_npy(const std::string& path, const Tensor& tensor);
/// The bytes that `save_npy` writes.
ATTN_API std::vector<std::byte> npy_bytes(const Tensor& tensor);

}  // namespace attn
