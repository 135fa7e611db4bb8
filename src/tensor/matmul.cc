// src/tensor/matmul.cc: implements matmul by torch's rank rules, bmm, dot and linear; all of them call `multiply`.
#include "kernels/gemm/product.h"
#include "runtime/parallel.h"
#include "tensor/defined.h"
#include "tensor/products.h"
#include "tensor/rows.h"

#include <initializer_list>

namespace attn {
namespace {

std::string shapes(const char* function, const Tensor& a, const Tensor& b) {
  return std::string(function) + ": a has shape " + to_string(a.sizes()) + ", b " + to_string(b.sizes());
}

void check_dtypes(const char* function, const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype())
    throw DtypeError(std::string(function) + ": the operands are " + std::string(name_of(a.dtype())) + " and " +
                     std::string(name_of(b.dtype())) + "; they must be the same");
  if (a.dtype() == Dtype::boolean)
    throw DtypeError(std::string(function) + ": the operands are bool; they must be floating or integer");
}

/// Multiplies integer matrices, with wrap-around.
template <typename T>
void integer_product(const kernels::GemmProblem& p) {
  using Unsigned = std::make_unsigned_t<T>;
  const T* a = static_cast<const T*>(p.a);
  const T* b = static_cast<const T*>(p.b);
  for (std::int64_t m = 0; m < p.m; ++m)
    for (std::int64_t n = 0; n < p.n; ++n) {
      Unsigned total = 0;
      for (std::int64_t k = 0; k < p.k; ++k)
        total += static_cast<Unsigned>(a[m * p.a_stride[0] + k * p.a_stride[1]]) *
                 static_cast<Unsigned>(b[k * p.b_stride[0] + n * p.b_stride[1]]);
      if (p.bias != nullptr) total += static_cast<Unsigned>(static_cast<const T*>(p.bias)[n]);
      static_cast<T*>(p.y)[m * p.y_stride[0] + n * p.y_stride[1]] = static_cast<T>(total);
    }
}

/// These functions convert the operands for the kernels. bf16 is passed unchanged if the processor multiplies pairs of
/// bf16. Otherwise half floats become f32; only a right operand is passed unchanged if the kernels can widen it
/// themselves.
bool by_pairs(const Tensor& x) { return x.dtype() == Dtype::bf16 && kernels::multiplies_bf16(); }
bool holds_half(const Tensor& x) { return x.dtype() == Dtype::bf16 || x.dtype() == Dtype::f16; }
Tensor left_operand(const Tensor& x) {
  if (by_pairs(x)) return x.detach();
  const bool transposed = holds_half(x) && x.dim() >= 2 && x.stride(-1) != 1 && x.stride(-2) == 1;
  // converting in memory order takes a twentieth of the time of converting in row-major order
  return transposed ? widened(x.transpose(-1, -2)).transpose(-1, -2) : widened(x);
}
Tensor right_operand(const Tensor& x) {
  return holds_half(x) && kernels::multiplies_half_b() ? x.detach() : left_operand(x);
}

/// What is applied to each sum of products: a bias, then an activation.
struct After {
  Tensor bias = {};  // [N], contiguous, in the type of the computation
  kernels::Activation activation = kernels::Activation::none;
};

/// Computes y[..., M, N] = a[..., M, K] b[..., K, N]. The batch dims must be equal, the strides may be any, and y is
/// contiguous. All have one dtype, except that b may be a half float if a and y are f32.
void multiply(const Tensor& a, const Tensor& b, const After& after, const Tensor& y) {
  if (y.numel() == 0) return;
  const std::int64_t m = y.size(-2), n = y.size(-1);
  const bool bf16 = y.dtype() == Dtype::bf16;
  const kernels::GemmProblem problem = {.m = m,
                                        .n = n,
                                        .k = a.size(-1),
                                        .a = a.data(),
                                        .a_stride = {a.stride(-2), a.stride(-1)},
                                        .b = b.data(),
                                        .b_stride = {b.stride(-2), b.stride(-1)},
                                        .bias = after.bias.defined() ? after.bias.data() : nullptr,
                                        .y = y.data(),
                                        .y_stride = {n, 1},
                                        .element = bf16 ? kernels::Element::bf16 : row_element_of(y.dtype()),
                                        .b_element = b.dtype() == Dtype::bf16  ? kernels::Element::bf16
                                                     : b.dtype() == Dtype::f16 ? kernels::Element::f16
                                                                               : kernels::Element::f32,
                                        .narrow = bf16,
                                        .activation = after.activation};
  const kernels::GemmBatch batch = {.dims = y.dim() - 2,
                                    .sizes = y.sizes().begin(),
                                    .a_strides = a.strides().begin(),
                                    .b_strides = b.strides().begin(),
                                    .y_strides = y.strides().begin()};
  if (is_floating(y.dtype())) return kernels::multiply(problem, batch);
  runtime::parallel_for(batch.items(), [&](std::int64_t item) {
    y.dtype() == Dtype::i64 ? integer_product<std::int64_t>(batch.item(problem, item, 8, 8, 8))
                            : integer_product<std::int32_t>(batch.item(problem, item, 4, 4, 4));
  });
}

/// Returns the memory to which kernels write a product of this dtype: `target` if they can write to it, else new
/// memory.
Tensor product_memory(const Dims& sizes, Dtype dtype, const Tensor& target, std::initializer_list<Tensor> read) {
  const auto apart = [&](const Tensor& x) {
    return !x.defined() || (target.data() != x.data() && !overlaps(target, x));
  };
  const bool direct = target.defined() && target.dtype() == dtype && target.is_contiguous() &&
                      std::all_of(read.begin(), read.end(), apart);
  return direct ? target.view(sizes) : empty(sizes, dtype);
}

/// Delivers the product y. If `target` is defined, copies y there if necessary and returns `target`; otherwise returns
/// y in `dtype`.
Tensor settled(const Tensor& y, const Tensor& target, Dtype dtype) {
  if (!target.defined()) return y.to(dtype);
  if (y.data() != target.data()) copy_values(target, y);
  return target;
}

/// Widens and multiplies operands of rank 2 and more with broadcast batch dims (ShapeError if they do not broadcast);
/// the result is [..., M, N]. `target`: memory of these sizes, used for the result if that saves a copy.
Tensor batched(const char* function, const Tensor& a, const Tensor& b, const After& after = {},
               const Tensor& target = {}) {
  // If b has one column, one row times the transposed matrix is computed instead. The sums are the same, and the rows
  // of a go in the SIMD lanes.
  if (b.size(-1) == 1 && a.size(-2) > 1 && !after.bias.defined()) {
    const Tensor rows = b.dim() == 2 && a.dim() > 2 ? a.detach().flatten(0, -2) : a.detach();
    const Tensor y = batched(function, b.detach().transpose(-1, -2), rows.transpose(-1, -2), after, target);
    Dims sizes = rows.dim() == a.dim() ? y.sizes() : a.sizes();
    sizes[sizes.size() - 2] = a.size(-2), sizes[sizes.size() - 1] = 1;
    return y.reshape(sizes);
  }
  const Tensor left = left_operand(a), right = right_operand(b);
  if (right.dim() == 2 && left.dim() > 2) {  // one matrix for the whole batch: the batch items become additional rows
    Dims sizes = left.sizes();
    sizes[left.dim() - 1] = right.size(1);
    std::int64_t rows = 1;
    for (int d = 0; d + 1 < left.dim(); ++d) rows *= left.sizes()[d];
    const Tensor y = product_memory({rows, right.size(1)}, left.dtype(), target, {left, right, after.bias});
    multiply(left.reshape({rows, left.size(-1)}), right, after, y);
    return y.reshape(sizes);
  }
  const auto batch_of = [](const Tensor& x) {
    return Dims(std::span<const std::int64_t>(x.sizes().begin(), static_cast<std::size_t>(x.dim() - 2)));
  };
  Dims batch = broadcast_shapes(function, batch_of(left), batch_of(right));
  const auto with = [&](std::int64_t rows, std::int64_t columns) {
    Dims sizes = batch;
    sizes.push_back(rows);
    sizes.push_back(columns);
    return sizes;
  };
  const Tensor y = product_memory(with(left.size(-2), right.size(-1)), left.dtype(), target, {left, right, after.bias});
  multiply(left.expand(with(left.size(-2), left.size(-1))), right.expand(with(right.size(-2), right.size(-1))), after,
           y);
  return y;
}

/// Returns the sizes of matmul's result, which has no dim for a vector operand.
Dims product_sizes(const char* function, const Tensor& a, const Tensor& b) {
  const auto batch_of = [](const Tensor& x) {
    return Dims(std::span<const std::int64_t>(x.sizes().begin(), static_cast<std::size_t>(std::max(0, x.dim() - 2))));
  };
  Dims sizes = broadcast_shapes(function, batch_of(a), batch_of(b));
  if (a.dim() > 1) sizes.push_back(a.size(-2));
  if (b.dim() > 1) sizes.push_back(b.size(-1));
  return sizes;
}

const char* backward_name(int a_rank, int b_rank) {
  if (a_rank > 2 || b_rank > 2) return "UnsafeViewBackward0";
  if (a_rank == 2) return b_rank == 2 ? "MmBackward0" : "MvBackward0";
  return b_rank == 2 ? "SqueezeBackward4" : "DotBackward0";
}

/// Reshapes [..., n] to [rows, n].
Tensor as_rows(const Tensor& x) { return x.dim() == 1 ? x.unsqueeze(0) : x.flatten(0, -2); }

/// Returns the vjp of the left operand of y = a b: da = dy b^T. A vector counts as a matrix of one row or column. The
/// tape sums over broadcast dims.
auto wrt_left(int a_rank) {
  return [a_rank](const Tensor& dy, const Tensor& b) {
    const Tensor rows = b.dim() == 1 ? dy.unsqueeze(-1) : dy, matrix = b.dim() == 1 ? b.unsqueeze(-1) : b;
    const Tensor da = matmul(a_rank == 1 ? rows.unsqueeze(-2) : rows, matrix.transpose(-1, -2));
    return a_rank == 1 ? da.squeeze(-2) : da;
  };
}

/// Returns the vjp of the right operand: db = a^T dy. If b is one matrix for a whole batch, the rows of all items form
/// one matrix.
auto wrt_right(int b_rank) {
  return [b_rank](const Tensor& dy, const Tensor& a) {
    Tensor columns = b_rank == 1 ? dy.unsqueeze(-1) : dy, matrix = a;
    if (a.dim() == 1) {
      columns = columns.unsqueeze(-2);
      matrix = a.unsqueeze(0);
    } else if (b_rank <= 2) {
      columns = as_rows(columns);
      matrix = as_rows(a);
    }
    const Tensor db = matmul(matrix.transpose(-1, -2), columns);
    return b_rank == 1 ? db.squeeze(-1) : db;
  };
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, Tensor out) {
  check_defined("matmul", "a", a);
  check_defined("matmul", "b", b);
  check_dtypes("matmul", a, b);
  if (a.dim() == 0 || b.dim() == 0) throw ShapeError(shapes("matmul", a, b) + "; both must have at least one dim");
  const int b_inner = b.dim() == 1 ? -1 : -2;
  if (a.size(-1) != b.size(b_inner))
    throw ShapeError(shapes("matmul", a, b) + "; the last dim of a (" + std::to_string(a.size(-1)) +
                     ") must equal dim " + std::to_string(b_inner) + " of b (" + std::to_string(b.size(b_inner)) + ")");
  const Tensor left = a.dim() == 1 ? a.detach().unsqueeze(0) : a, right = b.dim() == 1 ? b.detach().unsqueeze(1) : b;
  const Tensor target =
      out.defined() ? result_memory("matmul", out, product_sizes("matmul", a, b), a.dtype()) : Tensor();
  Tensor y = batched("matmul", left, right, {}, target);
  if (b.dim() == 1) y = y.squeeze(-1);
  if (a.dim() == 1) y = y.squeeze(b.dim() == 1 ? -1 : -2);
  return record(backward_name(a.dim(), b.dim()), settled(y, target, a.dtype()), wrt(a, wrt_left(a.dim()), b),
                wrt(b, wrt_right(b.dim()), a));
}

Tensor bmm(const Tensor& a, const Tensor& b, Tensor out) {
  check_defined("bmm", "a", a);
  check_defined("bmm", "b", b);
  check_dtypes("bmm", a, b);
  if (a.dim() != 3 || b.dim() != 3 || a.size(0) != b.size(0) || a.size(2) != b.size(1))
    throw ShapeError(shapes("bmm", a, b) + "; they must be [B, M, K] and [B, K, N]");
  return record("BmmBackward0", deliver("bmm", batched("bmm", a, b), out, a.dtype()), wrt(a, wrt_left(3), b),
                wrt(b, wrt_right(3), a));
}

Tensor dot(const Tensor& a, const Tensor& b) {
  check_defined("dot", "a", a);
  check_defined("dot", "b", b);
  check_dtypes("dot", a, b);
  if (a.dim() != 1 || b.dim() != 1 || a.size(0) != b.size(0))
    throw ShapeError(shapes("dot", a, b) + "; both must be vectors of one length");
  return matmul(a, b);
}

namespace {

void check_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_defined("linear", "x", x);
  check_defined("linear", "weight", weight);
  check_dtypes("linear", x, weight);
  if (weight.dim() != 2 || x.dim() == 0 || x.size(-1) != weight.size(1))
    throw ShapeError("linear: x has shape " + to_string(x.sizes()) + ", weight " + to_string(weight.sizes()) +
                     "; they must be [..., in] and [out, in]");
  if (!bias.defined()) return;
  check_dtypes("linear", x, bias);
  if (bias.dim() != 1 || bias.size(0) != weight.size(0))
    throw ShapeError("linear: bias has shape " + to_string(bias.sizes()) + "; it must be [" +
                     std::to_string(weight.size(0)) + "]");
}

/// Computes linear and its activation from checked operands, without gradient history, in the type that the kernels
/// write; uses `target` if that saves a copy.
Tensor linear_values(const Tensor& x, const Tensor& weight, const Tensor& bias, kernels::Activation activation,
                     const Tensor& target = {}) {
  const Tensor rows = x.dim() == 1 ? x.detach().unsqueeze(0) : x;
  const Tensor y = batched("linear", rows, weight.detach().t(),
                           {bias.defined() ? widened(bias).contiguous() : Tensor(), activation}, target);
  return x.dim() == 1 ? y.squeeze(0) : y;
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor out) {
  check_linear(x, weight, bias);
  const Tensor target =
      out.defined() ? result_memory("linear", out, product_sizes("linear", x, weight.t()), x.dtype()) : Tensor();
  const Tensor result = settled(linear_values(x, weight, bias, kernels::Activation::none, target), target, x.dtype());
  const char* name = !bias.defined() ? backward_name(x.dim(), 2)
                     : x.dim() == 1  ? "AddBackward0"
                     : x.dim() == 2  ? "AddmmBackward0"
                                     : "ViewBackward0";
  const auto wrt_x = [](auto& dy, auto& weight) { return matmul(dy, weight); };
  const auto wrt_weight = [](auto& dy, auto& x) { return matmul(as_rows(dy).t(), as_rows(x)); };
  const auto wrt_bias = [](auto& dy) { return dy; };  // the tape sums over the rows in f32 and rounds once
  return record(name, result, wrt(x, wrt_x, weight), wrt(weight, wrt_weight, x), wrt(bias, wrt_bias));
}

Tensor linear_activated(const Tensor& x, const Tensor& weight, const Tensor& bias, kernels::Activation activation) {
  check_linear(x, weight, bias);
  const bool by_way_of_f32 = x.dtype() == Dtype::f16 || (x.dtype() == Dtype::bf16 && !kernels::multiplies_bf16());
  if (!by_way_of_f32) return linear_values(x, weight, bias, activation);
  // The activation is applied to the rounded sum.
  const Tensor sums = linear_values(x, weight, bias, kernels::Activation::none).to(x.dtype());
  switch (activation) {
    case kernels::Activation::none: return sums;
    case kernels::Activation::relu: return relu(sums);
    case kernels::Activation::silu: return silu(sums);
    case kernels::Activation::gelu_none: return gelu(sums);
    case kernels::Activation::gelu_tanh: return gelu(sums, GeluApproximate::tanh);
  }
  return sums;
}

}  // namespace attn
