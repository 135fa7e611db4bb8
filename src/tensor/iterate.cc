// src/tensor/iterate.cc: iterates over tensors with any strides: joins dims that form one contiguous run, then loops
// over the others.
#include "tensor/iterate.h"

#include "runtime/floating_point.h"
#include "runtime/shares.h"

#include <algorithm>
#include <array>

namespace attn {
namespace {

using Strides = std::array<std::int64_t, max_operands>;

/// The dims to iterate over, without dims of size 1 and with adjacent dims joined; dim 0 is the innermost.
struct Walk {
  int dims = 0;
  std::array<std::int64_t, max_rank> sizes{};
  std::array<Strides, max_rank> strides{};

  void add(std::int64_t size, const Strides& stride, std::size_t operands) {
    if (size == 1) return;
    if (dims > 0) {
      bool one_run = true;
      for (std::size_t i = 0; i < operands; ++i) one_run &= stride[i] == strides[dims - 1][i] * sizes[dims - 1];
      if (one_run) {
        sizes[dims - 1] *= size;
        return;
      }
    }
    sizes[dims] = size;
    strides[dims++] = stride;
  }
};

}  // namespace

Operand operand(const Tensor& tensor, const Dims& shape) {
  Operand result{static_cast<char*>(tensor.data()), shape};
  const int shift = shape.size() - tensor.dim();
  const auto bytes = static_cast<std::int64_t>(size_of(tensor.dtype()));
  for (int i = 0; i < shape.size(); ++i) {
    const bool broadcast = i < shift || (tensor.sizes()[i - shift] == 1 && shape[i] != 1);
    result.strides[i] = broadcast ? 0 : tensor.strides()[i - shift] * bytes;
  }
  return result;
}

namespace {

Walk walk_of(const Dims& shape, std::span<const Operand> operands) {
  Walk walk;
  for (int d = shape.size() - 1; d >= 0; --d) {
    Strides stride{};
    for (std::size_t i = 0; i < operands.size(); ++i) stride[i] = operands[i].strides[d];
    walk.add(shape[d], stride, operands.size());
  }
  if (walk.dims == 0) walk.dims = 1, walk.sizes[0] = 1;
  return walk;
}

/// Selects elements [begin, end) of each of the runs [first, last) along the innermost dim.
struct Runs {
  std::int64_t first, last, begin, end;
};

void walk_runs(const Walk& walk, std::span<const Operand> operands, const Runs& runs, InnerLoop loop, void* context) {
  std::array<char*, max_operands> data{};
  std::array<std::int64_t, max_rank> index{};
  for (std::size_t i = 0; i < operands.size(); ++i) data[i] = operands[i].data + runs.begin * walk.strides[0][i];
  std::int64_t run = runs.first;
  for (int d = 1; d < walk.dims; run /= walk.sizes[d++]) {
    index[d] = run % walk.sizes[d];
    for (std::size_t i = 0; i < operands.size(); ++i) data[i] += index[d] * walk.strides[d][i];
  }
  for (run = runs.first;;) {
    loop(context, data.data(), walk.strides[0].data(), runs.end - runs.begin);
    if (++run == runs.last) return;
    for (int d = 1;; ++d) {
      for (std::size_t i = 0; i < operands.size(); ++i) data[i] += walk.strides[d][i];
      if (++index[d] < walk.sizes[d]) break;
      for (std::size_t i = 0; i < operands.size(); ++i) data[i] -= walk.strides[d][i] * walk.sizes[d];
      index[d] = 0;
    }
  }
}

}  // namespace

void iterate(const Dims& shape, std::span<const Operand> operands, InnerLoop loop, void* context) {
  const std::int64_t elements = shape.product();
  if (elements == 0) return;
  const Walk walk = walk_of(shape, operands);
  const runtime::DefaultFloatingPoint floating_point;  // tasks of a parallel loop run in this environment too
  walk_runs(walk, operands, {0, elements / walk.sizes[0], 0, walk.sizes[0]}, loop, context);
}

void iterate_in_parts(const Dims& shape, std::span<const Operand> operands, InnerLoop loop, void* context) {
  constexpr std::int64_t part_elements = 16384;
  const std::int64_t elements = shape.product();
  if (elements < 2 * part_elements) return iterate(shape, operands, loop, context);
  const Walk walk = walk_of(shape, operands);
  const std::int64_t run = walk.sizes[0], runs = elements / run;
  if (run >= part_elements) {  // a part is a piece of one run
    const std::int64_t pieces = (run + part_elements - 1) / part_elements;
    return runtime::parallel_for_neighbours(runs * pieces, [&](std::int64_t part) {
      const std::int64_t at = part / pieces, begin = part % pieces * part_elements;
      walk_runs(walk, operands, {at, at + 1, begin, std::min(run, begin + part_elements)}, loop, context);
    });
  }
  const std::int64_t together = part_elements / run;
  runtime::parallel_for_neighbours((runs + together - 1) / together, [&](std::int64_t part) {
    walk_runs(walk, operands, {part * together, std::min(runs, (part + 1) * together), 0, run}, loop, context);
  });
}

}  // namespace attn
