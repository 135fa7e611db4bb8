// include/attn/ops.h: declares the operations on tensors, with torch's names, broadcasting and type rules.
#pragma once
#include <attn/tensor.h>

#include <initializer_list>
#include <limits>
#include <string_view>

namespace attn {

// If a function takes `out`, it writes the result to that tensor and returns it. `out` must have the result's shape and
// dtype (else ShapeError or DtypeError); it may be an input. Use the returned tensor for gradients; an `out` that
// requires a gradient is a ValueError, and so is one whose elements overlap in memory. Other results own their memory.
// Dims count from 0, or from the end when negative; a dim that does not exist is a ShapeError. A function with the name
// of a torch function does the same: docs/torch.md lists the differences.

// --- making tensors ----------------------------------------------------------------------------------------------
/// `empty` leaves the elements uninitialised; the other functions fill them as their names say. ShapeError for a
/// negative size. ValueError for a number that the dtype cannot hold, here and in `fill_`, `masked_fill` and `where`
/// (bf16 and f16 round it to inf).
ATTN_API Tensor empty(Dims sizes, Dtype dtype = Dtype::f32);
ATTN_API Tensor zeros(Dims sizes, Dtype dtype = Dtype::f32);
ATTN_API Tensor ones(Dims sizes, Dtype dtype = Dtype::f32);
ATTN_API Tensor full(Dims sizes, Scalar value, Dtype dtype = Dtype::f32);
/// Returns the identity matrix [n, n].
ATTN_API Tensor eye(std::int64_t n, Dtype dtype = Dtype::f32);
/// These return a tensor with the sizes and dtype of x.
ATTN_API Tensor zeros_like(const Tensor& x);
ATTN_API Tensor ones_like(const Tensor& x);
ATTN_API Tensor empty_like(const Tensor& x);
/// Returns start, start + step, ... below end; i64 when all three are integers, else f32 (or `dtype`). ValueError for a
/// step that is 0 or has the wrong sign.
ATTN_API Tensor arange(Scalar end);
ATTN_API Tensor arange(Scalar start, Scalar end, Scalar step = 1, std::optional<Dtype> dtype = std::nullopt);
/// Returns `steps` numbers from `start` to `end`, both included, each computed from the nearer end as torch does.
ATTN_API Tensor linspace(double start, double end, std::int64_t steps, Dtype dtype = Dtype::f32);
/// Returns i64 [.., classes] with a 1 at each index; classes = -1 means max + 1. ValueError names an index out of
/// range.
ATTN_API Tensor one_hot(const Tensor& index, std::int64_t classes = -1);
/// Makes a tensor of values in row-major order: tensor<float>({1, 2, 3, 4}, {2, 2}). Without sizes: rank 1.
template <typename T>
Tensor tensor(const std::vector<T>& values, Dims sizes) {
  Tensor result = empty(sizes, dtype_of<T>);
  if (static_cast<std::int64_t>(values.size()) != result.numel())
    throw ShapeError("tensor: " + std::to_string(values.size()) + " values do not fill shape " + to_string(sizes));
  T* data = result.data<T>();
  for (const auto& value : values) *data++ = value;
  return result;
}
template <typename T>
Tensor tensor(const std::vector<T>& values) {
  return tensor<T>(values, Dims{static_cast<std::int64_t>(values.size())});
}
template <typename T>
Tensor tensor(std::initializer_list<T> values) {
  return tensor<T>(std::vector<T>(values));
}
/// Makes a tensor of rank 0.
template <typename T>
Tensor scalar_tensor(T value) {
  return tensor<T>(std::vector<T>{value}, Dims{});
}
/// Makes a matrix of rows: tensor2d({{1, 2}, {3, 4}}).
ATTN_API Tensor tensor2d(std::initializer_list<std::initializer_list<float>> rows);

/// `cat` concatenates along an existing dim (the sizes may differ in that dim only); `stack` joins along a new dim (all
/// sizes equal).
ATTN_API Tensor cat(const std::vector<Tensor>& tensors, int dim = 0);
ATTN_API Tensor stack(const std::vector<Tensor>& tensors, int dim = 0);

// --- elementwise, broadcasting; result type by torch's promotion -------------------------------------------------
// Integers wrap around. Integer division gives f32. bf16 and f16 are computed in f32 and rounded once. ShapeError when
// the shapes do not broadcast. A Scalar changes the dtype only if its kind ranks higher (bool < integer < floating).
ATTN_API Tensor add(const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor sub(const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor mul(const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor div(const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor add(const Tensor& a, Scalar b);
ATTN_API Tensor sub(const Tensor& a, Scalar b);
ATTN_API Tensor mul(const Tensor& a, Scalar b);
ATTN_API Tensor div(const Tensor& a, Scalar b);
/// A floating tensor to the power 1, 2, 3, 0.5, -0.5, -1 or -2 (a Scalar) is computed by products, square roots and
/// reciprocals. Otherwise, for x positive and x and p finite, in f32, bf16 and f16: e^(p log x) in f64, rounded once.
/// Otherwise the C library's pow in f64: this is the only function here whose last bit depends on the C library.
ATTN_API Tensor pow(const Tensor& a, Scalar exponent, Tensor out = {});
ATTN_API Tensor pow(const Tensor& a, const Tensor& exponent, Tensor out = {});
/// These compute elementwise; the result is NaN if either operand is NaN.
ATTN_API Tensor maximum(const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor minimum(const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor neg(const Tensor& a);
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, Scalar b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, Scalar b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, Scalar b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, Scalar b) { return div(a, b); }
inline Tensor operator+(Scalar a, const Tensor& b) { return add(b, a); }
inline Tensor operator*(Scalar a, const Tensor& b) { return mul(b, a); }
ATTN_API Tensor operator-(Scalar a, const Tensor& b);
ATTN_API Tensor operator/(Scalar a, const Tensor& b);
inline Tensor operator-(const Tensor& a) { return neg(a); }

/// These return bool. A comparison with NaN is false, except `ne`, which is true. The logical functions treat any
/// number except 0 as true.
ATTN_API Tensor eq(const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor ne(const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor lt(const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor le(const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor gt(const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor ge(const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor eq(const Tensor& a, Scalar b, Tensor out = {});
ATTN_API Tensor ne(const Tensor& a, Scalar b, Tensor out = {});
ATTN_API Tensor lt(const Tensor& a, Scalar b, Tensor out = {});
ATTN_API Tensor le(const Tensor& a, Scalar b, Tensor out = {});
ATTN_API Tensor gt(const Tensor& a, Scalar b, Tensor out = {});
ATTN_API Tensor ge(const Tensor& a, Scalar b, Tensor out = {});
ATTN_API Tensor logical_and(const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor logical_or(const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor logical_not(const Tensor& a, Tensor out = {});

/// Selects a where the condition (bool) is true, else b. DtypeError for a condition of another dtype.
ATTN_API Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
ATTN_API Tensor where(const Tensor& condition, Scalar a, const Tensor& b);
/// Returns x with `value` where the mask (bool) is True; both broadcast.
ATTN_API Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value);
/// Returns x [.., M, N] with zeros above (tril) or below (triu) the diagonal; `diagonal` = 1 is one column further
/// right.
ATTN_API Tensor tril(const Tensor& x, std::int64_t diagonal = 0);
ATTN_API Tensor triu(const Tensor& x, std::int64_t diagonal = 0);

/// Elementary functions; docs/numerics.md section 1 has formulas, coefficients and errors. Integers and bool give f32;
/// `abs` and `relu` keep the dtype; `silu` and `gelu` take floating types only, as in torch.
ATTN_API Tensor exp(const Tensor& x, Tensor out = {});
ATTN_API Tensor log(const Tensor& x, Tensor out = {});
ATTN_API Tensor sqrt(const Tensor& x, Tensor out = {});
ATTN_API Tensor abs(const Tensor& x, Tensor out = {});
ATTN_API Tensor sin(const Tensor& x, Tensor out = {});
ATTN_API Tensor cos(const Tensor& x, Tensor out = {});
ATTN_API Tensor erf(const Tensor& x, Tensor out = {});
ATTN_API Tensor tanh(const Tensor& x, Tensor out = {});
ATTN_API Tensor sigmoid(const Tensor& x, Tensor out = {});
ATTN_API Tensor relu(const Tensor& x, Tensor out = {});
ATTN_API Tensor silu(const Tensor& x, Tensor out = {});
enum class GeluApproximate { none, tanh };
/// Computes x/2 (1 + erf(x / sqrt 2)), or the tanh form with sqrt(2/pi) and 0.044715. gelu(+inf) is +inf, gelu(-inf) is
/// -0.
ATTN_API Tensor gelu(const Tensor& x, GeluApproximate approximate = GeluApproximate::none, Tensor out = {});
ATTN_API Tensor isnan(const Tensor& x);
ATTN_API Tensor isinf(const Tensor& x);

// --- along dims --------------------------------------------------------------------------------------------------
// Empty `dims` means all dims. docs/numerics.md section 5 defines the order of the sums.
/// Returns the sum; integers and bool are summed in i64.
ATTN_API Tensor sum(const Tensor& x, Dims dims = {}, bool keepdim = false, Tensor out = {});
ATTN_API Tensor mean(const Tensor& x, Dims dims = {}, bool keepdim = false, Tensor out = {});
/// Computes sum (x - mean)^2 / (n - 1), or / n if `unbiased` is false.
ATTN_API Tensor var(const Tensor& x, Dims dims = {}, bool unbiased = true, bool keepdim = false, Tensor out = {});
/// Computes (sum |x|^p)^(1/p); p may be 0 (counts the elements that are not 0), inf and -inf.
ATTN_API Tensor norm(const Tensor& x, double p = 2.0, Dims dims = {}, bool keepdim = false);
/// Return the largest and the smallest element. ValueError for an empty tensor.
ATTN_API Tensor max(const Tensor& x);
ATTN_API Tensor min(const Tensor& x);
/// Returns the largest values along `dim` and their i64 indices; the first of equal elements; NaN counts as the
/// largest.
ATTN_API std::pair<Tensor, Tensor> max(const Tensor& x, int dim, bool keepdim = false);
ATTN_API Tensor argmax(const Tensor& x, std::optional<int> dim = std::nullopt, bool keepdim = false);
/// Returns the running sum along `dim`.
ATTN_API Tensor cumsum(const Tensor& x, int dim);
/// Computes exp(x_i - max) / sum; a row of -inf gives NaN (`attention` gives 0 there). `log_softmax` is its logarithm.
ATTN_API Tensor softmax(const Tensor& x, int dim, Tensor out = {});
ATTN_API Tensor log_softmax(const Tensor& x, int dim, Tensor out = {});
/// Computes (x - mean) / sqrt(var + eps) * weight + bias over the last dims `normalized_shape`; biased variance.
ATTN_API Tensor layer_norm(const Tensor& x, Dims normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                           double eps = 1e-5, Tensor out = {});
/// Computes x / sqrt(mean x^2 + eps) * weight over the last dims `normalized_shape`. Default eps: the machine epsilon
/// of x's dtype (of f32 for bf16 and f16). Source: Zhang 2019 (1910.07467).
ATTN_API Tensor rms_norm(const Tensor& x, Dims normalized_shape, const Tensor& weight = {},
                         std::optional<double> eps = std::nullopt, Tensor out = {});
/// Rotates the pairs (x_i, x_{i + D/2}) of the last dim D: (x1 cos - x2 sin, x2 cos + x1 sin). cos and sin have D/2 in
/// place of D and broadcast to x; for half floats they are f32. Each product is rounded, then the sum. Source: Su 2021
/// (2104.09864). nn::RotaryEmbedding makes the tables.
ATTN_API Tensor rotary(const Tensor& x, const Tensor& cos, const Tensor& sin);
/// Returns whether every element (`any`: at least one element) is not 0.
ATTN_API bool all(const Tensor& x);
ATTN_API bool any(const Tensor& x);

// --- losses ------------------------------------------------------------------------------------------------------
enum class Reduction { mean, sum, none };
struct CrossEntropyOptions {
  Tensor weight = {};  ///< [C], the weight of each class; gets no gradient
  /// rows with this target are left out; must be below 0 if the targets are probabilities
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;  ///< this fraction of the target is spread evenly over all classes
  Reduction reduction = Reduction::mean;
};
/// Computes -w_t log softmax(logits)_t. logits are [N, C] (or [C], [N, C, ...]). Targets are classes t [N] (or [], [N,
/// ...]) of i64 or i32, or probabilities of the logits' shape. The mean divides by the sum of the weights of the
/// targets that are not left out (by N for probabilities); it is NaN if that sum is 0. ValueError names a target out of
/// range. Half floats are computed in f32 and rounded once.
ATTN_API Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options = {});

// --- products ----------------------------------------------------------------------------------------------------
/// Computes torch.matmul: rank 1 is a vector, rank 2 a matrix, a higher rank a broadcast batch of matrices. f32, f64;
/// bf16 and f16 are multiplied in f32 and rounded once. docs/numerics.md section 5 defines the order of the sums.
ATTN_API Tensor matmul(const Tensor& a, const Tensor& b, Tensor out = {});
/// Multiplies batches of matrices: [B, M, K] x [B, K, N] -> [B, M, N].
ATTN_API Tensor bmm(const Tensor& a, const Tensor& b, Tensor out = {});
/// Computes the inner product of two vectors of equal length.
ATTN_API Tensor dot(const Tensor& a, const Tensor& b);
/// Computes x W^T + bias for x [..., in], weight [out, in], bias [out] or undefined.
ATTN_API Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Tensor out = {});
/// Computes torch.einsum: letters, repeated letters (diagonals), implicit and explicit outputs, "...", any number of
/// operands. A sum over a single operand has the dtype of sum().
ATTN_API Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands);
/// Selects rows of `weight` [V, C] by i64 (or i32) `index` of any shape -> [..., C]; ValueError names an index out of
/// range.
ATTN_API Tensor embedding(const Tensor& index, const Tensor& weight);

// --- comparing ---------------------------------------------------------------------------------------------------
/// Returns whether |a - b| <= atol + rtol |b| everywhere, as torch.allclose.
ATTN_API bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
                       bool equal_nan = false);
/// Returns whether shape, dtype and bits are the same (any NaN equals any NaN; +0 and -0 differ).
ATTN_API bool same_bits(const Tensor& a, const Tensor& b);

}  // namespace attn
