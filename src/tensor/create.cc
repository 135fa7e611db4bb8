// src/tensor/create.cc: makes new tensors: empty, filled with one value, number sequences, one-hot.
#include <attn/ops.h>

#include "runtime/format.h"

#include "runtime/floating_point.h"
#include "runtime/memory.h"
#include "tensor/blocks.h"
#include "tensor/build.h"
#include "tensor/create.h"
#include "tensor/element.h"
#include "tensor/impl.h"
#include "tensor/iterate.h"

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

/// Allocator that places a Storage, with its reference count, in front of the memory that it owns: one allocation
/// instead of two. Sets `data` to the address of that memory.
template <typename T>
struct InFront {
  using value_type = T;
  std::size_t bytes;
  void** data;
  InFront(std::size_t count, void** to) : bytes(count), data(to) {}
  template <typename U>
  InFront(const InFront<U>& other) : bytes(other.bytes), data(other.data) {}
  T* allocate(std::size_t n) {
    *data = runtime::allocate(bytes, n * sizeof(T));
    return static_cast<T*>(runtime::front_of(*data, n * sizeof(T)));
  }
  void deallocate(T* front, std::size_t n) noexcept {
    runtime::deallocate(runtime::behind_front(front, n * sizeof(T)));
  }
};

/// Returns a tensor [n] whose element i is function(i), a float, a double or an int64.
template <typename F>
Tensor filled_by(std::int64_t n, Dtype dtype, F&& function) {
  const runtime::DefaultFloatingPoint floating_point;
  Tensor result = empty({n}, dtype);
  with_type(dtype, [&]<typename T>(Type<T>) {
    T* data = result.data<T>();
    for (std::int64_t i = 0; i < n; ++i) data[i] = convert<T>(function(i));
  });
  return result;
}

/// Returns first + i * by. The sum wraps around, because i * by alone may exceed 64 bits.
std::int64_t counted(std::int64_t first, std::int64_t by, std::int64_t i) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(first) +
                                   static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(by));
}

}  // namespace

Tensor empty(Dims sizes, Dtype dtype) { return new_memory(sizes, dtype); }

std::size_t checked_bytes(const char* function, const Dims& sizes, Dtype dtype) {
  for (const std::int64_t size : sizes)
    if (size < 0) throw ShapeError(runtime::format("{}: sizes {} hold a negative one", function, to_string(sizes)));
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(sizes.product(), size_of(dtype), &bytes) || bytes > PTRDIFF_MAX)
    throw ShapeError(runtime::format("{}: sizes {} need more bytes than {} bits count", function, to_string(sizes),
                                     8 * sizeof bytes));
  return bytes;
}

Tensor new_memory(const Dims& sizes, Dtype dtype) {
  const std::size_t bytes = checked_bytes("empty", sizes, dtype);
  auto impl = std::make_shared<TensorImpl>(sizes, dtype);
  impl->storage = std::allocate_shared<Storage>(InFront<Storage>(bytes, &impl->data));
  impl->storage->first = static_cast<const char*>(impl->data);
  impl->storage->end = impl->storage->first + bytes;
  return Tensor(std::move(impl));
}

void check_fits(const char* function, Scalar value, Dtype dtype) {
  const double v = value.to_double(), limit = dtype == Dtype::i64 ? 0x1p63 : 0x1p31;
  const bool fits = is_integral(dtype)
                        ? (dtype == Dtype::i64 && !value.is_floating()) || (v >= -limit && v < limit)
                        : dtype != Dtype::f32 || std::isinf(v) || !(std::abs(v) > std::numeric_limits<float>::max());
  if (!fits) throw ValueError(runtime::format("{}: the value {} cannot be kept in {}", function, v, name_of(dtype)));
}

Tensor filled(const Dims& sizes, Scalar value, Dtype dtype) {
  const runtime::DefaultFloatingPoint floating_point;
  Tensor result = empty(sizes, dtype);
  with_type(dtype, [&]<typename T>(Type<T>) {
    const T element = from_scalar<T>(value);
    iterate_in_parts(sizes, {operand(result, sizes)},
                     [&element](char* const* data, const std::int64_t*, std::int64_t n) {
                       move_words(sizeof(T), reinterpret_cast<const char*>(&element), 0, data[0], sizeof(T), n);
                     });
  });
  return result;
}

Tensor full(Dims sizes, Scalar value, Dtype dtype) {
  checked_bytes("full", sizes, dtype);
  check_fits("full", value, dtype);
  return filled(sizes, value, dtype);
}

Tensor zeros(Dims sizes, Dtype dtype) {
  checked_bytes("zeros", sizes, dtype);
  return full(sizes, 0, dtype);
}
Tensor ones(Dims sizes, Dtype dtype) {
  checked_bytes("ones", sizes, dtype);
  return full(sizes, 1, dtype);
}
Tensor zeros_like(const Tensor& x) { return zeros(x.sizes(), x.dtype()); }
Tensor ones_like(const Tensor& x) { return ones(x.sizes(), x.dtype()); }
Tensor empty_like(const Tensor& x) { return empty(x.sizes(), x.dtype()); }

Tensor eye(std::int64_t n, Dtype dtype) {
  if (n < 0) throw ShapeError("eye: n is " + std::to_string(n) + "; it must not be negative");
  Tensor result = zeros({n, n}, dtype);
  Tensor::from_blob(result.data(), {n}, dtype, {n + 1}).fill_(1);
  return result;
}

Tensor arange(Scalar end) { return arange(0, end); }

Tensor arange(Scalar start, Scalar end, Scalar step, std::optional<Dtype> dtype) {
  const bool integral = !start.is_floating() && !end.is_floating() && !step.is_floating();
  const Dtype type = dtype.value_or(integral ? Dtype::i64 : Dtype::f32);
  const double width = step.to_double();
  const auto check = [&](bool leads) {
    if (!leads)
      throw ValueError(
          runtime::format("arange: from {} to {} by {}; the step must be finite, not 0, and lead towards the end",
                          start.to_double(), end.to_double(), width));
  };
  if (integral || type == Dtype::i64) {  // exact beyond 2^53 too; i64 is computed in integers, as in torch
    for (const Scalar& x : {start, end, step}) check_fits("arange", x, Dtype::i64);
    const std::int64_t first = start.to_int(), last = end.to_int(), by = step.to_int();
    check(by != 0 && (last == first || (last > first) == (by > 0)));
    std::uint64_t apart = static_cast<std::uint64_t>(last) - static_cast<std::uint64_t>(first),
                  each = static_cast<std::uint64_t>(by);
    if (by < 0) apart = -apart, each = -each;
    const std::uint64_t count = apart / each + (apart % each != 0);
    check(count < std::uint64_t{1} << 62);
    return filled_by(static_cast<std::int64_t>(count), type, [&](std::int64_t i) { return counted(first, by, i); });
  }
  const double steps = (end.to_double() - start.to_double()) / width, length = std::ceil(steps);
  check(width != 0 && steps >= 0 && length < 0x1p62);
  if (!is_floating(type)) {
    const std::int64_t first = start.to_int(), by = step.to_int();
    return filled_by(static_cast<std::int64_t>(length), type, [&](std::int64_t i) { return counted(first, by, i); });
  }
  return filled_by(static_cast<std::int64_t>(length), type,
                   [&](std::int64_t i) { return start.to_double() + static_cast<double>(i) * width; });
}

Tensor linspace(double start, double end, std::int64_t steps, Dtype dtype) {
  const runtime::DefaultFloatingPoint floating_point;
  if (steps < 0) throw ValueError("linspace: steps " + std::to_string(steps) + " must not be negative");
  // Counts from both ends towards the middle, as torch does, so that the last value is exactly `end`. 16-bit types are
  // computed in f32.
  const auto counted = [&]<typename T>(T first, T last) {
    const T step = steps > 1 ? (last - first) / static_cast<T>(steps - 1) : 0;
    return filled_by(steps, dtype, [&](std::int64_t i) {
      return i < steps / 2 || steps == 1 ? first + step * static_cast<T>(i)
                                         : last - step * static_cast<T>(steps - 1 - i);
    });
  };
  if (dtype == Dtype::f64 || !is_floating(dtype)) return counted(start, end);
  return counted(static_cast<float>(start), static_cast<float>(end));
}

Tensor one_hot(const Tensor& index, std::int64_t classes) {
  if (!is_integral(index.dtype()))
    throw DtypeError("one_hot: index is " + std::string(name_of(index.dtype())) + "; it must be i64 or i32");
  const std::vector<std::int64_t> indices = index.to_int_vector();
  if (classes < -1)
    throw ValueError("one_hot: classes is " + std::to_string(classes) + "; it must not be negative, but for -1");
  std::int64_t most = -1;
  for (const std::int64_t i : indices) {
    if (i < 0 || (classes >= 0 && i >= classes))
      throw ValueError("one_hot: index " + std::to_string(i) + " must be from 0 to " +
                       (classes >= 0 ? std::to_string(classes - 1) : std::string("the largest class")));
    most = std::max(most, i);
  }
  if (classes < 0 && indices.empty())
    throw ValueError("one_hot: an empty index does not tell the classes; give their number");
  if (classes < 0) classes = std::min(most, std::numeric_limits<std::int64_t>::max() - 1) + 1;
  Dims sizes = index.sizes();
  sizes.push_back(classes);
  Tensor result = zeros(sizes, Dtype::i64);
  std::int64_t* row = result.data<std::int64_t>();
  for (const std::int64_t i : indices) {
    row[i] = 1;
    row += classes;
  }
  return result;
}

Tensor tensor2d(std::initializer_list<std::initializer_list<float>> rows) {
  const std::size_t columns = rows.size() ? rows.begin()->size() : 0;
  std::vector<float> values;
  for (const auto& row : rows) {
    if (row.size() != columns)
      throw ShapeError("tensor2d: a row has " + std::to_string(row.size()) + " values; all must have " +
                       std::to_string(columns));
    values.insert(values.end(), row.begin(), row.end());
  }
  return tensor<float>(values, {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(columns)});
}

}  // namespace attn
