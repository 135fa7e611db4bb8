// python/src/scalars.h: converts Python's numbers, flags and words to options; an error says in one line what is
// needed.
#pragma once
#include "call_tensors.h"

#include <attn/mask.h>

#include <algorithm>
#include <initializer_list>

#include "errors.h"

namespace attn::python {

/// Returns the object's C++ value; null for another type and for an object whose __init__ has not run.
template <typename T>
T* as(nb::handle x) {
  T* found = nullptr;
  return nb::try_cast<T*>(x, found, false) ? found : nullptr;
}

/// Reads a number: int, float, or an object with __float__ or __index__ (NumPy's scalars, tensors of one element).
double number(nb::handle x, const Argument& argument);
/// Reads a whole number: int, or an object with __index__.
std::int64_t whole(nb::handle x, const Argument& argument);
/// Reads a seed: whole, not negative, below 2^64.
std::uint64_t seed(nb::handle x, const Argument& argument);
/// Reads True or False, Python's or NumPy's; an int is true unless it is 0.
bool flag(nb::handle x, const Argument& argument);
/// Reads a word and returns its index in `words`.
int choice(nb::handle x, const Argument& argument, std::initializer_list<const char*> words);
/// Reads a text.
std::string word(nb::handle x, const Argument& argument);
/// Reads None, "top_left" or "bottom_right".
Align align(nb::handle x, const char* function);

/// Sets the options of a dict by their names in `all`, a list of (name, set), in `to`; None stands for the default.
template <typename Option, std::size_t count, typename To>
void set_options(const char* function, const nb::dict& given, const Option (&all)[count], To& to) {
  for (auto [name, x] : given) {
    if (x.is_none()) continue;
    const std::string key = word(name, {function, "the name of an option"});
    const Option* const found =
        std::find_if(all, all + count, [&](const Option& option) { return key == option.name; });
    if (found == all + count) throw type_error("{}: there is no option {}", function, key);
    found->set(to, x);
  }
}

}  // namespace attn::python
