// src/tensor/impl.h: what a tensor handle points to.
#pragma once
#include <attn/tensor.h>

#include <atomic>

namespace attn {

struct Node;

/// Memory shared by a tensor and its views. `version` counts in-place changes.
struct Storage {
  const char *first = nullptr, *end = nullptr;  // all elements of its tensors lie between
  void* data = nullptr;                         // as the caller gave it, for `deleter`
  std::function<void(void*)> deleter;           // of a caller's memory, or none
  std::atomic<std::uint64_t> version{0};
  Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage() {
    if (deleter) deleter(data);
  }
};

struct TensorImpl {
  TensorImpl() {}  // with `= default`, make_shared would clear all of it first
  /// Contiguous, without memory.
  TensorImpl(const Dims& all_sizes, Dtype type)
      : sizes(all_sizes), strides(contiguous_strides(all_sizes)), dtype(type) {}
  std::shared_ptr<Storage> storage;
  void* data = nullptr;  // first element: inside storage
  Dims sizes;
  Dims strides;
  Dtype dtype = Dtype::f32;
  bool requires_grad = false;
  bool frozen = false;         // a view made while nothing was recorded: it has no part in its base's history
  bool has_leaf_view = false;  // a view of it was made a leaf: what happens to it from then on would be missing there
  int output = 0;              // which result of the node it is
  std::shared_ptr<Node> node;  // the operation that made it, when a gradient is wanted
  std::shared_ptr<TensorImpl> grad;
  Tensor base;                         // of a view: the tensor whose memory it shows, itself no view
  std::atomic<std::uint64_t> seen{0};  // of a view: sequence of the base's node that its history follows, 0 for none
};

}  // namespace attn
