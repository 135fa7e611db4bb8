// src/model/gguf/matrix.h: a weight of a model that stays as a GGUF file has it: products and rows from its blocks.
#pragma once
#include <attn/gguf.h>

#include "model/gguf/names.h"
#include "model/gguf/types.h"

#include <vector>

namespace attn::gguf {

/// A matrix [out, in] that is one tensor of a file, or several one under another (q, k and v). The numbers are decoded
/// when they are used, so no memory is needed besides the mapped file. Results have the bits of those with the decoded
/// matrix in its dtype.
///
/// Threads   any number at once, after all tensors have been added
class Matrix {
 public:
  /// Returns whether products of that dtype can be computed from a tensor of that type.
  static bool multiplies(const Type& type, Dtype dtype);

  /// `dtype`: that of x and of the results.
  Matrix(std::int64_t out, std::int64_t in, Dtype dtype) : out_(out), in_(in), dtype_(dtype) {}
  void add(const GgufFile& file, const Stored& stored);
  /// Computes linear(x, matrix, bias) without gradient history. ValueError if x requires a gradient.
  Tensor linear(const Tensor& x, const Tensor& bias) const;
  /// Returns row ids[i] for each i, as `embedding` does.
  Tensor rows(const Tensor& ids) const;

 private:
  struct Part {
    const Type* type;
    const std::byte* data;
    std::int64_t row, rows, head_rows;
    std::int64_t row_bytes(std::int64_t in) const { return in / type->elements * type->bytes; }
  };
  std::int64_t out_, in_;
  Dtype dtype_;
  std::vector<GgufFile> files_;  // keep the data mapped
  std::vector<Part> parts_;
};

}  // namespace attn::gguf
