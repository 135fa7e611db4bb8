// python/src/scalars.cc: converts Python's numbers, flags and words.
#include "scalars.h"

#include "errors.h"

namespace attn::python {
namespace {

[[noreturn]] void refuse(nb::handle x, const Argument& at, const char* needed) {
  throw type_error("{}: {} is {}; {} is needed", at.function, at.name, x.is_none() ? "None" : "a " + name_of_type(x),
                   needed);
}

}  // namespace

double number(nb::handle x, const Argument& at) {
  if (PyUnicode_Check(x.ptr())) refuse(x, at, "a number");
  if (wants_gradient(x))
    throw type_error("{}: {} wants a gradient, which numbers do not get; give {}.detach()", at.function, at.name,
                     at.name);
  const double value = PyFloat_AsDouble(x.ptr());
  if (value == -1 && PyErr_Occurred()) {
    forget_error();
    refuse(x, at, "a number");
  }
  return value;
}

std::int64_t whole(nb::handle x, const Argument& at) {
  PyObject* index = PyNumber_Index(x.ptr());
  if (index == nullptr) {
    forget_error();
    refuse(x, at, "a whole number");
  }
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(index, &overflow);
  Py_DECREF(index);
  if (overflow != 0) throw ValueError(text("{}: {} does not fit into 64 bits", at.function, at.name));
  return value;
}

std::uint64_t seed(nb::handle x, const Argument& at) {
  PyObject* index = PyNumber_Index(x.ptr());
  if (index == nullptr) {
    forget_error();
    refuse(x, at, "a whole number");
  }
  const unsigned long long value = PyLong_AsUnsignedLongLong(index);
  Py_DECREF(index);
  if (PyErr_Occurred()) {
    forget_error();
    throw ValueError(text("{}: {} must be from 0 to 2^64 - 1", at.function, at.name));
  }
  return value;
}

bool flag(nb::handle x, const Argument& at) {
  if (x.ptr() == Py_True) return true;
  if (x.ptr() == Py_False) return false;
  // NumPy's bool, named bool_ in NumPy 1
  const bool numpys =
      name_of_type(x).starts_with("bool") && nb::cast<std::string>(x.type().attr("__module__")) == "numpy";
  if (!numpys && !PyLong_CheckExact(x.ptr())) refuse(x, at, "True or False");
  return PyObject_IsTrue(x.ptr()) == 1;
}

std::string word(nb::handle x, const Argument& at) {
  if (!PyUnicode_Check(x.ptr())) refuse(x, at, "a text");
  Py_ssize_t size = 0;
  const char* const bytes = PyUnicode_AsUTF8AndSize(x.ptr(), &size);
  if (bytes == nullptr) {
    forget_error();
    throw ValueError(text("{}: {} holds half of a surrogate pair, which is no character", at.function, at.name));
  }
  return {bytes, static_cast<std::size_t>(size)};
}

int choice(nb::handle x, const Argument& at, std::initializer_list<const char*> words) {
  std::string all;
  const std::string given = PyUnicode_Check(x.ptr()) ? word(x, at) : "";
  int place = 0;
  for (const char* each : words) {
    if (given == each) return place;
    all += text("{}\"{}\"", place == 0 ? "" : ", ", each);
    ++place;
  }
  if (!PyUnicode_Check(x.ptr())) refuse(x, at, text("one of {}", all).c_str());
  throw ValueError(text("{}: {} is \"{}\"; it must be one of {}", at.function, at.name, given, all));
}

Align align(nb::handle x, const char* function) {
  if (x.is_none()) return Align::unset;
  return choice(x, {function, "align"}, {"top_left", "bottom_right"}) == 0 ? Align::top_left : Align::bottom_right;
}

}  // namespace attn::python
