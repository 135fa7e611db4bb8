// src/tensor/storage.cc: implements the methods of Tensor that read its memory: sizes, strides, dtype, version, single
// values.
#include <attn/autograd.h>
#include <attn/ops.h>

#include "runtime/floating_point.h"
#include "runtime/memory.h"
#include "tensor/build.h"
#include "tensor/create.h"
#include "tensor/defined.h"
#include "tensor/element.h"
#include "tensor/iterate.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace attn {
namespace {

TensorImpl& defined_impl(const std::shared_ptr<TensorImpl>& impl) {
  if (!impl)
    throw ValueError(
        "Tensor: the tensor is undefined, made by Tensor() or a result that was not asked for; it has no memory, sizes "
        "or dtype");
  return *impl;
}

/// Returns the size or stride of dim d; a negative d counts from the end.
std::int64_t at(const char* function, const Dims& dims, int d) {
  if (d >= 0 && d < dims.size()) return dims[d];
  return dims[wrap_dim(function, d, dims.size())];
}

/// Returns pointers to the first byte of x's elements and past the last one; equal pointers if there are no elements.
std::pair<const char*, const char*> extent(const Tensor& x) {
  const Dims &sizes = x.sizes(), &strides = x.impl()->strides;
  const auto bytes = static_cast<std::int64_t>(size_of(x.impl()->dtype));
  const char* const data = static_cast<const char*>(x.impl()->data);
  std::int64_t first = 0, last = 0;
  for (int i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return {data, data};
    const std::int64_t reach = (sizes[i] - 1) * strides[i];
    (reach < 0 ? first : last) += reach;
  }
  return {data + first * bytes, data + (last + 1) * bytes};
}

/// Throws ShapeError if the byte offset of an element does not fit in 64 bits.
void check_reach(const Dims& sizes, const Dims& strides, Dtype dtype) {
  std::int64_t reach = static_cast<std::int64_t>(size_of(dtype)), one = 0;
  if (sizes.product() == 0) return;
  for (int i = 0; i < sizes.size(); ++i)
    if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &one) ||
        __builtin_mul_overflow(one, static_cast<std::int64_t>(size_of(dtype)), &one) ||
        __builtin_add_overflow(reach, one < 0 ? -(one + 1) : one, &reach) ||
        reach > std::numeric_limits<std::int64_t>::max() / 2)
      throw ShapeError("from_blob: strides " + to_string(strides) + " of sizes " + to_string(sizes) +
                       " reach beyond 64 bits");
}

/// Strides by which no element is reached (of a dim of size 1, or in a tensor without elements) may be anything. Those
/// that would overflow as bytes are replaced by those of a contiguous tensor.
Dims bounded(const Dims& sizes, Dims strides) {
  const bool empty = sizes.product() == 0;
  for (int i = 0; i < sizes.size(); ++i) {
    const std::int64_t steps = std::max<std::int64_t>(sizes[i], 1);
    if ((empty || steps == 1) && (strides[i] > most_apart / steps || strides[i] < -most_apart / steps))
      strides[i] = contiguous_strides(sizes)[i];
  }
  return strides;
}

template <typename T>
std::vector<T> values_of(const Tensor& x) {
  const std::size_t bytes = checked_bytes("to_vector", x.sizes(), Dtype::f64);
  if (bytes > runtime::most_bytes) throw std::bad_alloc();  // a view may be that large
  std::vector<T> values(bytes / sizeof(T));
  T* next = values.data();
  with_type(x.dtype(), [&]<typename S>(Type<S>) {
    iterate(x.sizes(), {operand(x, x.sizes())}, [&](char* const* data, const std::int64_t* strides, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i) *next++ = convert<T>(*reinterpret_cast<const S*>(data[0] + i * strides[0]));
    });
  });
  return values;
}

void check_one_element(const Tensor& x) {
  if (x.numel() != 1)
    throw ValueError("item: the tensor has shape " + to_string(x.sizes()) + "; it must have one element");
}

}  // namespace

void check_defined(const char* function, const char* name, const Tensor& x) {
  if (!x.defined()) throw ValueError(std::string(function) + ": " + name + " is undefined");
}

Tensor Tensor::from_blob(void* data, Dims sizes, Dtype dtype, Dims strides, std::function<void(void*)> deleter) {
  checked_bytes("from_blob", sizes, dtype);
  if (strides.empty()) strides = contiguous_strides(sizes);
  if (strides.size() != sizes.size())
    throw ShapeError("from_blob: strides " + attn::to_string(strides) + " must be as many as sizes " +
                     attn::to_string(sizes));
  check_reach(sizes, strides, dtype);
  strides = bounded(sizes, strides);
  if (!data && sizes.product() != 0) throw ValueError("from_blob: data is null for sizes " + attn::to_string(sizes));
  auto impl = std::make_shared<TensorImpl>();
  impl->storage = std::make_shared<Storage>();
  impl->data = data;
  impl->sizes = sizes;
  impl->strides = strides;
  impl->dtype = dtype;
  Tensor result(impl);
  impl->storage->data = data;
  std::tie(impl->storage->first, impl->storage->end) = extent(result);
  impl->storage->deleter = std::move(deleter);
  return result;
}

int Tensor::dim() const { return sizes().size(); }
const Dims& Tensor::sizes() const& { return defined_impl(impl_).sizes; }
const Dims& Tensor::strides() const& { return defined_impl(impl_).strides; }
std::int64_t Tensor::size(int d) const { return at("size", sizes(), d); }
std::int64_t Tensor::stride(int d) const { return at("stride", strides(), d); }
std::int64_t Tensor::numel() const { return sizes().product(); }
Dtype Tensor::dtype() const { return defined_impl(impl_).dtype; }
void* Tensor::data() const { return defined_impl(impl_).data; }

bool Tensor::is_contiguous() const {
  const TensorImpl& is = defined_impl(impl_);
  if (std::find(is.sizes.begin(), is.sizes.end(), 0) != is.sizes.end()) return true;
  std::int64_t expected = 1;
  for (int i = is.sizes.size() - 1; i >= 0; --i) {
    const std::int64_t size = is.sizes[i];
    if (size != 1 && is.strides[i] != expected) return false;
    expected *= size;
  }
  return true;
}

void Tensor::check_dtype(Dtype dtype) const {
  if (this->dtype() != dtype)
    throw DtypeError("data: the tensor is " + std::string(name_of(this->dtype())) + ", asked for as " +
                     std::string(name_of(dtype)));
}

double Tensor::item() const {
  check_one_element(*this);
  // If the caller's thread flushes denormals to zero, they would be read as 0. `volatile` makes the conversion happen
  // here and not later.
  const runtime::DefaultFloatingPoint floating_point;
  volatile double value =
      with_type(dtype(), [&]<typename T>(Type<T>) { return convert<double>(*static_cast<const T*>(data())); });
  return value;
}

std::int64_t Tensor::item_int() const {
  check_one_element(*this);
  return with_type(dtype(), [&]<typename T>(Type<T>) { return convert<std::int64_t>(*static_cast<const T*>(data())); });
}

std::vector<double> Tensor::to_vector() const { return values_of<double>(*this); }
std::vector<std::int64_t> Tensor::to_int_vector() const { return values_of<std::int64_t>(*this); }

std::uint64_t Tensor::version() const { return defined_impl(impl_).storage->version.load(std::memory_order_relaxed); }
void Tensor::bump_version() const { defined_impl(impl_).storage->version.fetch_add(1, std::memory_order_relaxed); }

Tensor make_view(const Tensor& base, void* data, const Dims& sizes, const Dims& strides) {
  auto impl = std::make_shared<TensorImpl>();
  impl->storage = base.impl()->storage;
  impl->data = data;
  impl->sizes = sizes;
  impl->strides = strides;
  impl->dtype = base.dtype();
  return Tensor(std::move(impl));
}

void* advance(const Tensor& tensor, std::int64_t elements) {
  return static_cast<char*>(tensor.data()) + elements * static_cast<std::int64_t>(size_of(tensor.dtype()));
}

int wrap_dim(const char* function, int dim, int rank) {
  if (dim >= -rank && dim < rank) return dim < 0 ? dim + rank : dim;
  const std::string given =
      std::string(function) + ": dim " + std::to_string(dim) + " of a tensor of rank " + std::to_string(rank);
  if (rank == 0) throw ShapeError(given + "; it has none");
  throw ShapeError(given + "; it must be from " + std::to_string(-rank) + " to " + std::to_string(rank - 1));
}

void take_result_memory(const char* function, const Tensor& out, const Dims& sizes, Dtype dtype) {
  if (!(out.sizes() == sizes))
    throw ShapeError(std::string(function) + ": out has shape " + to_string(out.sizes()) + "; it must be " +
                     to_string(sizes));
  if (out.dtype() != dtype)
    throw DtypeError(std::string(function) + ": out is " + std::string(name_of(out.dtype())) + "; it must be " +
                     std::string(name_of(dtype)));
  if (grad_enabled() && wants_grad(out))
    throw ValueError(std::string(function) +
                     ": out requires a gradient, which its new values would not have; give memory that does not");
  check_in_place(function, out);
  out.bump_version();
}

Tensor result_memory(const char* function, const Tensor& out, const Dims& sizes, Dtype dtype) {
  if (!out.defined()) return new_memory(sizes, dtype);
  take_result_memory(function, out, sizes, dtype);
  return out.detach();  // the result gets a history of its own, because `out` may be one of the inputs
}

bool overlaps(const Tensor& a, const Tensor& b) {
  const Storage &all_of_a = *a.impl()->storage, &all_of_b = *b.impl()->storage;
  if (all_of_a.first >= all_of_b.end || all_of_b.first >= all_of_a.end) return false;
  const auto [a_first, a_end] = extent(a);
  const auto [b_first, b_end] = extent(b);
  if (a_first == a_end || b_first == b_end || a_first >= b_end || b_first >= a_end) return false;
  const TensorImpl &of_a = *a.impl(), &of_b = *b.impl();
  return !(of_a.data == of_b.data && of_a.dtype == of_b.dtype && of_a.sizes == of_b.sizes &&
           of_a.strides == of_b.strides);
}

}  // namespace attn
