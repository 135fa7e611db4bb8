// src/kernels/rows/rows.cc: computes sums, softmax, moments and norms along rows, and functions of elements; compiled
// once for every instruction set.
#include "kernels/rows/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rows/rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/rows/columns-inl.h"
#include "kernels/rows/elements-inl.h"
#include "kernels/rows/halves-inl.h"
#include "kernels/rows/norms-inl.h"
#include "kernels/rows/slopes-inl.h"
#include "kernels/rows/softmax-inl.h"
#include "kernels/rows/unary-inl.h"
#include "kernels/targets.h"
#include "runtime/cpu.h"
#include "runtime/once.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Where the results of a row go: large data is f32, so only f32 is written past the caches.
template <typename T, To TO>
inline constexpr To to_of = sizeof(T) == 4 ? TO : To::caches;

template <To TO, typename T>
void row_of(RowOp op, const T* x, T* y, std::int64_t n) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  switch (op) {
    case RowOp::sum:
      *y = canonical_scalar(tree_sum<T>(
          n, [&](V s, std::int64_t i, std::int64_t count) HWY_ATTR { return hn::Add(s, load_some(d, x + i, count)); }));
      return;
    case RowOp::sum_of_squares: *y = canonical_scalar(sum_of_squares(x, n)); return;
    case RowOp::sum_of_absolutes:
      *y = canonical_scalar(tree_sum<T>(n, [&](V s, std::int64_t i, std::int64_t count)
                                               HWY_ATTR { return hn::Add(s, hn::Abs(load_some(d, x + i, count))); }));
      return;
    case RowOp::max: *y = largest(x, n); return;
    case RowOp::softmax: return softmax<T, to_of<T, TO>>(x, y, n);
    case RowOp::log_softmax: return log_softmax<T, to_of<T, TO>>(x, y, n);
  }
}

/// Calls run(T{}) with float or double.
template <typename Run>
void with_element(Element element, Run run) {
  element == Element::f64 ? run(double{}) : run(float{});
}

void unary(Unary op, Element element, const void* x, void* y, std::int64_t n) noexcept {
  with_element(element, [&]<typename T>(T) { unary_of(op, static_cast<const T*>(x), static_cast<T*>(y), n); });
}
void slope(Slope op, Element element, const void* dy, const void* x, void* y, std::int64_t n) noexcept {
  with_element(element, [&]<typename T>(T) {
    slope_of(op, static_cast<const T*>(dy), static_cast<const T*>(x), static_cast<T*>(y), n);
  });
}
void binary(Binary op, Element element, const void* a, const void* b, double one, void* y, std::int64_t n) noexcept {
  if (element == Element::f64) return binary_of<Wide<double>>(op, a, b, one, y, n);
  element == Element::bf16 ? binary_of<Halves>(op, a, b, static_cast<float>(one), y, n)
                           : binary_of<Singles>(op, a, b, static_cast<float>(one), y, n);
}
template <To TO>
void row(RowOp op, Element element, const void* x, std::int64_t x_stride, void* y, std::int64_t y_stride,
         std::int64_t n) noexcept {
  const bool one_value = op != RowOp::softmax && op != RowOp::log_softmax;
  if (x_stride != 1 || (y_stride != 1 && !one_value)) return reference().row(op, element, x, x_stride, y, y_stride, n);
  with_element(element, [&]<typename T>(T) { row_of<TO>(op, static_cast<const T*>(x), static_cast<T*>(y), n); });
}
template <To TO>
void layer_norm_row(Element element, const void* x, const void* weight, const void* bias, double eps, void* y,
                    std::int64_t n) noexcept {
  with_element(element, [&]<typename T>(T) {
    layer_norm<T, to_of<T, TO>>(static_cast<const T*>(x), static_cast<const T*>(weight), static_cast<const T*>(bias),
                                static_cast<T>(eps), static_cast<T*>(y), n);
  });
}
template <To TO>
void rms_norm_row(Element element, const void* x, const void* weight, double eps, void* y, std::int64_t n) noexcept {
  with_element(element, [&]<typename T>(T) {
    rms_norm<T, to_of<T, TO>>(static_cast<const T*>(x), static_cast<const T*>(weight), static_cast<T>(eps),
                              static_cast<T*>(y), n);
  });
}

void norm_gradient_row(const NormGradientRow& row) noexcept {
  with_element(row.element, [&]<typename T>(T) { norm_gradient<T>(row); });
}

void moments_row(Element element, const void* x, std::int64_t x_stride, std::int64_t n, void* mean,
                 void* deviations) noexcept {
  if (x_stride != 1) return reference().moments_row(element, x, x_stride, n, mean, deviations);
  with_element(element, [&]<typename T>(T) {
    moments(static_cast<const T*>(x), n, static_cast<T*>(mean), static_cast<T*>(deviations));
  });
}

void sum_columns(Element element, const void* x, std::int64_t x_stride, std::int64_t n, void* y,
                 std::int64_t columns) noexcept {
  if (element == Element::bf16)
    return sum_columns_of<Halves>(static_cast<const std::uint16_t*>(x), x_stride, n, static_cast<float*>(y), columns);
  with_element(element, [&]<typename T>(T) {
    sum_columns_of<Wide<T>>(static_cast<const T*>(x), x_stride, n, static_cast<T*>(y), columns);
  });
}

void softmax_columns(RowOp op, Element element, const void* x, std::int64_t x_stride, void* y, std::int64_t y_stride,
                     std::int64_t n, std::int64_t columns) noexcept {
  with_element(element, [&]<typename T>(T) {
    constexpr std::int64_t N = HWY_LANES(T);
    for (std::int64_t c = 0; c < columns; c += N)
      softmax_of_columns(op, static_cast<const T*>(x) + c, x_stride, static_cast<T*>(y) + c, y_stride, n,
                         std::min(N, columns - c));
  });
}

void stream(const void* from, void* to, std::int64_t bytes) noexcept {
  const hn::ScalableTag<std::uint8_t> d;
  constexpr std::int64_t N = HWY_LANES(std::uint8_t), line = 64;
  const auto* x = static_cast<const std::uint8_t*>(from);
  auto* y = static_cast<std::uint8_t*>(to);
  const std::int64_t head =
      std::min(bytes, (line - static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % line)) % line);
  std::memcpy(y, x, static_cast<std::size_t>(head));
  std::int64_t i = head;
  for (; i + line <= bytes; i += line) {
    _Pragma("GCC unroll 4") for (std::int64_t v = 0; v < line; v += N)
        hn::Stream(hn::LoadU(d, x + i + v), d, y + i + v);
  }
  std::memcpy(y + i, x + i, static_cast<std::size_t>(bytes - i));
}
void end_of_streams() noexcept { hwy::FlushStream(); }

void widen(Element half, const void* x, void* y, std::int64_t n) noexcept {
  const auto* from = static_cast<const std::uint16_t*>(x);
  auto* to = static_cast<std::uint32_t*>(y);
  half == Element::bf16 ? widen_by(WidenBf16(), from, to, n) : widen_by(WidenF16(), from, to, n);
}
void narrow(Element half, const void* x, void* y, std::int64_t n) noexcept {
  const auto* from = static_cast<const std::uint32_t*>(x);
  auto* to = static_cast<std::uint16_t*>(y);
  half == Element::bf16 ? narrow_by(NarrowBf16(), from, to, n) : narrow_by(NarrowF16(), from, to, n);
}

extern const RowTarget row_table;
const RowTarget row_table = {
    .name = ATTN_TARGET_NAME,
    .unary = unary,
    .slope = slope,
    .row = row<To::caches>,
    .layer_norm_row = layer_norm_row<To::caches>,
    .rms_norm_row = rms_norm_row<To::caches>,
    .norm_gradient_row = norm_gradient_row,
    .moments_row = moments_row,
    .sum_columns = sum_columns,
    .softmax_columns = softmax_columns,
    .row_to_memory = row<To::memory>,
    .layer_norm_row_to_memory = layer_norm_row<To::memory>,
    .rms_norm_row_to_memory = rms_norm_row<To::memory>,
    .stream = stream,
    .end_of_streams = end_of_streams,
    .widen = widen,
    .narrow = narrow,
    .binary = binary,
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::kernels {

const RowTarget* row_target(const char* name) noexcept {
  return find_table<RowTarget>({ATTN_TABLES(row_table)}, runtime::vectors_of(name));
}

namespace {
/// Computes columns one by one with the reference code; sums are written y_stride = 1 apart.
void columns_by_specification(RowOp op, Element element, const void* x, std::int64_t x_stride, void* y,
                              std::int64_t y_stride, std::int64_t n, std::int64_t columns) noexcept {
  const std::int64_t size = element == Element::f64 ? 8 : 4;
  for (std::int64_t c = 0; c < columns; ++c)
    reference().row(op, element, static_cast<const char*>(x) + c * size, x_stride, static_cast<char*>(y) + c * size,
                    y_stride, n);
}
void sum_columns_by_specification(Element element, const void* x, std::int64_t x_stride, std::int64_t n, void* y,
                                  std::int64_t columns) noexcept {
  columns_by_specification(RowOp::sum, element, x, x_stride, y, 1, n, columns);
}
void copy(const void* from, void* to, std::int64_t bytes) noexcept {
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}
void nothing() noexcept {}
}  // namespace

const RowTarget& row_kernels() {
  constinit static runtime::Once<RowTarget> chosen;
  return chosen.get([] {
    if (const RowTarget* target = row_target(runtime::target().c_str())) return *target;
    return RowTarget{.name = "scalar",
                     .unary = reference().unary,
                     .slope = reference().slope,
                     .row = reference().row,
                     .layer_norm_row = reference().layer_norm_row,
                     .rms_norm_row = reference().rms_norm_row,
                     .norm_gradient_row = reference().norm_gradient_row,
                     .moments_row = reference().moments_row,
                     .sum_columns = sum_columns_by_specification,
                     .softmax_columns = columns_by_specification,
                     .row_to_memory = reference().row,
                     .layer_norm_row_to_memory = reference().layer_norm_row,
                     .rms_norm_row_to_memory = reference().rms_norm_row,
                     .stream = copy,
                     .end_of_streams = nothing};
  });
}

}  // namespace attn::kernels
#endif
