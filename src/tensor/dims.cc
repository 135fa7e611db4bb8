// src/tensor/dims.cc: implements sizes and strides: editing, printing, row-major strides, the broadcasting rule.
#include <attn/dims.h>
#include <attn/error.h>

#include "tensor/impl.h"

#include <algorithm>
#include <limits>
#include <ostream>

namespace attn {

Dims::Dims(std::span<const std::int64_t> values) {
  if (values.size() > static_cast<std::size_t>(max_rank))
    throw ShapeError("Dims: " + std::to_string(values.size()) + " dims; a tensor has at most " +
                     std::to_string(max_rank));
  for (const std::int64_t value : values) values_[static_cast<std::size_t>(size_++)] = value;
}

void Dims::push_back(std::int64_t value) { insert(size_, value); }

void Dims::insert(int at, std::int64_t value) {
  if (size_ == max_rank)
    throw ShapeError("Dims: " + std::to_string(size_ + 1) + " dims; a tensor has at most " + std::to_string(max_rank));
  std::copy_backward(begin() + at, end(), end() + 1);
  (*this)[at] = value;
  ++size_;
}

void Dims::erase(int at) {
  std::copy(begin() + at + 1, end(), begin() + at);
  --size_;
}

std::int64_t Dims::product() const {
  std::int64_t product = 1;
  for (const std::int64_t value : *this) {
    if (__builtin_mul_overflow(product, value, &product)) {
      if (std::find(begin(), end(), 0) != end()) return 0;
      throw ShapeError("Dims: the product of " + to_string(*this) + " is beyond 64 bits");
    }
  }
  return product;
}

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (int i = 0; i < dims.size(); ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

Dims contiguous_strides(const Dims& sizes) {
  Dims strides;
  strides.size_ = sizes.size_;
  const bool empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  std::int64_t stride = 1;
  for (int i = sizes.size() - 1; i >= 0; --i) {
    strides[i] = stride;
    const std::int64_t steps = std::max<std::int64_t>(sizes[i], 1);
    // Without elements the other sizes may have a product beyond 64 bits. No element is read then, and with a stride of
    // 0 no offset in a view overflows.
    if (empty && stride > most_apart / steps) strides[i] = stride = 0;
    (void)__builtin_mul_overflow(stride, steps, &stride);
  }
  return strides;
}

std::ostream& operator<<(std::ostream& out, const Dims& dims) { return out << to_string(dims); }

Dims broadcast_shapes(const char* function, const Dims& a, const Dims& b) {
  const Dims& longer = a.size() >= b.size() ? a : b;
  const Dims& shorter = a.size() >= b.size() ? b : a;
  Dims result = longer;
  const int shift = longer.size() - shorter.size();
  for (int i = 0; i < shorter.size(); ++i) {
    std::int64_t& size = result[i + shift];
    if (size == shorter[i] || shorter[i] == 1) continue;
    if (size != 1)
      throw ShapeError(std::string(function) + ": shapes " + to_string(a) + " and " + to_string(b) +
                       " do not broadcast; sizes must be equal or 1, counted from the last dim");
    size = shorter[i];
  }
  return result;
}

}  // namespace attn
