// src/tensor/impl.h: what a tensor handle points to.
#pragma once
#include <attn/tensor.h>

#include <atomic>

namespace attn {

struct Node;

/// Memory shared by a tensor and its views. `version` counts in-place changes.
struct Storage {
  void* data = nullptr;
  std::size_t bytes = 0;
  std::function<void(void*)> deleter;
  std::atomic<std::uint64_t> version{0};
  Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage() {
    if (deleter) deleter(data);
  }
};

struct TensorImpl {
  std::shared_ptr<Storage> storage;
  void* data = nullptr;  // first element: inside storage
  Dims sizes;
  Dims strides;
  Dtype dtype = Dtype::f32;
  bool requires_grad = false;
  bool is_view = false;        // made by a view operation
  int output = 0;              // which result of the node it is
  std::shared_ptr<Node> node;  // the operation that made it, when a gradient is wanted
  std::shared_ptr<TensorImpl> grad;
};

}  // namespace attn
