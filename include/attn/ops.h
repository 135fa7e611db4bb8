// include/attn/ops.h: operations on tensors, with torch's names, broadcasting and type rules.
#pragma once
#include <attn/tensor.h>

#include <initializer_list>
#include <limits>
#include <string_view>

namespace attn {

// Where a function takes `out`, that tensor of the result's shape and dtype receives the result (ShapeError or
// DtypeError otherwise) and is returned; it may be an input. What is recorded belongs to the handle that is returned,
// so `out` must not require a gradient itself (ValueError), and a change in place of elements that share a place is a
// ValueError. Other results own their memory. Dims count from 0, or from the end when negative; one that is not there
// is a ShapeError. Where torch has a function of the name, this is it: docs/torch.md lists the differences.

// --- making tensors ----------------------------------------------------------------------------------------------
/// `empty` holds anything; the others what they say. ShapeError for a negative size; ValueError for a number that the
/// dtype does not hold, here and in `fill_`, `masked_fill` and `where` (bf16 and f16 round it to inf).
ATTN_API Tensor empty(Dims sizes, Dtype dtype = Dtype::f32);
ATTN_API Tensor zeros(Dims sizes, Dtype dtype = Dtype::f32);
ATTN_API Tensor ones(Dims sizes, Dtype dtype = Dtype::f32);
ATTN_API Tensor full(Dims sizes, Scalar value, Dtype dtype = Dtype::f32);
/// The identity [n, n].
ATTN_API Tensor eye(std::int64_t n, Dtype dtype = Dtype::f32);
/// The sizes and dtype of x.
ATTN_API Tensor zeros_like(const Tensor& x);
ATTN_API Tensor ones_like(const Tensor& x);
ATTN_API Tensor empty_like(const Tensor& x);
/// start, start + step, ... below end; i64 when all three are integers, else f32 (or `dtype`). ValueError for a step
/// that does not lead there.
ATTN_API Tensor arange(Scalar end);
ATTN_API Tensor arange(Scalar start, Scalar end, Scalar step = 1, std::optional<Dtype> dtype = std::nullopt);
/// `steps` numbers from `start` to `end`, both included, counted from the nearer end as torch does.
ATTN_API Tensor linspace(double start, double end, std::int64_t steps, Dtype dtype = Dtype::f32);
/// i64 [.., classes] with a 1 at each index; classes = -1 takes max + 1. ValueError names an index out of range.
ATTN_API Tensor one_hot(const Tensor& index, std::int64_t classes = -1);
/// From values in row-major order: tensor<float>({1, 2, 3, 4}, {2, 2}). Empty sizes: rank 1.
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
/// Rank 0.
template <typename T>
Tensor scalar_tensor(T value) {
  return tensor<T>(std::vector<T>{value}, Dims{});
}
/// Rows: tensor2d({{1, 2}, {3, 4}}).
ATTN_API Tensor tensor2d(std::initializer_list<std::initializer_list<float>> rows);

/// One after another along a dim that is there (sizes may differ in it alone), or along a new one (all sizes equal).
ATTN_API Tensor cat(const std::vector<Tensor>& tensors, int dim = 0);
ATTN_API Tensor stack(const std::vector<Tensor>& tensors, int dim = 0);

// --- elementwise, broadcasting; result type by torch's promotion -------------------------------------------------
// Integers wrap around; quotients of integers are f32; bf16 and f16 are computed in f32 and rounded once. ShapeError
// when the shapes do not broadcast. A Scalar changes the dtype only when its kind ranks higher (bool, integer,
// floating).
ATTN_API Tensor add(const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor sub(const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor mul(const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor div(const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor add(const Tensor& a, Scalar b);
ATTN_API Tensor sub(const Tensor& a, Scalar b);
ATTN_API Tensor mul(const Tensor& a, Scalar b);
ATTN_API Tensor div(const Tensor& a, Scalar b);
/// Squares, roots and reciprocals by their own operations; else of positive x in f32, bf16 and f16 e^(p log x) in f64,
/// rounded once; else the C library's pow in f64: the one function here whose last bit it decides.
ATTN_API Tensor pow(const Tensor& a, Scalar exponent, Tensor out = {});
ATTN_API Tensor pow(const Tensor& a, const Tensor& exponent, Tensor out = {});
/// NaN where either is.
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

/// bool; a comparison with NaN is false, `ne` true. The logical ones take a number that is not 0 as true.
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

/// a where the condition (bool) holds, else b. DtypeError for another condition.
ATTN_API Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor out = {});
ATTN_API Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
ATTN_API Tensor where(const Tensor& condition, Scalar a, const Tensor& b);
/// `value` where the mask (bool, broadcast to x) is True.
ATTN_API Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value);
/// x [.., M, N] with zeros above (tril) or below (triu) the diagonal; `diagonal` > 0 is one further right.
ATTN_API Tensor tril(const Tensor& x, std::int64_t diagonal = 0);
ATTN_API Tensor triu(const Tensor& x, std::int64_t diagonal = 0);

/// Elementary functions: formulas, coefficients and errors stand in docs/numerics.md section 1. Integers and bool give
/// f32; `abs` and `relu` keep the dtype, `silu` and `gelu` take floating types alone, as torch's.
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
/// x/2 (1 + erf(x / sqrt 2)), or the tanh form with sqrt(2/pi) and 0.044715. gelu(+inf) is +inf, gelu(-inf) is -0.
ATTN_API Tensor gelu(const Tensor& x, GeluApproximate approximate = GeluApproximate::none, Tensor out = {});
ATTN_API Tensor isnan(const Tensor& x);
ATTN_API Tensor isinf(const Tensor& x);

// --- along dims --------------------------------------------------------------------------------------------------
// Empty `dims` means all. Order of the sums: docs/numerics.md section 5.
/// Integers and bool are summed in i64.
ATTN_API Tensor sum(const Tensor& x, Dims dims = {}, bool keepdim = false, Tensor out = {});
ATTN_API Tensor mean(const Tensor& x, Dims dims = {}, bool keepdim = false, Tensor out = {});
/// sum (x - mean)^2 / (n - 1), or / n when not unbiased.
ATTN_API Tensor var(const Tensor& x, Dims dims = {}, bool unbiased = true, bool keepdim = false, Tensor out = {});
/// (sum |x|^p)^(1/p); p may be 0 (how many are not 0), inf and -inf.
ATTN_API Tensor norm(const Tensor& x, double p = 2.0, Dims dims = {}, bool keepdim = false);
/// ValueError for an empty tensor.
ATTN_API Tensor max(const Tensor& x);
ATTN_API Tensor min(const Tensor& x);
/// Values and i64 indices along `dim`; the first of equals; NaN is the largest.
ATTN_API std::pair<Tensor, Tensor> max(const Tensor& x, int dim, bool keepdim = false);
ATTN_API Tensor argmax(const Tensor& x, std::optional<int> dim = std::nullopt, bool keepdim = false);
/// Sums of all up to here.
ATTN_API Tensor cumsum(const Tensor& x, int dim);
/// exp(x_i - max) / sum; a row of -inf gives NaN (`attention` gives 0 there). `log_softmax` is its logarithm.
ATTN_API Tensor softmax(const Tensor& x, int dim, Tensor out = {});
ATTN_API Tensor log_softmax(const Tensor& x, int dim, Tensor out = {});
/// (x - mean) / sqrt(var + eps) * weight + bias over the last dims `normalized_shape`; biased variance.
ATTN_API Tensor layer_norm(const Tensor& x, Dims normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                           double eps = 1e-5, Tensor out = {});
/// x / sqrt(mean x^2 + eps) * weight over the last dims `normalized_shape`; without eps the epsilon of x's dtype, of
/// f32 for bf16 and f16. Source: Zhang 2019 (1910.07467).
ATTN_API Tensor rms_norm(const Tensor& x, Dims normalized_shape, const Tensor& weight = {},
                         std::optional<double> eps = std::nullopt, Tensor out = {});
/// Pairs (x_i, x_{i + D/2}) of the last dim D turned: (x1 cos - x2 sin, x2 cos + x1 sin). cos and sin broadcast to x
/// with D/2 for D; f32 beside half floats. Each product is rounded, then the sum. Source: Su 2021 (2104.09864); the
/// tables: nn::RotaryEmbedding.
ATTN_API Tensor rotary(const Tensor& x, const Tensor& cos, const Tensor& sin);
/// Is every element (any element) not 0?
ATTN_API bool all(const Tensor& x);
ATTN_API bool any(const Tensor& x);

// --- losses ------------------------------------------------------------------------------------------------------
enum class Reduction { mean, sum, none };
struct CrossEntropyOptions {
  Tensor weight = {};                ///< [C], of the classes; without a gradient of its own
  std::int64_t ignore_index = -100;  ///< rows with this target count for nothing; below 0 beside probabilities
  double label_smoothing = 0;        ///< this part of the target is spread over all classes
  Reduction reduction = Reduction::mean;
};
/// -w_t log softmax(logits)_t for logits [N, C] (or [C], [N, C, ...]) and classes t [N] (or [], [N, ...]) of i64 or
/// i32, or probabilities of the logits' shape. The mean divides by the weights of the targets that count (by N for
/// probabilities); of none it is NaN. ValueError names a target out of range. Half floats are computed in f32 and
/// rounded once.
ATTN_API Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options = {});

// --- products ----------------------------------------------------------------------------------------------------
/// torch.matmul: rank 1 and 2 as vectors and matrices, higher ranks as broadcast batches of matrices.
/// f32, f64; bf16 and f16 are multiplied in f32 and rounded once. Order of the sums: docs/numerics.md section 5.
ATTN_API Tensor matmul(const Tensor& a, const Tensor& b, Tensor out = {});
/// [B, M, K] x [B, K, N] -> [B, M, N].
ATTN_API Tensor bmm(const Tensor& a, const Tensor& b, Tensor out = {});
/// Inner product of two vectors of one length.
ATTN_API Tensor dot(const Tensor& a, const Tensor& b);
/// x W^T + bias for x [..., in], weight [out, in], bias [out] or undefined.
ATTN_API Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Tensor out = {});
/// torch.einsum: letters, repeated letters (diagonals), implicit and explicit outputs, "...", any number of operands.
/// What one operand alone is summed to has the dtype of sum().
ATTN_API Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands);
/// Rows of `weight` [V, C] picked by i64 (or i32) `index` of any shape -> [..., C]; ValueError names an index out of
/// range.
ATTN_API Tensor embedding(const Tensor& index, const Tensor& weight);

// --- comparing ---------------------------------------------------------------------------------------------------
/// |a - b| <= atol + rtol |b| everywhere, as torch.allclose.
ATTN_API bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
                       bool equal_nan = false);
/// Same shape, dtype and bytes (any NaN equals any NaN; +0 and -0 differ).
ATTN_API bool same_bits(const Tensor& a, const Tensor& b);

}  // namespace attn
