// python/src/frameworks.cc: looks up the objects of NumPy and torch once.
#include "frameworks.h"

#include "numpy_api.h"

namespace attn::python {
namespace {

/// Returns a new reference to x that is never released.
nb::object* forever(nb::object x) { return new nb::object(std::move(x)); }
PyObject* forever_pointer(nb::object x) { return x.release().ptr(); }
PyObject* name(const char* text) { return PyUnicode_InternFromString(text); }

/// Returns a module that has already been imported, else null.
nb::object imported(const char* name) {
  nb::object modules = nb::module_::import_("sys").attr("modules");
  PyObject* module = PyDict_GetItemString(modules.ptr(), name);
  return module ? nb::borrow(module) : nb::object();
}

PyObject* known_ndarray = nullptr;
PyObject* known_tensor = nullptr;

/// Calls `make` once and returns its result. It uses no function-local static: an import releases the GIL, and a thread
/// that then takes the GIL would wait for the static while the first thread waits for the GIL. With the GIL held, a
/// pointer needs no lock; if two results were made at the same time, the first one is used.
template <typename T, typename F>
T* once(T*& known, F make) {
  if (known == nullptr) {
    T* const found = make();
    if (known == nullptr) known = found;
  }
  return known;
}

/// Returns whether x is of `type` of the module `module`; false if the module has not been imported.
bool is_of(nb::handle x, PyObject*& known, const char* module, const char* type) {
  if (known == nullptr) {
    nb::object found = imported(module);
    if (!found.is_valid() || !nb::hasattr(found, type)) return false;
    known = forever_pointer(found.attr(type));
  }
  PyTypeObject* const own = Py_TYPE(x.ptr());
  return reinterpret_cast<PyObject*>(own) == known ||
         PyType_IsSubtype(own, reinterpret_cast<PyTypeObject*>(known)) != 0;
}

}  // namespace

bool is_numpy(nb::handle x) { return is_of(x, known_ndarray, "numpy", "ndarray"); }
bool is_torch(nb::handle x) { return is_of(x, known_tensor, "torch", "Tensor"); }

const Numpy& Numpy::get() {
  static constinit const Numpy* known = nullptr;
  return *once(known, []() -> const Numpy* {
    nb::module_ module = nb::module_::import_("numpy");
    if (_import_array() < 0) throw nb::python_error();
    auto* found = new Numpy{.ndarray = forever_pointer(module.attr("ndarray")),
                            .array = forever(module.attr("array")),
                            .masked = forever(module.attr("ma").attr("MaskedArray"))};
    const char* names[] = {"float32", "float64", nullptr, "float16", "int64", "int32", "bool"};
    for (int n = 0; n < dtype_count; ++n)
      if (names[n]) found->dtypes[n] = forever_pointer(module.attr("dtype")(names[n]));
    return found;
  });
}

nb::handle Numpy::dtype(Dtype dtype) const {
  if (dtype != Dtype::bf16) return dtypes[static_cast<int>(dtype)];
  static constinit PyObject* known = nullptr;
  return once(known, [] {
    return forever_pointer(
        nb::module_::import_("numpy").attr("dtype")(nb::module_::import_("ml_dtypes").attr("bfloat16")));
  });
}

const Torch& Torch::get() {
  static constinit const Torch* known = nullptr;
  return *once(known, []() -> const Torch* {
    nb::module_ module = nb::module_::import_("torch");
    auto* found = new Torch{.tensor = forever_pointer(module.attr("Tensor")),
                            .parameter = forever_pointer(module.attr("nn").attr("Parameter")),
                            .strided = forever_pointer(module.attr("strided")),
                            .empty = forever(module.attr("empty")),
                            .empty_like = forever(module.attr("empty_like")),
                            .data_ptr = name("data_ptr"),
                            .shape = name("shape"),
                            .stride = name("stride"),
                            .dtype_name = name("dtype"),
                            .is_cpu = name("is_cpu"),
                            .layout = name("layout"),
                            .is_neg = name("is_neg"),
                            .resolve_neg = name("resolve_neg"),
                            .detach = name("detach"),
                            .device = name("device")};
    const char* names[] = {"float32", "float64", "bfloat16", "float16", "int64", "int32", "bool"};
    for (int n = 0; n < dtype_count; ++n) found->dtypes[n] = forever_pointer(module.attr(names[n]));
    return found;
  });
}

nb::object call_method(nb::handle x, PyObject* name) {
  PyObject* arguments[] = {x.ptr()};
  PyObject* result = PyObject_VectorcallMethod(name, arguments, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

}  // namespace attn::python
