// python/src/errors.h: translates the library's exceptions to TypeError, ValueError or OSError with the library's text.
#pragma once
#include <attn/error.h>

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

namespace attn::python {

namespace nb = nanobind;

template <typename... Values>
std::string text(fmt::format_string<Values...> form, Values&&... values) {
  return fmt::format(form, std::forward<Values>(values)...);
}

/// Returns a TypeError with a text like the library's.
template <typename... Values>
DtypeError type_error(fmt::format_string<Values...> form, Values&&... values) {
  return DtypeError(fmt::format(form, std::forward<Values>(values)...));
}

/// Clears the Python error that an object raised. Rethrows one that is not an Exception (KeyboardInterrupt,
/// SystemExit).
inline void forget_error() {
  if (PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_Exception) == 0) throw nb::python_error();
  PyErr_Clear();
}

/// Returns the type of an object for error messages, such as "numpy.ndarray".
inline std::string name_of_type(nb::handle x) { return nb::cast<std::string>(nb::type_name(x.type())); }

/// Translates ShapeError, ValueError and FormatError to ValueError, DtypeError to TypeError, IoError to OSError, and a
/// cache without room to `CacheFull` (a RuntimeError) of the module.
void add_errors(nb::module_& m);

}  // namespace attn::python
