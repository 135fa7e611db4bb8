// include/attn/tensor.h: defines the tensor handle: shared memory, sizes, strides, a dtype, and gradient state.
#pragma once
#include <attn/dims.h>
#include <attn/dtype.h>
#include <attn/error.h>
#include <attn/export.h>

#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attn {

struct TensorImpl;

/// A handle to an n-dimensional array of rank 0 to 8. Copies of the handle share the memory; `clone` copies the memory.
///  Views (`transpose`, `slice`, `expand`, ...) share memory, the version counter and the gradient history with their
/// base. After an in-place change of a tensor or of any view of it, all of them have the gradient of their new values.
/// Owned memory is 64-byte aligned. Thread safety: using different tensors, or reading one, from several threads is
/// safe; the caller must order writes.
class ATTN_API Tensor {
 public:
  /// An undefined tensor: it has no memory and `defined()` is false. In options it means "not given". Asking for its
  /// sizes, elements or dtype is a ValueError.
  Tensor() = default;

  /// Makes a tensor of the caller's memory without a copy. `deleter(data)` runs when the last handle is gone.
  /// Empty `strides` means row-major. Strides count elements and may be 0 or negative.
  static Tensor from_blob(void* data, Dims sizes, Dtype dtype, Dims strides = {},
                          std::function<void(void*)> deleter = {});

  bool defined() const { return impl_ != nullptr; }
  explicit operator bool() const { return defined(); }
  int dim() const;
  /// On a temporary tensor, as in `x.t().sizes()`, these return by value.
  const Dims& sizes() const&;
  Dims sizes() const&& { return sizes(); }
  const Dims& strides() const&;
  Dims strides() const&& { return strides(); }
  /// Returns the size of dimension `d`; a negative d counts from the end.
  std::int64_t size(int d) const;
  std::int64_t stride(int d) const;
  std::int64_t numel() const;
  Dtype dtype() const;
  bool is_contiguous() const;

  /// Returns the address of the first element. The typed form throws DtypeError when T is not the tensor's type.
  void* data() const;
  template <typename T>
  T* data() const {
    check_dtype(dtype_of<T>);
    return static_cast<T*>(data());
  }
  /// Returns the one element of a tensor with numel() == 1, converted to double or int64.
  double item() const;
  std::int64_t item_int() const;
  /// Returns all elements in row-major order, converted.
  std::vector<double> to_vector() const;
  std::vector<std::int64_t> to_int_vector() const;

  // --- gradients -----------------------------------------------------------------------------------------------
  // autograd.h has the backward pass.
  bool requires_grad() const;
  /// Turns gradients on or off. On a view without gradient history, `true` makes the view a leaf: same memory, but no
  /// longer part of the base tensor's history.
  Tensor& requires_grad_(bool value = true);
  /// Returns whether no recorded operation produced this tensor; gradients end here.
  bool is_leaf() const;
  /// Returns the sum of the gradients from all backward passes; undefined before the first. A tensor that is not a leaf
  /// has one only after retain_grad().
  Tensor grad() const;
  /// Replaces the gradient, or removes it (undefined). The new one must have the same shape and dtype and elements that
  /// do not overlap in memory, because later passes add to it in place.
  void set_grad(const Tensor& grad) const;
  void retain_grad() const;
  /// Calls attn::backward(*this, grad).
  void backward(const Tensor& grad = {}) const;
  /// Returns torch's name of the operation that produced this tensor, "MulBackward0"; empty for a leaf.
  std::string grad_fn() const;
  /// Returns a tensor of the same memory without gradient history. An in-place change of one changes the values of the
  /// other, but not its history.
  Tensor detach() const;
  /// Returns the number of in-place changes of the memory; views share the counter.
  std::uint64_t version() const;
  /// Every in-place operation calls this.
  void bump_version() const;

  // --- copies --------------------------------------------------------------------------------------------------
  Tensor clone() const;
  Tensor contiguous() const;
  Tensor to(Dtype dtype) const;
  /// Copies `source` into this memory, with broadcasting and conversion.
  const Tensor& copy_(const Tensor& source) const;
  const Tensor& fill_(Scalar value) const;
  const Tensor& zero_() const { return fill_(0); }

  // --- views (share memory) ------------------------------------------------------------------------------------
  /// Returns a view if the strides allow it, else a copy. One size may be -1.
  Tensor reshape(Dims sizes) const;
  /// As reshape, but throws ShapeError where a copy would be needed.
  Tensor view(Dims sizes) const;
  Tensor transpose(int a, int b) const;
  Tensor permute(Dims order) const;
  /// Transposes rank 2; returns rank 0 and 1 unchanged; reverses all dims of higher ranks, as torch's `.T` did.
  Tensor t() const;
  Tensor select(int dim, std::int64_t index) const;
  /// Returns Python's x[start:end:step] along `dim`; negative and out-of-range bounds clamp as in Python. step >= 1.
  Tensor slice(int dim, std::int64_t start, std::optional<std::int64_t> end = std::nullopt,
               std::int64_t step = 1) const;
  Tensor narrow(int dim, std::int64_t start, std::int64_t length) const;
  Tensor expand(Dims sizes) const;
  Tensor squeeze() const;
  Tensor squeeze(int dim) const;
  Tensor unsqueeze(int dim) const;
  Tensor flatten(int first = 0, int last = -1) const;
  std::vector<Tensor> split(std::int64_t size, int dim = 0) const;
  std::vector<Tensor> split(const std::vector<std::int64_t>& sizes, int dim = 0) const;
  std::vector<Tensor> chunk(std::int64_t chunks, int dim = 0) const;
  /// Returns x[i] along the first dimension.
  Tensor operator[](std::int64_t index) const { return select(0, index); }
  /// Returns a copy repeated along each dim, as torch's repeat.
  Tensor repeat(Dims times) const;
  /// Returns a copy of the rows of `dim` that an i64 or i32 index tensor of any shape selects.
  Tensor index_select(int dim, const Tensor& index) const;

  // --- the commonest operations as methods; all operations are functions in ops.h -------------------------------
  Tensor matmul(const Tensor& other) const;
  Tensor sum() const;
  Tensor sum(Dims dims, bool keepdim = false) const;
  Tensor mean() const;
  Tensor mean(Dims dims, bool keepdim = false) const;
  Tensor var(bool unbiased = true) const;
  Tensor softmax(int dim) const;
  Tensor masked_fill(const Tensor& mask, Scalar value) const;
  Tensor exp() const;
  Tensor tanh() const;
  Tensor sqrt() const;
  /// Changes this tensor in place: this += other * alpha, and so on; `other` broadcasts.
  const Tensor& add_(const Tensor& other, Scalar alpha = 1) const;
  const Tensor& sub_(const Tensor& other, Scalar alpha = 1) const;
  const Tensor& mul_(const Tensor& other) const;
  const Tensor& div_(const Tensor& other) const;
  const Tensor& add_(Scalar value) const;
  const Tensor& sub_(Scalar value) const;
  const Tensor& mul_(Scalar value) const;
  const Tensor& div_(Scalar value) const;
  const Tensor& operator+=(const Tensor& other) const { return add_(other); }
  const Tensor& operator-=(const Tensor& other) const { return sub_(other); }
  const Tensor& operator*=(const Tensor& other) const { return mul_(other); }
  const Tensor& operator/=(const Tensor& other) const { return div_(other); }
  const Tensor& operator+=(Scalar value) const { return add_(value); }
  const Tensor& operator-=(Scalar value) const { return sub_(value); }
  const Tensor& operator*=(Scalar value) const { return mul_(value); }
  const Tensor& operator/=(Scalar value) const { return div_(value); }

  /// Returns torch's text form: tensor([[1., 2.]]), four decimals, summarised above 1,000 elements.
  std::string to_string() const;

  TensorImpl* impl() const { return impl_.get(); }
  /// Returns the number of handles to this tensor; views are separate tensors.
  long use_count() const { return impl_.use_count(); }
  explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}

 private:
  void check_dtype(Dtype dtype) const;
  std::shared_ptr<TensorImpl> impl_;
};

ATTN_API std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

/// Options of `to_string`, as torch.set_printoptions.
struct PrintOptions {
  int precision = 4;
  std::int64_t threshold = 1000;
  int edge_items = 3;
  int line_width = 80;
};
ATTN_API std::string to_string(const Tensor& tensor, const PrintOptions& options);

}  // namespace attn
