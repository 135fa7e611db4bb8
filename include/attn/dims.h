// include/attn/dims.h: holds the sizes or strides of a tensor of rank 0 to 8, without allocation.
#pragma once
#include <attn/export.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace attn {

inline constexpr int max_rank = 8;

/// Up to eight numbers, one per dimension. A ninth is a ShapeError.
class ATTN_API Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values)
      : Dims(std::span<const std::int64_t>(values.begin(), values.size())) {}
  Dims(const std::vector<std::int64_t>& values) : Dims(std::span<const std::int64_t>(values)) {}
  Dims(std::span<const std::int64_t> values);
  /// One dim, as in x.sum(-1) or zeros(3). A bool is rejected: the true in x.sum(true) is no dim.
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  Dims(T size) : Dims(std::initializer_list<std::int64_t>{static_cast<std::int64_t>(size)}) {}

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::int64_t operator[](int i) const { return values_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return values_[static_cast<std::size_t>(i)]; }
  std::int64_t back() const { return values_[static_cast<std::size_t>(size_ - 1)]; }
  const std::int64_t* begin() const { return values_.data(); }
  const std::int64_t* end() const { return values_.data() + size_; }
  std::int64_t* begin() { return values_.data(); }
  std::int64_t* end() { return values_.data() + size_; }
  void push_back(std::int64_t value);
  void insert(int at, std::int64_t value);
  void erase(int at);
  /// Returns the product of all sizes; 1 for rank 0.
  std::int64_t product() const;
  friend bool operator==(const Dims& a, const Dims& b) {
    if (a.size_ != b.size_) return false;
    for (int i = 0; i < a.size_; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }
  friend ATTN_API Dims contiguous_strides(const Dims& sizes);
  /// Prints the text of to_string (below).
  friend ATTN_API std::ostream& operator<<(std::ostream& out, const Dims& dims);

 private:
  std::array<std::int64_t, max_rank> values_{};
  int size_ = 0;
};

/// Returns "[2, 3, 4]", the form used in error texts and tables.
ATTN_API std::string to_string(const Dims& dims);
/// Returns the row-major strides of a contiguous tensor of these sizes.
ATTN_API Dims contiguous_strides(const Dims& sizes);
/// Returns the common shape by torch's broadcasting rule; ShapeError names `function` and both shapes.
ATTN_API Dims broadcast_shapes(const char* function, const Dims& a, const Dims& b);

}  // namespace attn
