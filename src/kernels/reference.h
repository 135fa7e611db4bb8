// src/kernels/reference.h: declares the reference code of everything except random numbers, as a table of functions.
#pragma once
#include "kernels/attention/problem.h"  // Element
#include "kernels/block_format.h"
#include "kernels/recurrence.h"

#include <cstdint>

namespace attn::kernels {

enum class Unary : std::uint8_t { exp, exp2, log, log2, tanh, erf, sin, cos, sigmoid, silu, gelu_none, gelu_tanh };

/// Derivatives of activations. tanh and sigmoid take the result of the activation, the others its argument.
enum class Slope : std::uint8_t { tanh, sigmoid, silu, gelu_none, gelu_tanh };

/// The constants of the derivatives, each rounded once to T.
template <typename T>
struct SlopeConstants {
  // sqrt(1/2); the normal density at 0, 1 / sqrt(2 pi)
  static constexpr T sqrt_half = static_cast<T>(0x1.6a09e667f3bcdp-1),
                     density_at_0 = static_cast<T>(0x1.9884533d43651p-2);
  static constexpr T gelu_scale = static_cast<T>(0x1.9884533d43651p-1), gelu_cubic = static_cast<T>(0.044715),
                     gelu_cubic_slope = static_cast<T>(3 * 0.044715);
};

/// The activation that a product applies to its finished sums, bias included. The bits are those of applying the
/// function to the stored result.
enum class Activation : std::uint8_t { none, relu, silu, gelu_none, gelu_tanh };

/// y[m, n] = activation(sum over k of a[m, k] b[k, n] + bias[n]) with any strides, so NN, NT and TN are the same
/// function (docs/numerics.md section 5).
struct GemmProblem {
  std::int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  std::int64_t a_stride[2] = {0, 0};  // row m, column k
  const void* b = nullptr;
  std::int64_t b_stride[2] = {0, 0};  // row k, column n
  const void* bias = nullptr;         // [n] or null; f32 if a and b are bf16
  void* y = nullptr;
  std::int64_t y_stride[2] = {0, 0};
  Element element = Element::f32;  // f32 or f64 for all operands; or bf16 for a and b: kernels/gemm/product.h
  /// The format of b, if it is blocks: `element` is f32, or bf16 where products take it (each weight is then rounded to
  /// bf16). A column of b is a row of blocks, b_stride[1] bytes from the next; b_stride[0] is 1.
  BlockFormat b_blocks = BlockFormat::none;
  // Element of b if `element` is f32: bf16 and f16 are widened exactly; the reference code accepts f32 only.
  Element b_element = Element::f32;
  bool narrow = false;  // if `element` is bf16: true if y is bf16, false if it is f32
  Activation activation = Activation::none;
  std::int64_t threads = 1;  // threads that may share the product; no bit depends on the number

  bool has_blocks() const { return b_blocks != BlockFormat::none; }
  bool has_half_b() const { return element == Element::f32 && b_element != Element::f32; }
};

enum class RowOp : std::uint8_t { sum, sum_of_squares, sum_of_absolutes, max, softmax, log_softmax };

/// Computes the gradient of one row of a norm. With z = (x - mean) g, g = 1 / sqrt(var + eps), and u = dy weight (null:
/// dy): dx = ((u - mean u) - z mean(u z)) g. RMS norm (`rms`): z = x g, g = 1 / sqrt(mean(x x) + eps), dx = (u - z
/// mean(u z)) g.
struct NormGradientRow {
  Element element = Element::f32;
  bool rms = false;
  std::int64_t n = 0;
  double eps = 0;
  const void *x = nullptr, *dy = nullptr, *weight = nullptr;
  void* dx = nullptr;                                 // may be dy
  void *weight_sums = nullptr, *bias_sums = nullptr;  // dy z and dy are added to these; or null
};

struct AttentionReference;  // kernels/attention/reference.h
struct GradientKernel;      // kernels/attention/backward_problem.h

/// The functions of one build of src/kernels/ref. Memory is contiguous where no stride is given; Element is f32 or f64.
struct Reference {
  const char* build;  // "fma" or "generic"
  void (*unary)(Unary op, Element element, const void* x, void* y, std::int64_t n) noexcept;
  /// Computes y[i] = dy[i] times the slope at x[i]; y may be dy.
  void (*slope)(Slope op, Element element, const void* dy, const void* x, void* y, std::int64_t n) noexcept;
  /// Computes rows [begin, end) of the product.
  void (*gemm)(const GemmProblem& problem, std::int64_t begin, std::int64_t end) noexcept;
  /// Decodes `count` blocks.
  void (*decode_blocks)(BlockFormat format, const void* blocks, std::int64_t count, float* to) noexcept;
  /// Reduces one row of n elements that are x_stride apart. softmax and log_softmax write n results, y_stride apart;
  /// the other operations write one value.
  void (*row)(RowOp op, Element element, const void* x, std::int64_t x_stride, void* y, std::int64_t y_stride,
              std::int64_t n) noexcept;
  /// Computes one row: (x - mean) / sqrt(var + eps) * weight + bias (null: none); biased variance.
  void (*layer_norm_row)(Element element, const void* x, const void* weight, const void* bias, double eps, void* y,
                         std::int64_t n) noexcept;
  /// Computes one row: x / sqrt(mean x^2 + eps) * weight (null: none).
  void (*rms_norm_row)(Element element, const void* x, const void* weight, double eps, void* y,
                       std::int64_t n) noexcept;
  void (*norm_gradient_row)(const NormGradientRow& row) noexcept;
  /// Computes mean and sum of squared deviations of one row.
  void (*moments_row)(Element element, const void* x, std::int64_t x_stride, std::int64_t n, void* mean,
                      void* deviations) noexcept;
  const AttentionReference* attention;
  /// The backward pass of attention: in f32 and f64; in bf16 by the processor's dot product of pairs (index 0), and by
  /// AMX tiles (index 1).
  const GradientKernel* gradient;
  const GradientKernel* bf16_gradient[2];
};

/// Returns the build for this processor: with FMA instructions if it has them.
const Reference& reference() noexcept;
/// Return the build without and the build with FMA instructions, for the test that their bits agree. The second is null
/// if it does not exist or cannot run.
const Reference* reference_generic() noexcept;
const Reference* reference_fma() noexcept;

}  // namespace attn::kernels
