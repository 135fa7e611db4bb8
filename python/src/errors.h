// python/src/errors.h: translates the library's exceptions to those of Python, with the library's text in Python's
// spelling.
#pragma once
#include <attn/error.h>

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <string_view>

namespace attn::python {

namespace nb = nanobind;

template <typename... Values>
std::string text(fmt::format_string<Values...> form, Values&&... values) {
  return fmt::format(form, std::forward<Values>(values)...);
}

/// Makes a DtypeError, which Python sees as a TypeError, from a format and values.
template <typename... Values>
DtypeError type_error(fmt::format_string<Values...> form, Values&&... values) {
  return DtypeError(fmt::format(form, std::forward<Values>(values)...));
}

/// Clears the Python error that an object raised. An error that is not an Exception (KeyboardInterrupt, SystemExit) is
/// rethrown.
inline void forget_error() {
  if (PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_Exception) == 0) throw nb::python_error();
  PyErr_Clear();
}

/// Returns the type of an object for error messages, such as "numpy.ndarray".
inline std::string name_of_type(nb::handle x) { return nb::cast<std::string>(nb::type_name(x.type())); }

/// Returns a text of the library with C++'s names as Python writes them: "Mask::window" as "Mask.window", "enable_gqa =
/// true" as "enable_gqa=True". What stands in quotes is the caller's, and stays.
std::string in_python(std::string_view text);

/// Registers the translation of exceptions: ShapeError, ValueError and FormatError become ValueError, DtypeError
/// becomes TypeError, IoError becomes OSError, and KvCacheFull becomes the module's `CacheFull` (a RuntimeError).
void add_errors(nb::module_& m);

}  // namespace attn::python
