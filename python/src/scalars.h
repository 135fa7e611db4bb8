// python/src/scalars.h: numbers, flags and words of Python as options, refused in one line that says what is needed.
#pragma once
#include "arrays.h"

#include <attn/mask.h>

#include <initializer_list>

namespace attn::python {

/// The object's C++ value, null for another type and for what was never constructed.
template <typename T>
T* as(nb::handle x) {
  T* found = nullptr;
  return nb::try_cast<T*>(x, found, false) ? found : nullptr;
}

/// A number: int, float, or what gives one by __float__ or __index__ (NumPy's scalars, tensors of one element).
double number(nb::handle x, const Argument& argument);
/// A whole number: int, or what gives one by __index__.
std::int64_t whole(nb::handle x, const Argument& argument);
/// A seed: whole, not negative, below 2^64.
std::uint64_t seed(nb::handle x, const Argument& argument);
/// True or False, Python's or NumPy's.
bool flag(nb::handle x, const Argument& argument);
/// The place of a word among those there are.
int choice(nb::handle x, const Argument& argument, std::initializer_list<const char*> words);
/// A text.
std::string word(nb::handle x, const Argument& argument);
/// None, "top_left" or "bottom_right".
Align align(nb::handle x, const char* function);

}  // namespace attn::python
