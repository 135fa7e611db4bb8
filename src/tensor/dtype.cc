// src/tensor/dtype.cc: implements the names and widths of the dtypes, and the two 16-bit floats.
#include <attn/dtype.h>
#include <attn/error.h>

#include "kernels/half.h"
#include "runtime/enum_value.h"

#include <iterator>
#include <ostream>

namespace attn {
namespace {

struct Entry {
  std::string_view name, torch_name;
  std::size_t bytes;
};
constexpr Entry entries[] = {{"f32", "float32", 4}, {"f64", "float64", 8}, {"bf16", "bfloat16", 2},
                             {"f16", "float16", 2}, {"i64", "int64", 8},   {"i32", "int32", 4},
                             {"bool", "bool", 1}};
const Entry& entry(Dtype dtype) {
  runtime::check_enum(dtype, Dtype::boolean, "dtype");
  return entries[static_cast<std::size_t>(dtype)];
}

}  // namespace

bfloat16::bfloat16(float value) : bits(half::to_bf16(value)) {}
bfloat16::operator float() const { return half::from_bf16(bits); }
float16::float16(float value) : bits(half::to_f16(value)) {}
float16::operator float() const { return half::from_f16(bits); }

std::size_t size_of(Dtype dtype) { return entry(dtype).bytes; }
std::string_view name_of(Dtype dtype) { return entry(dtype).name; }
std::ostream& operator<<(std::ostream& out, Dtype dtype) { return out << name_of(dtype); }
std::string_view torch_name_of(Dtype dtype) { return entry(dtype).torch_name; }

Dtype dtype_from_name(std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < std::size(entries); ++i) {
    if (name == entries[i].name || name == entries[i].torch_name) return static_cast<Dtype>(i);
    known += (i ? ", " : "") + std::string(entries[i].name);
    if (entries[i].name != entries[i].torch_name) known += " (" + std::string(entries[i].torch_name) + ")";
  }
  throw ValueError("dtype_from_name: \"" + std::string(name) + "\" is no dtype; there are " + known);
}

}  // namespace attn
