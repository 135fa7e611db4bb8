// src/tensor/impl.h: defines the objects that a tensor handle points to.
#pragma once
#include <attn/tensor.h>

#include <atomic>
#include <limits>

namespace attn {

/// The bytes of this many elements of any dtype, and of some more, fit in 64 bits.
inline constexpr std::int64_t most_apart = std::numeric_limits<std::int64_t>::max() / 32;

struct Node;

/// Holds the memory that a tensor and its views share. `version` counts in-place changes.
struct Storage {
  const char *first = nullptr, *end = nullptr;  // the memory range that all elements of its tensors lie in
  void* data = nullptr;                         // the pointer that the caller gave, for `deleter`
  std::function<void(void*)> deleter;           // called for memory of the caller; else empty
  std::atomic<std::uint64_t> version{0};
  Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage() {
    if (deleter) deleter(data);
  }
};

struct TensorImpl {
  TensorImpl() {}  // with `= default`, make_shared would first set all of it to zero
  /// Makes a contiguous tensor without memory.
  TensorImpl(const Dims& all_sizes, Dtype type)
      : sizes(all_sizes), strides(contiguous_strides(all_sizes)), dtype(type) {}
  std::shared_ptr<Storage> storage;
  void* data = nullptr;  // first element; lies inside storage
  Dims sizes;
  Dims strides;
  Dtype dtype = Dtype::f32;
  bool requires_grad = false;
  bool frozen = false;         // a view made while recording was off: it does not take part in the history of its base
  bool has_leaf_view = false;  // a view of it was made a leaf; later changes in place could not be recorded in it
  int output = 0;              // which result of `node` this is
  std::shared_ptr<Node> node;  // the operation that made it, if a gradient is wanted
  std::shared_ptr<TensorImpl> grad;
  Tensor base;  // views: the tensor whose memory it shows, itself no view
  // views: sequence number of the base's node when the view's history was last updated, or 0
  std::atomic<std::uint64_t> seen{0};
};

}  // namespace attn
