// include/attn/npy.h: reads and writes one tensor in a file in NumPy's .npy format.
#pragma once
#include <attn/tensor.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace attn {

/// Reads a file that `numpy.save` wrote (format 1, 2 or 3). An array in Fortran order becomes a tensor with
/// column-major strides; big-endian values are converted.
///
/// Dtypes   float64, float32, float16, int64, int32, bool; DtypeError for any other (NumPy has no bfloat16).
/// Errors   IoError when the file cannot be read; FormatError with the byte offset when it is not a valid .npy file,
///          including missing or left-over bytes. Then nothing is returned.
ATTN_API Tensor load_npy(const std::string& path);
/// Reads the same format from memory; the bytes are copied.
ATTN_API Tensor parse_npy(std::span<const std::byte> bytes);

/// Writes a tensor of any strides in row-major order, with the same bytes as `numpy.save`. The file is complete or
/// absent, never partial: a temporary file in the same folder is synced and renamed.
///
/// Errors   DtypeError for bf16, which NumPy does not have (use safetensors, or `to(Dtype::f32)`); ValueError for an
///          undefined tensor; IoError.
ATTN_API void save_npy(const std::string& path, const Tensor& tensor);
/// Returns the bytes that `save_npy` writes.
ATTN_API std::vector<std::byte> npy_bytes(const Tensor& tensor);

}  // namespace attn
