// python/src/call_tensors.cc: reads the arrays of a call as tensors, and gives tensors back as arrays.
#include "call_tensors.h"

#include <nanobind/ndarray.h>

#include "errors.h"
#include "frameworks.h"
#include "gil.h"
#include "integers.h"

#define NO_IMPORT_ARRAY
#include "numpy_api.h"

#include <algorithm>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace attn::python {
namespace {

/// Requests large pages for memory of several megabytes that is about to be written. New memory then takes one page
/// fault for each 2 MiB instead of each 4 KiB; those faults took a tenth of the time of a linear layer. The system may
/// ignore the request.
void expect_writes(const View& view) {
#if defined(__linux__)
  constexpr std::uintptr_t page = 2 << 20;
  std::int64_t last = 0;
  for (int d = 0; d < view.sizes.size(); ++d) {
    if (view.sizes[d] == 0 || view.strides[d] < 0) return;
    last += (view.sizes[d] - 1) * view.strides[d];
  }
  const auto first = reinterpret_cast<std::uintptr_t>(view.data);
  const std::uintptr_t begin = (first + page - 1) / page * page,
                       end = (first + static_cast<std::uintptr_t>(last + 1) * size_of(view.dtype)) / page * page;
  if (begin + page < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  static_cast<void>(view);
#endif
}

Tensor tensor_of(const View& view, std::function<void(void*)> deleter = {}) {
  return Tensor::from_blob(view.data, view.sizes, view.dtype, view.strides, std::move(deleter));
}

/// Returns a tensor that keeps the view's memory alive.
Tensor kept(nb::handle x, const View& view) {
  // For a torch tensor this holds its memory and not the object, because x.data = y can give the object other memory.
  nb::object owner = view.copy.is_valid()                 ? view.copy
                     : view.framework == Framework::torch ? call_method(x, Torch::get().detach)
                                                          : nb::borrow(x);
  return tensor_of(view, [held = owner.release().ptr()](void*) {
    if (!Py_IsInitialized()) return;
    const Locked locked;
    Py_DECREF(held);
  });
}

}  // namespace

bool wants_gradient(nb::handle x) {
  return is_torch(x) && nb::cast<bool>(x.attr("requires_grad")) &&
         nb::cast<bool>(nb::module_::import_("torch").attr("is_grad_enabled")());
}

void refuse_gradient(nb::handle x, const Argument& at) {
  if (wants_gradient(x))
    throw type_error(
        "{}: {} wants a gradient and the first array is no torch tensor, so there would be none; give all as tensors, "
        "or {}.detach()",
        at.function, at.name, at.name);
}

Tensor Reader::operator()(nb::handle x, const char* name) {
  View view = view_of(x, {function_, name});
  if (!framework_) framework_ = view.framework;
  if (*framework_ != view.framework) refuse_gradient(x, {function_, name});
  if (keeps_) return kept(x, view);
  if (view.copy.is_valid()) copies_.push_back(view.copy);
  return tensor_of(view);
}

Tensor Reader::integers(nb::handle x, const char* name) {
  copies_.push_back(python::integers(x, {function_, name}));
  return (*this)(copies_.back(), name);
}

Tensor Reader::writable(nb::handle x, const char* name) {
  const View view = writable_view_of(x, {function_, name});
  if (view.copy.is_valid()) copies_.push_back(view.copy);
  expect_writes(view);
  return tensor_of(view);
}

Tensor keep(nb::handle x, const Argument& argument) { return kept(x, view_of(x, argument)); }

// --- and back --------------------------------------------------------------------------------------------------------

namespace {

nb::dlpack::dtype dlpack_dtype(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32: return nb::dtype<float>();
    case Dtype::f64: return nb::dtype<double>();
    case Dtype::bf16: return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1};
    case Dtype::f16: return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    case Dtype::i64: return nb::dtype<std::int64_t>();
    case Dtype::i32: return nb::dtype<std::int32_t>();
    default: return nb::dtype<bool>();
  }
}

nb::object tuple_of(const Dims& dims) {
  PyObject* tuple = PyTuple_New(dims.size());
  if (tuple == nullptr) throw nb::python_error();
  for (int d = 0; d < dims.size(); ++d) PyTuple_SetItem(tuple, d, PyLong_FromLongLong(dims[d]));
  return nb::steal(tuple);
}

}  // namespace

nb::object to_python(const Tensor& x, Framework framework) {
  if (!x.defined()) return nb::none();
  nb::capsule owner(new Tensor(x), [](void* held) noexcept { delete static_cast<Tensor*>(held); });
  std::size_t sizes[max_rank];
  std::int64_t strides[max_rank];
  for (int d = 0; d < x.dim(); ++d) sizes[d] = static_cast<std::size_t>(x.size(d)), strides[d] = x.stride(d);
  const bool bits = framework == Framework::numpy && x.dtype() == Dtype::bf16;
  const nb::dlpack::dtype dtype = bits ? nb::dtype<std::uint16_t>() : dlpack_dtype(x.dtype());
  const auto rank = static_cast<std::size_t>(x.dim());
  if (framework == Framework::torch)
    return nb::cast(nb::ndarray<nb::pytorch>(x.data(), rank, sizes, owner, strides, dtype));
  nb::object array = nb::cast(nb::ndarray<nb::numpy>(x.data(), rank, sizes, owner, strides, dtype));
  return bits ? array.attr("view")(Numpy::get().dtype(Dtype::bf16)) : array;
}

NewArray empty_array(const Tensor& like_view, nb::handle like, const Dims& sizes, Framework framework) {
  const bool same = sizes == like_view.sizes();
  Reader read("attention");
  if (framework == Framework::torch) {
    const Torch& torch = Torch::get();
    if (!same) {
      nb::object array = (*torch.empty)(
          tuple_of(sizes), nb::arg("dtype") = nb::handle(torch.dtypes[static_cast<int>(like_view.dtype())]));
      return {array, read.writable(array, "out")};
    }
    // does not read again what the array has in common with `like`, which saves half a microsecond
    nb::object array = (*torch.empty_like)(like);
    const View view{.data = PyLong_AsVoidPtr(call_method(array, torch.data_ptr).ptr()),
                    .sizes = sizes,
                    .strides = dims_of(call_method(array, torch.stride)),
                    .dtype = like_view.dtype()};
    expect_writes(view);
    return {array, tensor_of(view)};
  }
  const Numpy& numpy = Numpy::get();
  npy_intp extents[max_rank];
  std::copy(sizes.begin(), sizes.end(), extents);
  PyObject* array = nullptr;
  if (same && is_numpy(like)) {
    array = PyArray_NewLikeArray(reinterpret_cast<PyArrayObject*>(like.ptr()), NPY_KEEPORDER, nullptr, 0);
  } else {
    nb::object dtype = nb::borrow(numpy.dtype(like_view.dtype()));
    array = PyArray_Empty(sizes.size(), extents, reinterpret_cast<PyArray_Descr*>(dtype.release().ptr()), 0);
  }
  if (array == nullptr) throw nb::python_error();
  return {nb::steal(array), read.writable(array, "out")};
}

}  // namespace attn::python
