// python/src/array_memory.cc: finds the memory of an array by the ways of NumPy, of torch and of DLPack.
#include "array_memory.h"

#include <nanobind/ndarray.h>

#include "errors.h"
#include "frameworks.h"

#define NO_IMPORT_ARRAY
#include "numpy_api.h"

#include <algorithm>
#include <cstring>

namespace attn::python {
namespace {

constexpr const char* wanted_array = "a NumPy array, a torch tensor or an object with __dlpack__ is needed";
constexpr const char* wanted_dtype =
    "numbers must be float32, float64, bfloat16 or float16, whole numbers int64 or int32, flags bool";

[[noreturn]] void refuse_dtype(const Argument& at, const std::string& dtype, const char* needed = wanted_dtype) {
  throw type_error("{}: {} has dtype {}; {}", at.function, at.name, dtype, needed);
}

void check_rank(std::int64_t rank, const Argument& at) {
  if (rank > max_rank)
    throw ShapeError(text("{}: {} has {} dims; at most {} are possible", at.function, at.name, rank, max_rank));
}

// --- NumPy -----------------------------------------------------------------------------------------------------------

PyArrayObject* array_of(nb::handle x) { return reinterpret_cast<PyArrayObject*>(x.ptr()); }

/// Returns the dtype of an array: one of NumPy's own types in native byte order, or ml_dtypes' bfloat16.
Dtype numpy_dtype(PyArrayObject* x, const Argument& at) {
  const PyArray_Descr* descr = PyArray_DESCR(x);
  if (PyArray_ISNOTSWAPPED(x)) switch (descr->type_num) {
      case NPY_FLOAT: return Dtype::f32;
      case NPY_DOUBLE: return Dtype::f64;
      case NPY_HALF: return Dtype::f16;
      case NPY_BOOL: return Dtype::boolean;
      case NPY_INT:
      case NPY_LONG:
      case NPY_LONGLONG: return PyArray_ITEMSIZE(x) == 8 ? Dtype::i64 : Dtype::i32;
      default: break;
    }
  const std::string name = nb::cast<std::string>(nb::str(reinterpret_cast<PyObject*>(PyArray_DESCR(x))));
  if (name == "bfloat16") return Dtype::bf16;
  refuse_dtype(at, name,
               PyArray_ISNOTSWAPPED(x)
                   ? wanted_dtype
                   : "its bytes must stand in this machine's order, as x.astype(x.dtype.newbyteorder('=')) has them");
}

/// Reads pointer, sizes and strides. Returns false if a stride is not a whole number of elements, or if the memory is
/// not aligned.
bool describe(PyArrayObject* x, View& to) {
  const auto bytes = static_cast<std::int64_t>(PyArray_ITEMSIZE(x));
  to.data = PyArray_DATA(x);
  bool whole = reinterpret_cast<std::uintptr_t>(to.data) % static_cast<std::uintptr_t>(bytes) == 0;
  for (int d = 0; d < PyArray_NDIM(x); ++d) {
    const std::int64_t size = PyArray_DIM(x, d), stride = PyArray_STRIDE(x, d);
    to.sizes.push_back(size);
    to.strides.push_back(stride / bytes);
    whole = whole && (stride % bytes == 0 || size < 2);
  }
  return whole;
}

View numpy_view(nb::handle x, const Argument& at) {
  const Numpy& numpy = Numpy::get();
  if (reinterpret_cast<PyObject*>(Py_TYPE(x.ptr())) != numpy.ndarray && nb::isinstance(x, *numpy.masked))
    throw type_error("{}: {} is a masked array, whose mask would be lost; give its data, and the mask as attn.Mask",
                     at.function, at.name);
  check_rank(PyArray_NDIM(array_of(x)), at);
  View view{.dtype = numpy_dtype(array_of(x), at)};
  if (describe(array_of(x), view)) return view;
  view.sizes = view.strides = Dims();
  view.copy = (*numpy.array)(x);  // an aligned copy with its own memory
  describe(array_of(view.copy), view);
  return view;
}

// --- torch -----------------------------------------------------------------------------------------------------------

nb::object get(nb::handle x, PyObject* name) {
  PyObject* result = PyObject_GetAttr(x.ptr(), name);
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

[[noreturn]] void refuse_nested(const Argument& at) {
  throw type_error("{}: {} is a nested tensor, which has no sizes; give {}.to_padded_tensor(0)", at.function, at.name,
                   at.name);
}

View torch_view(nb::handle x, const Argument& at) {
  const Torch& torch = Torch::get();
  if (!get(x, torch.is_cpu).is(Py_True))
    throw ValueError(text("{}: {} is on {}; attn computes on the CPU: give {}.cpu()", at.function, at.name,
                          nb::cast<std::string>(nb::str(get(x, torch.device))), at.name));
  if (get(x, torch.layout).ptr() != torch.strided) {
    if (nb::cast<bool>(x.attr("is_nested"))) refuse_nested(at);
    throw type_error("{}: {} is a sparse tensor; give {}.to_dense()", at.function, at.name, at.name);
  }
  View view{.framework = Framework::torch};
  nb::object dtype = get(x, torch.dtype_name);
  int known = 0;
  while (known < dtype_count && torch.dtypes[known] != dtype.ptr()) ++known;
  if (known == dtype_count) refuse_dtype(at, nb::cast<std::string>(nb::str(dtype)).substr(std::strlen("torch.")));
  view.dtype = static_cast<Dtype>(known);
  // data_ptr of a lazily negated view (torch's imaginary part of a conjugate) shows the numbers before the negation.
  if (call_method(x, torch.is_neg).is(Py_True)) view.copy = call_method(x, torch.resolve_neg);
  const nb::handle source = view.copy.is_valid() ? nb::handle(view.copy) : x;
  nb::object sizes = nb::steal(PyObject_GetAttr(source.ptr(), torch.shape));
  if (!sizes.is_valid()) {
    PyErr_Clear();
    refuse_nested(at);
  }
  check_rank(PyTuple_Size(sizes.ptr()), at);
  view.sizes = dims_of(sizes);
  view.strides = dims_of(call_method(source, torch.stride));
  view.data = PyLong_AsVoidPtr(call_method(source, torch.data_ptr).ptr());
  const bool empty = std::find(view.sizes.begin(), view.sizes.end(), 0) != view.sizes.end();
  if (view.data == nullptr && !empty)
    throw type_error("{}: {} is a {} without values; a tensor in memory is needed", at.function, at.name,
                     name_of_type(x));
  return view;
}

// --- DLPack ----------------------------------------------------------------------------------------------------------

std::optional<Dtype> dtype_of_dlpack(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  if (dtype.lanes != 1) return std::nullopt;
  switch (static_cast<Code>(dtype.code)) {
    case Code::Float:
      if (dtype.bits == 32) return Dtype::f32;
      if (dtype.bits == 64) return Dtype::f64;
      if (dtype.bits == 16) return Dtype::f16;
      break;
    case Code::Bfloat: return Dtype::bf16;
    case Code::Int:
      if (dtype.bits == 64) return Dtype::i64;
      if (dtype.bits == 32) return Dtype::i32;
      break;
    case Code::Bool: return Dtype::boolean;
    default: break;
  }
  return std::nullopt;
}

/// Stops endless recursion. An object's __dlpack__ may compute with attn, but it must not pass the object itself to
/// attn again. nanobind calls __dlpack__ in several ways, so each level of recursion would multiply the calls. After
/// the first refusal, no __dlpack__ is called until the outermost read has ended.
class Asking {
 public:
  explicit Asking(const Argument& at) {
    constexpr int most = 16;
    if (depth_ == 0) endless_ = false;
    endless_ = endless_ || depth_ == most;
    check(at);
    ++depth_;
  }
  ~Asking() { --depth_; }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;
  static void check(const Argument& at) {
    if (endless_)
      throw type_error("{}: {} has a __dlpack__ that calls attn again and again; it must give an array", at.function,
                       at.name);
  }
  static bool is_outermost() { return depth_ == 1; }

 private:
  static constinit thread_local int depth_;
  static constinit thread_local bool endless_;
};
constinit thread_local int Asking::depth_ = 0;
constinit thread_local bool Asking::endless_ = false;

/// Reads an array that __dlpack__ gave; the view keeps its memory alive.
template <typename Array>
View view_of_array(const Array& array, const Argument& at) {
  if (array.device_type() != nb::device::cpu::value)
    throw ValueError(text("{}: {} is not in the CPU's memory", at.function, at.name));
  check_rank(static_cast<std::int64_t>(array.ndim()), at);
  const std::optional<Dtype> dtype = dtype_of_dlpack(array.dtype());
  if (!dtype) throw type_error("{}: {} has a dtype that attn does not know; {}", at.function, at.name, wanted_dtype);
  View view;
  view.data = const_cast<void*>(static_cast<const void*>(array.data()));
  view.dtype = *dtype;
  for (std::size_t d = 0; d < array.ndim(); ++d)
    view.sizes.push_back(static_cast<std::int64_t>(array.shape(d))), view.strides.push_back(array.stride(d));
  view.copy = nb::capsule(new Array(array), [](void* held) noexcept { delete static_cast<Array*>(held); });
  return view;
}

View dlpack_view(nb::handle x, const Argument& at) {
  const Asking asking(at);
  nb::ndarray<nb::ro> array;
  if (!nb::hasattr(x, "__dlpack__") || !nb::try_cast(x, array)) {
    PyErr_Clear();
    asking.check(at);
    if (nb::object gives = nb::getattr(x, "__dlpack__", nb::none());
        asking.is_outermost() && PyCallable_Check(gives.ptr()) != 0)
      try {
        gives();
      } catch (const nb::python_error& error) {
        if (!error.matches(PyExc_Exception)) throw;
        const std::string why = nb::cast<std::string>(nb::str(error.value()));
        throw type_error("{}: {} is a {} whose __dlpack__ gives no array: {}", at.function, at.name, name_of_type(x),
                         why.substr(0, why.find('\n')));
      }
    throw type_error("{}: {} is {}; {}", at.function, at.name, x.is_none() ? "None" : "a " + name_of_type(x),
                     wanted_array);
  }
  return view_of_array(array, at);
}

/// The beginning of DLPack's DLManagedTensorVersioned.
struct VersionedHead {
  std::uint32_t version[2];
  void* owner;
  void (*deleter)(void*);
  std::uint64_t flags;  // 1: read-only, 2: a copy
};

/// Reads an array of another library to write into it. Only DLPack 1.0 and later says whether that is allowed: what an
/// older __dlpack__ gives is read-only, as for numpy.from_dlpack.
View writable_dlpack_view(nb::handle x, const Argument& at) {
  const Asking asking(at);
  nb::ndarray<> array;
  try {
    const nb::object given = x.attr("__dlpack__")(nb::arg("max_version") = nb::make_tuple(1, 0));
    constexpr const char* name = "dltensor_versioned";
    if (PyCapsule_IsValid(given.ptr(), name) != 0 &&
        (static_cast<const VersionedHead*>(PyCapsule_GetPointer(given.ptr(), name))->flags & 3) == 0 &&
        nb::try_cast(given, array))
      return view_of_array(array, at);
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
  }
  asking.check(at);
  throw ValueError(
      text("{}: {} cannot be written to; a writable array is needed, or one whose "
           "__dlpack__(max_version=(1, 0)) says that it is writable",
           at.function, at.name));
}

}  // namespace

Dims dims_of(const nb::object& tuple) {
  Dims dims;
  const Py_ssize_t count = PyTuple_Size(tuple.ptr());
  for (Py_ssize_t d = 0; d < count; ++d) dims.push_back(PyLong_AsLongLong(PyTuple_GetItem(tuple.ptr(), d)));
  return dims;
}

View view_of(nb::handle x, const Argument& argument) {
  if (is_numpy(x)) return numpy_view(x, argument);
  if (is_torch(x)) return torch_view(x, argument);
  return dlpack_view(x, argument);
}

View writable_view_of(nb::handle x, const Argument& argument) {
  const View view = view_of(x, argument);
  if (!is_numpy(x) && !is_torch(x)) return writable_dlpack_view(x, argument);
  if (view.copy.is_valid() || (is_numpy(x) && !PyArray_ISWRITEABLE(array_of(x))))
    throw ValueError(text("{}: {} cannot be written to; a writable array is needed", argument.function, argument.name));
  return view;
}

}  // namespace attn::python
