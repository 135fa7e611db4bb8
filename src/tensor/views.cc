// src/tensor/views.cc: makes views with other sizes and strides over the same memory; copies nothing.
#include <attn/ops.h>

#include "tensor/build.h"

#include <algorithm>

namespace attn {
namespace {

/// Returns `sizes` with -1 replaced by the size that fits x's number of elements.
Dims infer_sizes(const char* function, const Tensor& x, Dims sizes) {
  const auto fail = [&](const char* why) {
    return ShapeError(std::string(function) + ": shape " + to_string(x.sizes()) + " cannot become " + to_string(sizes) +
                      "; " + why);
  };
  int unknown = -1;
  Dims given = sizes;
  for (int i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < -1) throw fail("a size must be -1 or more");
    if (sizes[i] != -1) continue;
    if (unknown >= 0) throw fail("only one size may be -1");
    given[unknown = i] = 1;
  }
  const std::int64_t known = given.product();
  if (unknown >= 0) {
    if (known == 0) throw fail("beside a size 0 the -1 could be anything");
    if (x.numel() % known != 0) throw fail("the elements must be as many");
    sizes[unknown] = x.numel() / known;
  } else if (known != x.numel()) {
    throw fail("the elements must be as many");
  }
  return sizes;
}

/// Returns wrap_dim's result, for functions that move dims: torch allows dim 0 and -1 on a tensor of rank 0 there.
int wrap_own_dim(const char* function, int dim, int rank) {
  return rank == 0 && (dim == 0 || dim == -1) ? 0 : wrap_dim(function, dim, rank);
}

/// Returns the strides with which `sizes` views the memory of `x`; nullopt if there are none.
std::optional<Dims> view_strides(const Tensor& x, const Dims& sizes) {
  if (x.numel() == 0) return x.sizes() == sizes ? x.strides() : contiguous_strides(sizes);
  Dims strides = sizes;
  int to = sizes.size() - 1;
  // Each run of old dims that is contiguous in memory (found from the last dim on) must be filled exactly by new dims.
  std::int64_t run = 1;
  std::int64_t run_stride = x.dim() ? x.strides().back() : 1;
  for (int from = x.dim() - 1; from >= 0; --from) {
    run *= x.sizes()[from];
    const bool run_ends = from == 0 || (x.sizes()[from - 1] != 1 && x.strides()[from - 1] != run * run_stride);
    if (!run_ends) continue;
    std::int64_t filled = 1;
    while (to >= 0 && (filled < run || sizes[to] == 1)) {
      strides[to] = filled * run_stride;
      filled *= sizes[to--];
    }
    if (filled != run) return std::nullopt;
    if (from > 0) {
      run = 1;
      run_stride = x.strides()[from - 1];
    }
  }
  for (; to >= 0; --to) strides[to] = 1;  // rank 0 viewed as [1, 1]
  return strides;
}

/// Returns a view that starts at the same element, with another order of dims or other sizes; `vjp` computes its
/// gradient.
template <typename F>
Tensor restride(const char* name, const Tensor& x, const Dims& sizes, const Dims& strides, F vjp) {
  return record_view(name, make_view(x, x.data(), sizes, strides), x, vjp);
}

/// Returns the vjp of an operation that shows the same elements in another shape.
auto reshaped(const Tensor& x) {
  return [sizes = x.sizes()](const Tensor& dy) { return dy.reshape(sizes); };
}

/// Returns zeros with `values` at the positions of a slice.
Tensor in_slice(const Tensor& values, const Dims& sizes, int dim, std::int64_t start, std::int64_t step) {
  const Tensor result = zeros(sizes, values.dtype());
  const auto slice = [dim, start, step, count = values.size(dim)](const Tensor& x) {
    return x.slice(dim, start, count == 0 ? start : start + (count - 1) * step + 1, step);
  };
  copy_values(slice(result), values);
  return record("SliceBackwardBackward0", result, wrt(values, slice));
}

/// Records parts of x that follow one another along the dim; their gradients are concatenated.
std::vector<Tensor> record_parts(const char* name, const Tensor& x, std::vector<Tensor> parts, int dim) {
  for (const Tensor& part : parts) mark_view(part, x);
  if (!wants_grad(x)) return parts;
  record({name, {x}, {}}, parts, [dim, count = static_cast<int>(parts.size())](const Backward& at) {
    std::vector<Tensor> gradients;
    for (int i = 0; i < count; ++i) gradients.push_back(at.grad_or_zeros(i));
    return Gradients{cat(gradients, dim)};
  });
  return parts;
}

}  // namespace

Tensor Tensor::detach() const { return make_view(*this, data(), sizes(), strides()); }

Tensor Tensor::view(Dims sizes) const {
  sizes = infer_sizes("view", *this, sizes);
  const std::optional<Dims> strides = view_strides(*this, sizes);
  if (!strides)
    throw ShapeError("view: shape " + attn::to_string(this->sizes()) + " with strides " +
                     attn::to_string(this->strides()) + " cannot be seen as " + attn::to_string(sizes) +
                     " without a copy; use reshape");
  return restride("ViewBackward0", *this, sizes, *strides, reshaped(*this));
}

Tensor Tensor::reshape(Dims sizes) const {
  sizes = infer_sizes("reshape", *this, sizes);
  if (const std::optional<Dims> strides = view_strides(*this, sizes))
    return restride(is_contiguous() ? "ViewBackward0" : "ReshapeAliasBackward0", *this, sizes, *strides,
                    reshaped(*this));
  const Tensor copy = clone();
  return restride("UnsafeViewBackward0", copy, sizes, contiguous_strides(sizes), reshaped(copy));
}

Tensor Tensor::transpose(int a, int b) const {
  a = wrap_own_dim("transpose", a, dim());
  b = wrap_own_dim("transpose", b, dim());
  Dims sizes = this->sizes(), strides = this->strides();
  std::swap(sizes[a], sizes[b]);
  std::swap(strides[a], strides[b]);
  return restride("TransposeBackward0", *this, sizes, strides, [a, b](auto& dy) { return dy.transpose(a, b); });
}

Tensor Tensor::permute(Dims order) const {
  const auto fail = [&] {
    return ShapeError("permute: order " + attn::to_string(order) + " must name each dim of shape " +
                      attn::to_string(sizes()) + " once");
  };
  if (order.size() != dim()) throw fail();
  Dims sizes = this->sizes(), strides = this->strides();
  unsigned seen = 0;
  for (int i = 0; i < order.size(); ++i) {
    const std::int64_t from = order[i] < 0 ? order[i] + dim() : order[i];
    if (from < 0 || from >= dim() || (seen >> from & 1u)) throw fail();
    seen |= 1u << from;
    sizes[i] = this->sizes()[static_cast<int>(from)];
    strides[i] = this->strides()[static_cast<int>(from)];
  }
  return restride("PermuteBackward0", *this, sizes, strides, [order](auto& dy) {
    Dims inverse = order;
    for (int i = 0; i < order.size(); ++i)
      inverse[static_cast<int>(order[i] < 0 ? order[i] + order.size() : order[i])] = i;
    return dy.permute(inverse);
  });
}

Tensor Tensor::t() const {
  Dims sizes = this->sizes(), strides = this->strides();
  std::reverse(sizes.begin(), sizes.end());
  std::reverse(strides.begin(), strides.end());
  return restride(dim() <= 2 ? "TBackward0" : "PermuteBackward0", *this, sizes, strides,
                  [](auto& dy) { return dy.t(); });
}

Tensor Tensor::select(int dim, std::int64_t index) const {
  dim = wrap_dim("select", dim, this->dim());
  const std::int64_t size = sizes()[dim];
  if (index < -size || index >= size)
    throw ValueError("select: index " + std::to_string(index) + " is out of dim " + std::to_string(dim) + " of shape " +
                     attn::to_string(sizes()));
  Dims sizes = this->sizes(), strides = this->strides();
  if (index < 0) index += size;
  void* first = advance(*this, index * strides[dim]);
  sizes.erase(dim);
  strides.erase(dim);
  return record_view(
      "SelectBackward0", make_view(*this, first, sizes, strides), *this,
      [x_sizes = this->sizes(), dim, index](auto& dy) { return in_slice(dy.unsqueeze(dim), x_sizes, dim, index, 1); });
}

Tensor Tensor::slice(int dim, std::int64_t start, std::optional<std::int64_t> end, std::int64_t step) const {
  dim = wrap_dim("slice", dim, this->dim());
  if (step < 1) throw ValueError("slice: step " + std::to_string(step) + " must be at least 1");
  Dims sizes = this->sizes(), strides = this->strides();
  const std::int64_t size = sizes[dim];
  const auto clamp = [&](std::int64_t bound) {
    return std::clamp<std::int64_t>(bound < 0 ? bound + size : bound, 0, size);
  };
  const std::int64_t first = clamp(start);
  const std::int64_t length = std::max<std::int64_t>(clamp(end.value_or(size)) - first, 0);
  void* data = length ? advance(*this, first * strides[dim]) : this->data();
  sizes[dim] = length / step + (length % step != 0);
  strides[dim] = sizes[dim] > 1 ? strides[dim] * step : strides[dim];
  return record_view(
      "SliceBackward0", make_view(*this, data, sizes, strides), *this,
      [x_sizes = this->sizes(), dim, first, step](auto& dy) { return in_slice(dy, x_sizes, dim, first, step); });
}

Tensor Tensor::narrow(int dim, std::int64_t start, std::int64_t length) const {
  dim = wrap_dim("narrow", dim, this->dim());
  const std::int64_t size = sizes()[dim];
  if (start < 0) start += size;
  if (start < 0 || length < 0 || start > size || length > size - start)
    throw ValueError("narrow: start " + std::to_string(start) + " and length " + std::to_string(length) +
                     " leave dim " + std::to_string(dim) + " of shape " + attn::to_string(sizes()));
  return slice(dim, start, start + length);
}

Tensor Tensor::expand(Dims sizes) const {
  const int shift = sizes.size() - dim();
  const auto fail = [&] {
    return ShapeError("expand: shape " + attn::to_string(this->sizes()) + " cannot become " + attn::to_string(sizes) +
                      "; only dims of size 1 and new dims in front grow, -1 keeps a size");
  };
  if (shift < 0) throw fail();
  Dims strides = sizes;
  for (int i = 0; i < sizes.size(); ++i) {
    const bool is_new = i < shift;
    const std::int64_t old = is_new ? 1 : this->sizes()[i - shift];
    if (sizes[i] == -1 && !is_new) sizes[i] = old;
    if (sizes[i] < 0 || (old != 1 && old != sizes[i])) throw fail();
    strides[i] = is_new || old != sizes[i] ? 0 : this->strides()[i - shift];
  }
  (void)sizes.product();  // throws if the number of elements overflows
  // the tape sums over these dims
  return restride("ExpandBackward0", *this, sizes, strides, [](auto& dy) { return widen(dy); });
}

Tensor Tensor::squeeze() const {
  Dims sizes, strides;
  for (int i = 0; i < dim(); ++i) {
    if (this->sizes()[i] == 1) continue;
    sizes.push_back(this->sizes()[i]);
    strides.push_back(this->strides()[i]);
  }
  return restride("SqueezeBackward0", *this, sizes, strides, reshaped(*this));
}

Tensor Tensor::squeeze(int dim) const {
  dim = wrap_own_dim("squeeze", dim, this->dim());
  Dims sizes = this->sizes(), strides = this->strides();
  if (!sizes.empty() && sizes[dim] == 1) {
    sizes.erase(dim);
    strides.erase(dim);
  }
  return restride("SqueezeBackward1", *this, sizes, strides, reshaped(*this));
}

Tensor Tensor::unsqueeze(int dim) const {
  dim = wrap_dim("unsqueeze", dim, this->dim() + 1);
  Dims sizes = this->sizes(), strides = this->strides();
  std::int64_t stride = 1;  // overflows 64 bits only if another size is 0, and then no element is read
  if (dim < sizes.size()) (void)__builtin_mul_overflow(sizes[dim], strides[dim], &stride);
  strides.insert(dim, stride);
  sizes.insert(dim, 1);
  return restride("UnsqueezeBackward0", *this, sizes, strides, reshaped(*this));
}

Tensor Tensor::flatten(int first, int last) const {
  first = wrap_own_dim("flatten", first, dim());
  last = wrap_own_dim("flatten", last, dim());
  if (dim() == 0) return reshape({1});
  if (first > last)
    throw ShapeError("flatten: first dim " + std::to_string(first) + " must not come after last dim " +
                     std::to_string(last));
  if (first == last) return *this;
  Dims sizes, joined;
  for (int i = 0; i < dim(); ++i) {
    (i < first || i > last ? sizes : joined).push_back(this->sizes()[i]);
    if (i == last) sizes.push_back(joined.product());
  }
  return reshape(sizes);
}

std::vector<Tensor> Tensor::split(std::int64_t size, int dim) const {
  dim = wrap_dim("split", dim, this->dim());
  if (size < 1) throw ValueError("split: size " + std::to_string(size) + " must be at least 1");
  std::vector<Tensor> parts;
  const std::int64_t total = sizes()[dim];
  for (std::int64_t start = 0; start == 0 || start < total; start += size) {
    parts.push_back(detach().slice(dim, start, std::min(total, start + size)));
  }
  return record_parts("SplitBackward0", *this, std::move(parts), dim);
}

std::vector<Tensor> Tensor::split(const std::vector<std::int64_t>& sizes, int dim) const {
  dim = wrap_dim("split", dim, this->dim());
  const std::int64_t total = this->sizes()[dim];
  std::vector<Tensor> parts;
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    if (size < 0 || size > total - start)
      throw ValueError("split: sizes must add up to " + std::to_string(total) + ", dim " + std::to_string(dim) +
                       " of shape " + attn::to_string(this->sizes()));
    parts.push_back(detach().slice(dim, start, start + size));
    start += size;
  }
  if (start != total)
    throw ValueError("split: sizes add up to " + std::to_string(start) + "; they must add up to " +
                     std::to_string(total) + ", dim " + std::to_string(dim) + " of shape " +
                     attn::to_string(this->sizes()));
  return record_parts("SplitWithSizesBackward0", *this, std::move(parts), dim);
}

std::vector<Tensor> Tensor::chunk(std::int64_t chunks, int dim) const {
  dim = wrap_dim("chunk", dim, this->dim());
  if (chunks < 1) throw ValueError("chunk: chunks " + std::to_string(chunks) + " must be at least 1");
  const std::int64_t total = sizes()[dim];
  if (constexpr std::int64_t most = 1 << 20; chunks > most && total == 0)
    throw ValueError("chunk: chunks " + std::to_string(chunks) + " of a dim of size 0; they must be at most " +
                     std::to_string(most));
  if (total == 0) return split(std::vector<std::int64_t>(static_cast<std::size_t>(chunks), 0), dim);
  return split((total - 1) / chunks + 1, dim);
}

}  // namespace attn
