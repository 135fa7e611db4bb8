// src/tensor/extreme.cc: max, min, argmax, all and any: comparisons along a row, exact in every dtype.
#include "tensor/rows.h"

#include <cmath>

namespace attn {
namespace {

enum class Extreme { largest, smallest };

/// Whether `value` takes the place of `best`: NaN beats every number, the first of equals stays.
template <Extreme extreme, typename T>
bool beats(T value, T best) {
  if constexpr (!std::is_integral_v<T>) {
    if (std::isnan(best)) return false;
    if (std::isnan(value)) return true;
  }
  return extreme == Extreme::largest ? value > best : value < best;
}

/// Values and indices of the rows of [..., n], n >= 1.
template <Extreme extreme>
std::pair<Tensor, Tensor> extremes(const Tensor& x, const Dims& sizes) {
  const Rows rows(x);
  const Tensor values = empty(sizes, x.dtype()), indices = empty(sizes, Dtype::i64);
  with_type(x.dtype(), [&]<typename T>(Type<T>) {
    T* value_out = static_cast<T*>(values.data());
    std::int64_t* index_out = indices.data<std::int64_t>();
    parallel_rows(rows.count, rows.n, [&](std::int64_t row) {
      const T* from = rows.data<T>(row);
      std::int64_t at = 0;
      for (std::int64_t i = 1; i < rows.n; ++i)
        if (beats<extreme>(widen(from[i * rows.stride]), widen(from[at * rows.stride]))) at = i;
      value_out[row] = from[at * rows.stride];
      index_out[row] = at;
    });
  });
  return {values, indices};
}

Dims ones_of(int rank) {
  Dims sizes;
  while (sizes.size() < rank) sizes.push_back(1);
  return sizes;
}

void check_not_empty(const char* function, const Tensor& x, std::int64_t n) {
  if (n == 0) throw ValueError(std::string(function) + ": x has shape " + to_string(x.sizes()) + "; it needs at least one element to choose from");
}

template <Extreme extreme>
Tensor extreme_of_all(const char* function, const char* backward, const Tensor& x) {
  check_not_empty(function, x, x.numel());
  const Tensor y = extremes<extreme>(x.detach().reshape({-1}), {}).first;
  return record(backward, y, wrt(x, [](auto& dy, auto& x, auto& y) {  // shared by all that are as large
    const Tensor reaches = logical_or(eq(x, y), logical_and(isnan(x), isnan(y)));
    return where(reaches, widen(dy) / sum(reaches), 0);
  }, x, y));
}

std::pair<Tensor, Tensor> largest_along(const char* function, const Tensor& x, int dim, bool keepdim) {
  const Dims reduced = reduced_dims(function, {dim}, x.dim());
  if (x.dim() > 0) check_not_empty(function, x, x.size(dim));
  return extremes<Extreme::largest>(reduced_last(x.detach(), reduced), reduced_sizes(x.sizes(), reduced, keepdim));
}

}  // namespace

Tensor max(const Tensor& x) { return extreme_of_all<Extreme::largest>("max", "MaxBackward1", x); }
Tensor min(const Tensor& x) { return extreme_of_all<Extreme::smallest>("min", "MinBackward1", x); }

std::pair<Tensor, Tensor> max(const Tensor& x, int dim, bool keepdim) {
  const auto [values, indices] = largest_along("max", x, dim, keepdim);
  const auto vjp = [sizes = x.sizes(), reduced = reduced_dims("max", {dim}, x.dim())](auto& dy, auto& indices) {
    Dims along = ones_of(sizes.size());
    if (!reduced.empty()) along[static_cast<int>(reduced[0])] = sizes[static_cast<int>(reduced[0])];
    const Tensor taken = eq(arange(along.product()).reshape(along), spread(indices, sizes, reduced));
    return where(taken, spread(dy, sizes, reduced), 0);
  };
  return {record("MaxBackward0", values, wrt(x, vjp, indices)), indices};
}

Tensor argmax(const Tensor& x, std::optional<int> dim, bool keepdim) {
  if (dim) return largest_along("argmax", x, *dim, keepdim).second;
  check_not_empty("argmax", x, x.numel());
  return extremes<Extreme::largest>(x.detach().reshape({-1}), reduced_sizes(x.sizes(), reduced_dims("argmax", {}, x.dim()), keepdim)).second;
}

bool all(const Tensor& x) {
  for (const double value : x.detach().to(Dtype::boolean).to_vector())
    if (value == 0) return false;
  return true;
}

bool any(const Tensor& x) {
  for (const double value : x.detach().to(Dtype::boolean).to_vector())
    if (value != 0) return true;
  return false;
}

}  // namespace attn
