// src/tensor/rows.cc: arranges a tensor as rows along the dims that are reduced.
#include "tensor/rows.h"

namespace attn {

Dims reduced_dims(const char* function, const Dims& dims, int rank) {
  bool reduced[max_rank] = {};
  for (const std::int64_t given : dims) {
    if (rank == 0 && (given == 0 || given == -1)) continue;  // torch allows dim 0 for a tensor of rank 0
    const int dim = wrap_dim(function, static_cast<int>(std::clamp<std::int64_t>(given, -1000, 1000)), rank);
    if (reduced[dim])
      throw ShapeError(std::string(function) + ": dims " + to_string(dims) + " name dim " + std::to_string(dim) +
                       " twice; each may come once");
    reduced[dim] = true;
  }
  Dims result;
  for (int d = 0; d < rank; ++d)
    if (reduced[d] || dims.empty()) result.push_back(d);
  return result;
}

Dims reduced_sizes(const Dims& sizes, const Dims& reduced, bool keepdim) {
  Dims result;
  int next = 0;
  for (int d = 0; d < sizes.size(); ++d) {
    if (next < reduced.size() && reduced[next] == d) {
      ++next;
      if (keepdim) result.push_back(1);
    } else {
      result.push_back(sizes[d]);
    }
  }
  return result;
}

Tensor spread(const Tensor& y, const Dims& sizes, const Dims& reduced) {
  return y.reshape(reduced_sizes(sizes, reduced, /*keepdim=*/true)).expand(sizes);
}

Tensor reduced_last(const Tensor& x, const Dims& reduced) {
  if (x.dim() == 0) return x.reshape({1});
  Dims order, sizes;
  int next = 0;
  Dims joined;
  for (int d = 0; d < x.dim(); ++d) {
    if (next < reduced.size() && reduced[next] == d) {
      ++next;
      joined.push_back(x.sizes()[d]);
    } else {
      order.push_back(d);
      sizes.push_back(x.sizes()[d]);
    }
  }
  for (const std::int64_t d : reduced) order.push_back(d);
  sizes.push_back(joined.product());
  return x.permute(order).reshape(sizes);
}

Rows::Rows(const Tensor& tensor) : x(tensor), n(tensor.size(-1)), stride(tensor.stride(-1)) {
  Dims before = x.sizes();
  before.erase(before.size() - 1);
  count = before.product();
}

std::int64_t Rows::offset(std::int64_t row) const {
  std::int64_t result = 0;
  for (int d = x.dim() - 2; d >= 0; --d) {
    result += row % x.sizes()[d] * x.strides()[d];
    row /= x.sizes()[d];
  }
  return result;
}

Tensor deliver(const char* function, const Tensor& computed, const Tensor& out, Dtype dtype) {
  if (!out.defined()) return computed.to(dtype);
  const Tensor target = result_memory(function, out, computed.sizes(), dtype);
  copy_values(target, computed);
  return target;
}

void check_normalized(const char* function, const Tensor& x, const Dims& normalized) {
  const int first = x.dim() - normalized.size();
  bool fits = first >= 0 && !normalized.empty();
  for (int d = 0; fits && d < normalized.size(); ++d) fits = x.sizes()[first + d] == normalized[d];
  if (!fits)
    throw ShapeError(std::string(function) + ": normalized_shape " + to_string(normalized) +
                     " does not end the shape of x " + to_string(x.sizes()) + "; its dims must be x's last ones");
}

Tensor affine(const char* function, const char* name, const Tensor& given, const Dims& normalized, Dtype dtype) {
  if (!given.defined()) return {};
  if (!(given.sizes() == normalized))
    throw ShapeError(std::string(function) + ": " + name + " has shape " + to_string(given.sizes()) +
                     "; it must be normalized_shape " + to_string(normalized));
  return given.detach().to(dtype).contiguous();
}

void check_floating_point(const char* function, const Tensor& x) {
  if (!is_floating(x.dtype()))
    throw DtypeError(std::string(function) + ": x is " + std::string(name_of(x.dtype())) +
                     "; it must be f32, f64, bf16 or f16");
}

}  // namespace attn
