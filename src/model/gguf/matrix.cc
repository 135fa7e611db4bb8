// src/model/gguf/matrix.cc: multiplies by a weight as a GGUF file has it, and looks up its rows.
#include "model/gguf/matrix.h"

#include <attn/autograd.h>
#include <attn/ops.h>

#include "kernels/gemm/product.h"
#include "runtime/floating_point.h"
#include "runtime/parallel.h"

#include <algorithm>

namespace attn::gguf {
namespace {

using kernels::Element;

bool is(const Type& type, const char* name) { return std::string_view(type.name) == name; }

/// Puts the rows of a head, in which rotary pairs are neighbours, into halves: columns [first, first + columns) of y.
template <typename T>
void into_halves(T* y, std::int64_t rows, std::int64_t stride, std::int64_t columns, std::int64_t head) {
  constexpr std::int64_t at_once = 1 << 14;  // numbers; less is not worth a thread
  const std::int64_t group = std::max<std::int64_t>(1, at_once / columns), groups = (rows + group - 1) / group;
  runtime::parallel_for(groups, [&](std::int64_t part) {
    std::vector<T> own(static_cast<std::size_t>(head));
    for (std::int64_t row = part * group; row < std::min(rows, (part + 1) * group); ++row)
      for (std::int64_t first = 0; first < columns; first += head) {
        T* const at = y + row * stride + first;
        std::copy(at, at + head, own.data());
        for (std::int64_t i = 0; i < head / 2; ++i) {
          at[i] = own[static_cast<std::size_t>(2 * i)];
          at[head / 2 + i] = own[static_cast<std::size_t>(2 * i + 1)];
        }
      }
  });
}

/// Returns a vector's halves of each head as neighbours, as the file has them.
Tensor as_neighbours(const Tensor& x, std::int64_t head) {
  return x.reshape({x.size(0) / head, 2, head / 2}).transpose(1, 2).reshape({x.size(0)}).contiguous();
}

}  // namespace

bool Matrix::multiplies(const Type& type, Dtype dtype) {
  if (dtype == Dtype::f32)
    return type.elements > 1 ? kernels::multiplies_blocks(Element::f32)
                             : is(type, "F32") || kernels::multiplies_half_b();
  if (dtype != Dtype::bf16 || !kernels::multiplies_bf16()) return false;
  return type.elements > 1 ? kernels::multiplies_blocks(Element::bf16) : is(type, "BF16");
}

void Matrix::add(const GgufFile& file, const Stored& stored) {
  const GgufFile::Entry& entry = *file.find(stored.name);
  files_.push_back(file);
  Part& part =
      parts_.emplace_back(Part{&types()[entry.type_index], nullptr, stored.row, stored.rows, stored.head_rows});
  part.data = file.data(entry).data() + stored.file_row * part.row_bytes(in_);
}

Tensor Matrix::linear(const Tensor& given, const Tensor& bias) const {
  if (!given.defined() || given.dtype() != dtype_ || given.dim() == 0 || given.size(-1) != in_)
    return attn::linear(given, zeros({1, 1}, dtype_).expand({out_, in_}), bias);  // which says what is wrong
  if (grad_enabled() && given.requires_grad())
    throw ValueError(
        "LanguageModel: the weights are the blocks of a GGUF file, which have no gradient; decoded() gives a "
        "model that has");
  const Tensor x = given.detach().contiguous();
  const bool bf16 = dtype_ == Dtype::bf16;
  Dims sizes = x.sizes();
  sizes[sizes.size() - 1] = out_;
  const Tensor y = empty(sizes, dtype_), wide = bias.defined() ? bias.detach().to(Dtype::f32).contiguous() : Tensor();
  const std::int64_t rows = in_ == 0 ? 0 : x.numel() / in_;
  const auto at = [&](std::int64_t column) {
    return static_cast<std::byte*>(y.data()) + column * static_cast<std::int64_t>(size_of(dtype_));
  };
  std::vector<kernels::GemmProblem> problems;
  std::vector<Tensor> biases;  // of parts with rows in another order
  for (const Part& part : parts_) {
    const bool blocks = part.type->elements > 1;
    const float* its_bias = wide.defined() ? wide.data<float>() + part.row : nullptr;
    if (its_bias != nullptr && part.head_rows != 0) {
      biases.push_back(as_neighbours(wide.narrow(0, part.row, part.rows), part.head_rows));
      its_bias = biases.back().data<float>();
    }
    problems.push_back({.m = rows,
                        .n = part.rows,
                        .k = in_,
                        .a = x.data(),
                        .a_stride = {in_, 1},
                        .b = part.data,
                        .b_stride = {1, blocks ? part.row_bytes(in_) : in_},
                        .bias = its_bias,
                        .y = at(part.row),
                        .y_stride = {out_, 1},
                        .element = bf16 ? Element::bf16 : Element::f32,
                        .b_blocks = part.type->blocks,
                        .b_element = is(*part.type, "BF16")  ? Element::bf16
                                     : is(*part.type, "F16") ? Element::f16
                                                             : Element::f32,
                        .narrow = bf16});
  }
  kernels::multiply_each(problems);
  for (const Part& part : parts_) {
    if (part.head_rows == 0 || rows == 0) continue;
    if (bf16) into_halves(reinterpret_cast<std::uint16_t*>(at(part.row)), rows, out_, part.rows, part.head_rows);
    else into_halves(reinterpret_cast<float*>(at(part.row)), rows, out_, part.rows, part.head_rows);
  }
  return y;
}

Tensor Matrix::rows(const Tensor& ids) const {
  embedding(ids, empty({out_, 0}));  // checks the ids
  const std::vector<std::int64_t> all = ids.to_int_vector();
  Dims sizes = ids.sizes();
  sizes.push_back(in_);
  const Tensor result = empty(sizes);
  const Part& table = parts_[0];
  const std::int64_t blocks = in_ / table.type->elements;
  float* const to = result.data<float>();
  const runtime::DefaultFloatingPoint floating_point;
  for (std::size_t i = 0; i < all.size(); ++i)
    table.type->decode(table.data + all[i] * table.row_bytes(in_), blocks, to + static_cast<std::int64_t>(i) * in_);
  return result.to(dtype_);
}

}  // namespace attn::gguf
