// src/kernels/rows/target.h: declares the functions of one instruction set for sums along rows, softmax, norms and
// elementary functions.
#pragma once
#include "kernels/reference.h"

namespace attn::kernels {

/// Elementwise operations on f32, f64, or bf16 computed in f32 and rounded once.
enum class Binary : std::uint8_t { add, sub, mul, div };

/// The functions of `Reference` except gemm, with the same names, arguments and bits, and some that are built from
/// them. They take memory of any alignment and any number of elements.
struct RowTarget {
  const char* name;
  void (*unary)(Unary op, Element element, const void* x, void* y, std::int64_t n) noexcept;
  void (*slope)(Slope op, Element element, const void* dy, const void* x, void* y, std::int64_t n) noexcept;
  void (*row)(RowOp op, Element element, const void* x, std::int64_t x_stride, void* y, std::int64_t y_stride,
              std::int64_t n) noexcept;
  void (*layer_norm_row)(Element element, const void* x, const void* weight, const void* bias, double eps, void* y,
                         std::int64_t n) noexcept;
  void (*rms_norm_row)(Element element, const void* x, const void* weight, double eps, void* y,
                       std::int64_t n) noexcept;
  void (*norm_gradient_row)(const NormGradientRow& row) noexcept;
  void (*moments_row)(Element element, const void* x, std::int64_t x_stride, std::int64_t n, void* mean,
                      void* deviations) noexcept;
  /// Computes y[c] = sum of the n elements x[i * x_stride + c] for c below `columns`, each in the order of RowOp::sum.
  /// Vector targets also accept bf16, with y in f32.
  void (*sum_columns)(Element element, const void* x, std::int64_t x_stride, std::int64_t n, void* y,
                      std::int64_t columns) noexcept;
  /// Computes softmax or log_softmax of `columns` adjacent rows: row c is x[i * x_stride + c], its results are y[i *
  /// y_stride + c]. y may be x.
  void (*softmax_columns)(RowOp op, Element element, const void* x, std::int64_t x_stride, void* y,
                          std::int64_t y_stride, std::int64_t n, std::int64_t columns) noexcept;
  /// row, layer_norm_row and rms_norm_row for results that are too large to stay in a cache: they are written past the
  /// caches, so that their old content is not read first. The row after x is prefetched meanwhile.
  void (*row_to_memory)(RowOp op, Element element, const void* x, std::int64_t x_stride, void* y, std::int64_t y_stride,
                        std::int64_t n) noexcept;
  void (*layer_norm_row_to_memory)(Element element, const void* x, const void* weight, const void* bias, double eps,
                                   void* y, std::int64_t n) noexcept;
  void (*rms_norm_row_to_memory)(Element element, const void* x, const void* weight, double eps, void* y,
                                 std::int64_t n) noexcept;
  /// Copies memory and writes past the caches. Other threads may read the data after `end_of_streams`, which waits for
  /// the writes and is therefore called once for many copies.
  void (*stream)(const void* from, void* to, std::int64_t bytes) noexcept;
  void (*end_of_streams)() noexcept;
  /// Convert n elements of bf16 or f16 to f32, exactly, and back to nearest even, with the bits of kernels/half.h. Null
  /// if the target has no vectors.
  void (*widen)(Element half, const void* x, void* y, std::int64_t n) noexcept = nullptr;
  void (*narrow)(Element half, const void* x, void* y, std::int64_t n) noexcept = nullptr;
  /// Computes y[i] = a[i] op b[i], or a[i] op `one` if b is null; f32, f64 or bf16. y may be a or b. Null if the target
  /// has no vectors.
  void (*binary)(Binary op, Element element, const void* a, const void* b, double one, void* y,
                 std::int64_t n) noexcept = nullptr;
};

/// Returns the target of that name ("amx": that of "avx512"); null if it is not built in.
const RowTarget* row_target(const char* name) noexcept;

/// Returns the functions of the target in use; those of the reference code if it has no vector kernels.
const RowTarget& row_kernels();

}  // namespace attn::kernels
