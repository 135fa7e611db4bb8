// src/tensor/copy.cc: copies and conversions between dtypes, from any strides to any strides.
#include <attn/ops.h>

#include "runtime/floating_point.h"
#include "tensor/blocks.h"
#include "tensor/build.h"
#include "tensor/element.h"
#include "tensor/iterate.h"

#include <algorithm>
#include <cstring>

namespace attn {
namespace {

template <typename To, typename From>
void convert_run(char* const* data, const std::int64_t* strides, std::int64_t n) {
  if constexpr (is_half<From> && std::is_same_v<To, float>) {
    if (strides[0] == sizeof(To)) return read_block<From>(data[1], strides[1], reinterpret_cast<To*>(data[0]), n);
  }
  if constexpr (is_half<To> && std::is_same_v<From, float>) {
    if (strides[1] == sizeof(From)) return write_block<To>(reinterpret_cast<const From*>(data[1]), data[0], strides[0], n);
  }
  if constexpr (std::is_same_v<To, From>) {
    if (strides[0] == sizeof(To) && strides[1] == sizeof(To)) {
      std::memmove(data[0], data[1], static_cast<std::size_t>(n) * sizeof(To));
      return;
    }
  } else if (strides[0] == sizeof(To) && strides[1] == sizeof(From)) {
    To* to = reinterpret_cast<To*>(data[0]);
    const From* from = reinterpret_cast<const From*>(data[1]);
    for (std::int64_t i = 0; i < n; ++i) to[i] = convert<To>(from[i]);
    return;
  }
  for (std::int64_t i = 0; i < n; ++i)
    *reinterpret_cast<To*>(data[0] + i * strides[0]) = convert<To>(*reinterpret_cast<const From*>(data[1] + i * strides[1]));
}

Tensor copy_as(const Tensor& x, Dtype dtype) {
  Tensor copy = empty(x.sizes(), dtype);
  copy_values(copy, x);
  return copy;
}

constexpr auto same = [](auto& dy) { return dy; };  // the tape converts

}  // namespace

void read_halves(Dtype half, const void* from, float* to, std::int64_t n) {
  half == Dtype::bf16 ? read_block<bfloat16>(static_cast<const char*>(from), 2, to, n) : read_block<float16>(static_cast<const char*>(from), 2, to, n);
}
void write_halves(Dtype half, const float* from, void* to, std::int64_t n) {
  half == Dtype::bf16 ? write_block<bfloat16>(from, static_cast<char*>(to), 2, n) : write_block<float16>(from, static_cast<char*>(to), 2, n);
}

void copy_values(const Tensor& target, const Tensor& source) {
  with_type(target.dtype(), [&]<typename To>(Type<To>) {
    with_type(source.dtype(), [&]<typename From>(Type<From>) {
      iterate_in_parts(target.sizes(), {operand(target, target.sizes()), operand(source, target.sizes())},
                       [](char* const* data, const std::int64_t* strides, std::int64_t n) { convert_run<To, From>(data, strides, n); });
    });
  });
}

Tensor Tensor::clone() const { return record("CloneBackward0", copy_as(*this, dtype()), wrt(*this, same)); }

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

Tensor Tensor::to(Dtype dtype) const {
  if (dtype == this->dtype()) return *this;
  return record("ToCopyBackward0", copy_as(*this, dtype), wrt(*this, same));
}

const Tensor& Tensor::copy_(const Tensor& source) const {
  if (!(broadcast_shapes("copy_", sizes(), source.sizes()) == sizes()))
    throw ShapeError("copy_: source has shape " + attn::to_string(source.sizes()) + "; it must broadcast to " + attn::to_string(sizes()));
  check_in_place("copy_", *this, source);
  const History history = history_of("CopyBackwards", *this, wrt(*this, [](auto& dy) { return zeros_like(dy); }), wrt(source, same));
  copy_values(*this, overlaps(*this, source) ? copy_as(source, source.dtype()) : source);
  return history.changed(*this);
}

const Tensor& Tensor::fill_(Scalar value) const {
  const runtime::DefaultFloatingPoint floating_point;
  if (defined()) check_fits("fill_", value, dtype());
  check_overwrite("fill_", *this);
  const History history = history_of_overwriting("FillBackward0", *this);
  with_type(dtype(), [&]<typename T>(Type<T>) {
    const T element = from_scalar<T>(value);
    iterate_in_parts(sizes(), {operand(*this, sizes())}, [element](char* const* data, const std::int64_t* strides, std::int64_t n) {
      if (strides[0] == sizeof(T)) std::fill_n(reinterpret_cast<T*>(data[0]), n, element);
      else for (std::int64_t i = 0; i < n; ++i) *reinterpret_cast<T*>(data[0] + i * strides[0]) = element;
    });
  });
  return history.changed(*this);
}

}  // namespace attn
