// python/src/errors.cc: translates the library's exceptions to Python exceptions.
#include "errors.h"

#include <attn/cache.h>

#include <new>

namespace attn::python {

void add_errors(nb::module_& m) {
  static PyObject* cache_full = PyErr_NewExceptionWithDoc(
      "attn.CacheFull",
      "An append that a KvCache has no room for: release, evict or truncate something, then try again.",
      PyExc_RuntimeError, nullptr);
  m.attr("CacheFull") = nb::borrow(cache_full);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    const auto raise = [](PyObject* type, const std::exception& error) { PyErr_SetString(type, error.what()); };
    try {
      std::rethrow_exception(thrown);
    } catch (const DtypeError& error) { raise(PyExc_TypeError, error); } catch (const KvCacheFull& error) {
      raise(cache_full, error);
    } catch (const IoError& error) { raise(PyExc_OSError, error); } catch (const Error& error) {
      raise(PyExc_ValueError, error);
    } catch (const std::bad_alloc&) {
      PyErr_SetString(PyExc_MemoryError, "attn: there is no memory for so large a result");
    } catch (const std::bad_cast&) {
      PyErr_SetString(PyExc_TypeError, "attn: an argument has another type than the one that is needed");
    }
  });
}

}  // namespace attn::python
