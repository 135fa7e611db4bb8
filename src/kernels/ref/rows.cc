// src/kernels/ref/rows.cc: sums along a row in a fixed order, and computes softmax, moments and norms from such sums.
#include "kernels/ref/math.h"
#include "kernels/ref/table.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {
namespace {

/// Sums n elements: 16 strided partial sums in blocks of 4,096, each block reduced by the tree 8, 4, 2, 1; block sums
/// by a pairwise tree whose left side has the largest power of two below the count. `add(partial, i)` adds element i.
template <typename T, typename Add>
T tree_sum(std::int64_t n, Add add) {
  constexpr std::int64_t block = 4096;
  T stack[56];  // sums of 2^level blocks that wait for their right neighbour, like the bits of a binary counter
  int depth = 0;
  std::int64_t blocks = 0;
  for (std::int64_t start = 0; start < n; start += block) {
    const std::int64_t end = n - start < block ? n : start + block;
    T partial[16] = {};
    std::int64_t i = start;
    for (; i + 16 <= end; i += 16)
      for (int lane = 0; lane < 16; ++lane) partial[lane] = add(partial[lane], i + lane);
    for (int lane = 0; i + lane < end; ++lane) partial[lane] = add(partial[lane], i + lane);
    for (int half = 8; half > 0; half /= 2)
      for (int lane = 0; lane < half; ++lane) partial[lane] += partial[lane + half];
    T sum = partial[0];
    for (std::int64_t bit = blocks; (bit & 1) != 0; bit >>= 1) sum = stack[--depth] + sum;
    stack[depth++] = sum;
    ++blocks;
  }
  if (depth == 0) return T(0);
  T sum = stack[--depth];
  while (depth > 0) sum = stack[--depth] + sum;
  return sum;
}

template <typename T>
T largest(const T* x, std::int64_t stride, std::int64_t n) {
  T result = -infinity<T>();
  for (std::int64_t i = 0; i < n; ++i) {
    const T value = x[i * stride];
    if (value != value) return quiet_nan<T>();
    if (value > result) result = value;
  }
  return result + T(0);
}

/// Computes the weights exp2((x - m) log2e), as the attention kernels do, and multiplies them by 1 / their sum.
template <typename T>
void softmax(const T* x, std::int64_t x_stride, T* y, std::int64_t y_stride, std::int64_t n) {
  const T m = largest(x, x_stride, n);
  const T sum = tree_sum<T>(n, [&](T partial, std::int64_t i) {
    const T p = weight_of(x[i * x_stride], m);
    y[i * y_stride] = p;
    return partial + p;
  });
  const T inverse = T(1) / sum;
  for (std::int64_t i = 0; i < n; ++i) y[i * y_stride] = canonical(fma(y[i * y_stride], inverse, T(0)));
}

template <typename T>
void log_softmax(const T* x, std::int64_t x_stride, T* y, std::int64_t y_stride, std::int64_t n) {
  const T m = largest(x, x_stride, n);
  const T sum = tree_sum<T>(n, [&](T partial, std::int64_t i) { return partial + weight_of(x[i * x_stride], m); });
  const T log_sum = log(sum);
  for (std::int64_t i = 0; i < n; ++i) y[i * y_stride] = canonical(((x[i * x_stride] - m) - log_sum) + T(0));
}

template <typename T>
void moments(const T* x, std::int64_t stride, std::int64_t n, T* mean, T* deviations) {
  const T middle =
      tree_sum<T>(n, [&](T partial, std::int64_t i) { return partial + x[i * stride]; }) / static_cast<T>(n);
  *mean = canonical(middle);
  *deviations = canonical(tree_sum<T>(n, [&](T partial, std::int64_t i) {
    const T d = x[i * stride] - middle;
    return fma(d, d, partial);
  }));
}

template <typename T>
void layer_norm(const T* x, const T* weight, const T* bias, T eps, T* y, std::int64_t n) {
  T mean, deviations;
  moments(x, 1, n, &mean, &deviations);
  const T scale = T(1) / sqrt(deviations / static_cast<T>(n) + eps);
  for (std::int64_t i = 0; i < n; ++i) {
    const T normal = (x[i] - mean) * scale, w = weight != nullptr ? weight[i] : T(1),
            b = bias != nullptr ? bias[i] : T(0);
    y[i] = canonical(fma(normal, w, b));
  }
}

template <typename T>
void norm_gradient(const NormGradientRow& row) {
  const T *x = static_cast<const T*>(row.x), *dy = static_cast<const T*>(row.dy),
          *weight = static_cast<const T*>(row.weight);
  T *weight_sums = static_cast<T*>(row.weight_sums), *bias_sums = static_cast<T*>(row.bias_sums);
  const T n = static_cast<T>(row.n);
  T mean = 0, squares;
  if (row.rms)
    squares = canonical(tree_sum<T>(row.n, [&](T partial, std::int64_t i) { return partial + x[i] * x[i]; }));
  else moments(x, 1, row.n, &mean, &squares);
  const T inverse = T(1) / sqrt(squares / n + static_cast<T>(row.eps));
  const auto z = [&](std::int64_t i) { return (row.rms ? x[i] : x[i] - mean) * inverse; };
  const auto u = [&](std::int64_t i) { return weight != nullptr ? dy[i] * weight[i] : dy[i]; };
  const T mean_u =
      row.rms ? T(0) : canonical(tree_sum<T>(row.n, [&](T partial, std::int64_t i) { return partial + u(i); })) / n;
  const T mean_uz = canonical(tree_sum<T>(row.n, [&](T partial, std::int64_t i) { return partial + u(i) * z(i); })) / n;
  for (std::int64_t i = 0; i < row.n; ++i) {
    if (weight_sums != nullptr) weight_sums[i] += dy[i] * z(i);
    if (bias_sums != nullptr) bias_sums[i] += dy[i];
    const T centered = row.rms ? u(i) : u(i) - mean_u;
    static_cast<T*>(row.dx)[i] = canonical((centered - z(i) * mean_uz) * inverse);
  }
}

template <typename T>
void rms_norm(const T* x, const T* weight, T eps, T* y, std::int64_t n) {
  const T squares = tree_sum<T>(n, [&](T partial, std::int64_t i) { return fma(x[i], x[i], partial); });
  const T scale = T(1) / sqrt(squares / static_cast<T>(n) + eps);
  for (std::int64_t i = 0; i < n; ++i) y[i] = canonical(weight != nullptr ? x[i] * scale * weight[i] : x[i] * scale);
}

template <typename T>
void row_of(RowOp op, const T* x, std::int64_t x_stride, T* y, std::int64_t y_stride, std::int64_t n) {
  switch (op) {
    case RowOp::sum:
      *y = canonical(tree_sum<T>(n, [&](T partial, std::int64_t i) { return partial + x[i * x_stride]; }));
      return;
    case RowOp::sum_of_squares:
      *y = canonical(
          tree_sum<T>(n, [&](T partial, std::int64_t i) { return fma(x[i * x_stride], x[i * x_stride], partial); }));
      return;
    case RowOp::sum_of_absolutes:
      *y = canonical(tree_sum<T>(n, [&](T partial, std::int64_t i) { return partial + abs(x[i * x_stride]); }));
      return;
    case RowOp::max: *y = largest(x, x_stride, n); return;
    case RowOp::softmax: return softmax(x, x_stride, y, y_stride, n);
    case RowOp::log_softmax: return log_softmax(x, x_stride, y, y_stride, n);
  }
}

/// Calls run(T{}) with float or double.
template <typename Run>
void with_element(Element element, Run run) {
  element == Element::f64 ? run(double{}) : run(float{});
}

}  // namespace

void row(RowOp op, Element element, const void* x, std::int64_t x_stride, void* y, std::int64_t y_stride,
         std::int64_t n) noexcept {
  with_element(element,
               [&]<typename T>(T) { row_of(op, static_cast<const T*>(x), x_stride, static_cast<T*>(y), y_stride, n); });
}

void layer_norm_row(Element element, const void* x, const void* weight, const void* bias, double eps, void* y,
                    std::int64_t n) noexcept {
  with_element(element, [&]<typename T>(T) {
    layer_norm(static_cast<const T*>(x), static_cast<const T*>(weight), static_cast<const T*>(bias),
               static_cast<T>(eps), static_cast<T*>(y), n);
  });
}

void rms_norm_row(Element element, const void* x, const void* weight, double eps, void* y, std::int64_t n) noexcept {
  with_element(element, [&]<typename T>(T) {
    rms_norm(static_cast<const T*>(x), static_cast<const T*>(weight), static_cast<T>(eps), static_cast<T*>(y), n);
  });
}

void norm_gradient_row(const NormGradientRow& row) noexcept {
  with_element(row.element, [&]<typename T>(T) { norm_gradient<T>(row); });
}

void moments_row(Element element, const void* x, std::int64_t x_stride, std::int64_t n, void* mean,
                 void* deviations) noexcept {
  with_element(element, [&]<typename T>(T) {
    moments(static_cast<const T*>(x), x_stride, n, static_cast<T*>(mean), static_cast<T*>(deviations));
  });
}

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
