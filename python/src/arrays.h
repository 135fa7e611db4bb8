// python/src/arrays.h: NumPy arrays, torch tensors and whatever speaks DLPack as tensors of the library, without
// copies; and back.
#pragma once
#include <attn/tensor.h>

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <vector>

namespace attn::python {

namespace nb = nanobind;

/// Where an array came from, and so what its results are. Of other libraries' arrays the results are NumPy's.
enum class Framework : std::uint8_t { numpy, torch };

/// An array of Python as the library sees it.
struct View {
  void* data = nullptr;
  Dims sizes = {}, strides = {};  // in elements
  Dtype dtype = Dtype::f32;
  Framework framework = Framework::numpy;
  nb::object copy = {};  // where the array's own memory could not be used, what holds the elements instead
};

/// Who asks for an argument: errors name both.
struct Argument {
  const char* function;
  const char* name;
};

/// Reads pointer, sizes and strides. The memory is the array's own but for arrays that are not aligned, strides that
/// are no whole number of elements, and torch's lazy negation, which are copied.
///
/// Errors   TypeError for what is no array, for dtypes without a place in the library (other byte orders and objects
///          are named), masked arrays, sparse tensors; ValueError for memory that is not the CPU's.
View view_of(nb::handle x, const Argument& argument);

/// Whether `x` is a tensor of torch that wants a gradient, where torch records.
bool wants_gradient(nb::handle x);
/// TypeError where `x` is a tensor of torch that wants a gradient, in a call whose results are none.
void refuse_gradient(nb::handle x, const Argument& argument);

/// A tensor that is good while `x` lives and the reader does: the arguments of one call. With `keeps`, as long as the
/// tensor itself.
class Reader {
 public:
  explicit Reader(const char* function, bool keeps = false) : function_(function), keeps_(keeps) {}

  const char* function() const { return function_; }
  Tensor operator()(nb::handle x, const char* name);
  /// None gives an undefined tensor.
  Tensor optional(nb::handle x, const char* name) { return x.is_none() ? Tensor() : (*this)(x, name); }
  /// Whole numbers in a list or an array of any width (integers.h).
  Tensor integers(nb::handle x, const char* name);
  /// Memory for a result: that of the array itself, which must be writable.
  Tensor writable(nb::handle x, const char* name);
  /// That of the first array that was read.
  Framework framework() const { return framework_.value_or(Framework::numpy); }

 private:
  const char* function_;
  bool keeps_;
  std::optional<Framework> framework_;
  std::vector<nb::object> copies_;
};

/// A tensor that keeps the array's memory alive, whatever becomes of the array's name.
Tensor keep(nb::handle x, const Argument& argument);

/// The tensor's memory as an array of that framework; nothing is copied.
nb::object to_python(const Tensor& x, Framework framework);

/// An array and its memory.
struct NewArray {
  nb::object array;
  Tensor tensor;
};
/// Uninitialised: laid out as `like` (an array of the framework, read as `like_view`) where the sizes are its own, else
/// row-major.
NewArray empty_array(const Tensor& like_view, nb::handle like, const Dims& sizes, Framework framework);

}  // namespace attn::python
