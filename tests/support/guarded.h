// tests/support/guarded.h: allocates memory between two inaccessible pages, so that a read or write outside it ends the
// program.
#pragma once
#include <attn/ops.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <new>

namespace attn::testing {

enum class Edge { end, begin };

/// Allocates `bytes` that end at the end of the readable memory, or begin at its beginning.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes, Edge edge = Edge::end)
      : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))), whole_((bytes / page_ + 3) * page_) {
    void* const memory = mmap(nullptr, whole_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<char*>(memory);
    char* const last = base_ + whole_ - page_;
    if (mprotect(base_, page_, PROT_NONE) != 0 || mprotect(last, page_, PROT_NONE) != 0) throw std::bad_alloc();
    data_ = edge == Edge::end ? last - bytes : base_ + page_;
  }
  ~Guarded() { munmap(base_, whole_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  void* data() const { return data_; }

 private:
  std::size_t page_, whole_;
  char *base_, *data_;
};

/// Allocates a tensor of these sizes and strides (empty: row-major; none negative) in such memory.
inline Tensor guarded(const Dims& sizes, Dtype dtype, const Dims& strides = {}, Edge edge = Edge::end) {
  std::int64_t elements = sizes.product();
  if (strides.size() > 0 && elements > 0) {
    elements = 1;
    for (int d = 0; d < static_cast<int>(sizes.size()); ++d) elements += (sizes[d] - 1) * strides[d];
  }
  const auto memory = std::make_shared<Guarded>(static_cast<std::size_t>(elements) * size_of(dtype), edge);
  return Tensor::from_blob(memory->data(), sizes, dtype, strides, [memory](void*) {});
}
/// Copies a tensor with its strides; undefined stays undefined.
inline Tensor guarded(const Tensor& x, Edge edge = Edge::end) {
  if (!x.defined()) return x;
  Dims strides;
  for (int d = 0; d < x.dim(); ++d) strides.push_back(x.stride(d));
  const Tensor copy = guarded(x.sizes(), x.dtype(), strides, edge);
  copy.copy_(x);
  return copy;
}

}  // namespace attn::testing
