// python/src/integers.cc: converts whole numbers of Python, in lists or in arrays of any width, to an array that the
// library reads.
#include "integers.h"

#include <attn/ops.h>

#include "errors.h"
#include "frameworks.h"
#include "scalars.h"

#include <algorithm>
#include <limits>
#include <string>

namespace attn::python {
namespace {

constexpr std::int64_t most_listed = 1 << 24;  // longer lists are refused: they must be arrays, or are mistakes
constexpr int most_dims = 2;

/// Collects the numbers of a list, or of lists of equal length.
struct Listed {
  std::vector<std::int64_t> values;
  Dims sizes;

  Listed(nb::handle list, const Argument& argument) : at_(argument), one_("a number of " + std::string(argument.name)) {
    for (nb::object inner = nb::borrow(list); is_listed(inner);) {
      if (sizes.size() == most_dims)
        throw type_error("{}: {} has lists in lists of lists; whole numbers are needed, as [0, 5, 12]", at_.function,
                         at_.name);
      const std::int64_t count = count_of(inner);
      sizes.push_back(count);
      if (count == 0) break;
      inner = nb::object(inner[0]);
    }
    if (sizes.product() > most_listed) refuse_count();
    add(list, 0);
  }

 private:
  [[noreturn]] void refuse_count() const {
    throw ValueError(
        text("{}: {} has more than {} numbers; give them as an array", at_.function, at_.name, most_listed));
  }

  std::int64_t count_of(nb::handle list) const {
    const Py_ssize_t count = PySequence_Size(list.ptr());
    if (count < 0) forget_error();  // for example a range longer than 2^63
    if (count < 0 || count > most_listed) refuse_count();
    return count;
  }

  void add(nb::handle list, int depth) {
    if (count_of(list) != sizes[depth])
      throw ValueError(text("{}: {} has lists of {} and of {} numbers; all must be as long", at_.function, at_.name,
                            sizes[depth], count_of(list)));
    for (nb::handle each : list) {
      const bool deeper = depth + 1 < sizes.size();
      if (is_listed(each) != deeper)
        throw type_error("{}: {} has lists beside numbers; whole numbers are needed, as [0, 5, 12]", at_.function,
                         at_.name);
      if (deeper) {
        add(each, depth + 1);
        continue;
      }
      if (PyBool_Check(each.ptr())) throw type_error("{}: {} is a bool; a whole number is needed", at_.function, one_);
      values.push_back(whole(each, {at_.function, one_.c_str()}));
    }
  }

  const Argument at_;
  const std::string one_;
};

nb::object of_numpy(nb::handle x, const Argument& at) {
  const nb::object dtype = x.attr("dtype");
  const std::string kind = nb::cast<std::string>(dtype.attr("kind"));
  const int bytes = nb::cast<int>(dtype.attr("itemsize"));
  const bool as_it_is = kind == "i" && bytes >= 4 && nb::cast<bool>(dtype.attr("isnative"));
  if (as_it_is || (kind != "i" && kind != "u")) return nb::borrow(x);
  // whole() raises the error for a number that does not fit
  if (kind == "u" && bytes == 8 && nb::cast<std::int64_t>(x.attr("size")) > 0)
    static_cast<void>(whole(x.attr("max")(), at));
  return x.attr("astype")("int64");
}

nb::object of_torch(nb::handle x, const Argument& at) {
  const std::string dtype = nb::cast<std::string>(nb::str(nb::object(x.attr("dtype"))));
  if (dtype == "torch.uint64") return of_numpy(x.attr("numpy")(), at);
  for (const char* narrow : {"torch.uint8", "torch.int8", "torch.int16", "torch.uint16", "torch.uint32"})
    if (dtype == narrow) return x.attr("to")(nb::handle(Torch::get().dtypes[static_cast<int>(Dtype::i64)]));
  return nb::borrow(x);
}

}  // namespace

bool is_listed(nb::handle x) {
  return PyList_Check(x.ptr()) || PyTuple_Check(x.ptr()) || PyObject_TypeCheck(x.ptr(), &PyRange_Type);
}

nb::object integers(nb::handle x, const Argument& at) {
  if (is_listed(x)) {
    const Listed listed(x, at);
    return to_python(tensor<std::int64_t>(listed.values, listed.sizes), Framework::numpy);
  }
  if (is_numpy(x)) return of_numpy(x, at);
  if (is_torch(x)) return of_torch(x, at);
  if (!nb::hasattr(x, "__dlpack__"))
    throw type_error("{}: {} is {}; whole numbers are needed: a list, a NumPy array or a torch tensor", at.function,
                     at.name, x.is_none() ? "None" : "a " + name_of_type(x));
  return nb::borrow(x);
}

}  // namespace attn::python
