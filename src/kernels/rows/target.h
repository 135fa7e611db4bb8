// src/kernels/rows/target.h: sums along rows, softmax, norms and elementary functions of one instruction set.
#pragma once
#include "kernels/reference.h"

namespace attn::kernels {

/// Of elements: f32, f64, or bf16 computed in f32 and rounded once.
enum class Binary : std::uint8_t { add, sub, mul, div };

/// The functions of `Reference` with the same names, arguments and bits, and what they make together. Any memory, any
/// number of elements.
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
  /// y[c] = sum of the n elements x[i * x_stride + c], c below `columns`: each in the order of RowOp::sum. With vectors
  /// bf16 too, y in f32.
  void (*sum_columns)(Element element, const void* x, std::int64_t x_stride, std::int64_t n, void* y,
                      std::int64_t columns) noexcept;
  /// softmax or log_softmax of `columns` rows that lie side by side: row c holds x[i * x_stride + c], its results are
  /// y[i * y_stride + c]. y may be x.
  void (*softmax_columns)(RowOp op, Element element, const void* x, std::int64_t x_stride, void* y,
                          std::int64_t y_stride, std::int64_t n, std::int64_t columns) noexcept;
  /// The same rows from memory to memory, for results too many to be found in a cache again: written past the caches,
  /// so that the memory is not read before it is written; the row that lies behind x is fetched meanwhile.
  void (*row_to_memory)(RowOp op, Element element, const void* x, std::int64_t x_stride, void* y, std::int64_t y_stride,
                        std::int64_t n) noexcept;
  void (*layer_norm_row_to_memory)(Element element, const void* x, const void* weight, const void* bias, double eps,
                                   void* y, std::int64_t n) noexcept;
  void (*rms_norm_row_to_memory)(Element element, const void* x, const void* weight, double eps, void* y,
                                 std::int64_t n) noexcept;
  /// Copies past the caches; other threads may read what was written after `end_of_streams`. It waits, so it is called
  /// once for many.
  void (*stream)(const void* from, void* to, std::int64_t bytes) noexcept;
  void (*end_of_streams)() noexcept;
  /// n elements of bf16 or f16 in f32, exactly, and back to nearest even: the bits of half.h in the room of the
  /// tensors. Null where there are no vectors.
  void (*widen)(Element half, const void* x, void* y, std::int64_t n) noexcept = nullptr;
  void (*narrow)(Element half, const void* x, void* y, std::int64_t n) noexcept = nullptr;
  /// y[i] = a[i] op b[i], or a[i] op `one` where b is null; f32, f64 or bf16. y may be a or b. Null where there are no
  /// vectors.
  void (*binary)(Binary op, Element element, const void* a, const void* b, double one, void* y,
                 std::int64_t n) noexcept = nullptr;
};

/// By name, or null when the target is not built in.
const RowTarget* row_target(const char* name) noexcept;

/// The best of this processor, the specification where there is no vector kernel.
const RowTarget& row_kernels();

}  // namespace attn::kernels
