// src/tensor/join.cc: joins tensors or picks parts of them by copying: cat, stack, repeat, index_select, embedding.
#include <attn/ops.h>

#include "kernels/rows/target.h"
#include "runtime/parallel.h"
#include "tensor/build.h"
#include "tensor/defined.h"
#include "tensor/promote.h"

#include <algorithm>
#include <cstring>

namespace attn {
namespace {

/// Returns whether cat skips x: torch lets it skip tensors of shape [0], whatever the rank of the other tensors is.
bool is_skipped(const Tensor& x) { return x.dim() == 1 && x.size(0) == 0; }

void check_all_defined(const char* function, const std::vector<Tensor>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!tensors[i].defined()) check_defined(function, ("tensor " + std::to_string(i)).c_str(), tensors[i]);
}

Tensor join(const char* function, const std::vector<Tensor>& tensors, int dim) {
  if (tensors.empty()) throw ValueError(std::string(function) + ": no tensors given; one at least is needed");
  const Tensor* first = &tensors.front();
  Dtype dtype = tensors.front().dtype();
  for (const Tensor& x : tensors) {
    dtype = promote(dtype, x.dtype());
    if (is_skipped(*first)) first = &x;
  }
  dim = wrap_dim(function, dim, first->dim());
  Dims sizes = first->sizes();
  sizes[dim] = 0;
  for (const Tensor& x : tensors) {
    if (is_skipped(x) && !is_skipped(*first)) continue;
    Dims expected = x.sizes();
    if (x.dim() == sizes.size()) expected[dim] = sizes[dim];
    if (!(expected == sizes))
      throw ShapeError(std::string(function) + ": tensor " + std::to_string(&x - tensors.data()) + " has shape " +
                       to_string(x.sizes()) + "; it must be as tensor " + std::to_string(first - tensors.data()) + " " +
                       to_string(first->sizes()) + " but for dim " + std::to_string(dim) +
                       ", along which they are joined");
    if (__builtin_add_overflow(sizes[dim], x.sizes()[dim], &sizes[dim]))
      throw ShapeError(std::string(function) + ": dim " + std::to_string(dim) + " of all together is beyond 64 bits");
  }
  const Tensor result = empty(sizes, dtype);
  std::int64_t at = 0;
  for (const Tensor& x : tensors) {
    if (is_skipped(x)) continue;
    copy_values(result.narrow(dim, at, x.sizes()[dim]), x);
    at += x.sizes()[dim];
  }
  return result;
}

template <typename Word>
void pick_words(const char* from, const std::int64_t* picked, std::int64_t count, char* to) {
  for (std::int64_t i = 0; i < count; ++i)
    reinterpret_cast<Word*>(to)[i] = reinterpret_cast<const Word*>(from)[picked[i]];
}

/// Copies `count` rows of `bytes` bytes each, those whose indices are in `picked`, to consecutive memory.
void pick_rows(const char* from, const std::int64_t* picked, std::int64_t count, std::int64_t bytes, char* to) {
  switch (bytes) {
    case 1: return pick_words<std::uint8_t>(from, picked, count, to);
    case 2: return pick_words<std::uint16_t>(from, picked, count, to);
    case 4: return pick_words<std::uint32_t>(from, picked, count, to);
    case 8: return pick_words<std::uint64_t>(from, picked, count, to);
    default:
      for (std::int64_t i = 0; i < count; ++i)
        std::memcpy(to + i * bytes, from + picked[i] * bytes, static_cast<std::size_t>(bytes));
  }
}

/// Picks slices along `dim` by `index`; the shape of `index` replaces that dim.
Tensor pick(const char* function, const char* name, const Tensor& source, int dim, const Tensor& index) {
  if (!is_integral(index.dtype()))
    throw DtypeError(std::string(function) + ": index is " + std::string(name_of(index.dtype())) +
                     "; it must be i64 or i32");
  const Tensor x = source.detach().contiguous();
  const std::int64_t rows = x.sizes()[dim];
  const Dims &all = x.sizes(), sizes_before(std::span(all.begin(), all.begin() + dim)),
             sizes_behind(std::span(all.begin() + dim + 1, all.end()));
  const std::int64_t outer = sizes_before.product(), inner = sizes_behind.product();
  Dims sizes = sizes_before;
  for (const std::int64_t size : index.sizes()) sizes.push_back(size);
  for (const std::int64_t size : sizes_behind) sizes.push_back(size);
  const std::vector<std::int64_t> picked = index.to_int_vector();
  for (const std::int64_t i : picked)
    if (i < 0 || i >= rows)
      throw ValueError(std::string(function) + ": index " + std::to_string(i) + " is out of range; " + name + " has " +
                       std::to_string(rows) + " rows");
  const Tensor result = empty(sizes, x.dtype());
  if (result.numel() == 0) return result;
  const std::int64_t bytes = inner * static_cast<std::int64_t>(size_of(x.dtype())),
                     count = static_cast<std::int64_t>(picked.size());
  const std::int64_t step = std::max<std::int64_t>(1, 65536 / bytes);
  runtime::parallel_for((outer * count + step - 1) / step, [&](std::int64_t part) {
    const std::int64_t end = std::min(outer * count, (part + 1) * step);
    for (std::int64_t at = part * step; at < end;) {  // the slices of one outer index
      const std::int64_t o = at / count, first = at % count, length = std::min(count - first, end - at);
      pick_rows(static_cast<const char*>(x.data()) + o * rows * bytes, picked.data() + first, length, bytes,
                static_cast<char*>(result.data()) + at * bytes);
      at += length;
    }
  });
  return result;
}

/// Adds `values` to zeros with `rows` rows along `dim`, at the rows that `index` names, one after another. This is the
/// gradient of `pick`.
Tensor add_at(const Tensor& values, int dim, const Tensor& index, std::int64_t rows) {
  const Tensor from = values.detach().contiguous();
  const Dims &all = from.sizes(), sizes_behind(std::span(all.begin() + dim + index.dim(), all.end()));
  Dims sizes(std::span(all.begin(), all.begin() + dim));
  const std::int64_t outer = sizes.product(), inner = sizes_behind.product();
  sizes.push_back(rows);
  for (const std::int64_t size : sizes_behind) sizes.push_back(size);
  const Tensor result = zeros(sizes, from.dtype());
  const std::vector<std::int64_t> picked = index.to_int_vector();
  const auto add_kernel = kernels::row_kernels().binary;
  const auto add_rows = [&]<typename T>(T* to) {
    constexpr auto element = sizeof(T) == 8 ? kernels::Element::f64 : kernels::Element::f32;
    constexpr std::int64_t least = 64;  // the kernel is called only for this many columns or more
    const auto count = static_cast<std::int64_t>(picked.size());
    // a tensor without elements may have too many rows for a loop
    runtime::parallel_for(from.numel() == 0 ? 0 : outer, [&](std::int64_t o) {
      const T* row = static_cast<const T*>(from.data()) + o * count * inner;
      for (std::int64_t p = 0; p < count; ++p, row += inner) {
        T* sum = to + (o * rows + picked[static_cast<std::size_t>(p)]) * inner;
        if (add_kernel != nullptr && inner >= least) add_kernel(kernels::Binary::add, element, sum, row, 0, sum, inner);
        else
          for (std::int64_t c = 0; c < inner; ++c) sum[c] += row[c];
      }
    });
  };
  from.dtype() == Dtype::f64 ? add_rows(result.data<double>()) : add_rows(result.data<float>());
  return record("IndexAddBackward0", result,
                wrt(values, [dim](auto& dy, auto& index) { return dy.index_select(dim, index); }, index));
}

}  // namespace

Tensor cat(const std::vector<Tensor>& tensors, int dim) {
  check_all_defined("cat", tensors);
  const Tensor y = join("cat", tensors, dim);
  if (!wants_grad(tensors)) return y;
  std::vector<std::int64_t> lengths;  // -1: skipped
  for (const Tensor& x : tensors) lengths.push_back(x.dim() == y.dim() ? x.size(dim) : -1);
  record({"CatBackward0", tensors, {}}, {y}, [dim, lengths](const Backward& at) {
    Gradients gradients(lengths.size());
    std::int64_t start = 0;
    for (std::size_t i = 0; i < lengths.size(); start += std::max<std::int64_t>(lengths[i++], 0))
      if (lengths[i] >= 0 && at.needs(static_cast<int>(i))) gradients[i] = at.grad().narrow(dim, start, lengths[i]);
    return gradients;
  });
  return y;
}

Tensor stack(const std::vector<Tensor>& tensors, int dim) {
  check_all_defined("stack", tensors);
  std::vector<Tensor> layers;
  for (const Tensor& x : tensors) {
    if (!(x.sizes() == tensors.front().sizes()))
      throw ShapeError("stack: a tensor has shape " + to_string(x.sizes()) + "; it must be as the first, " +
                       to_string(tensors.front().sizes()));
    layers.push_back(x.detach().unsqueeze(wrap_dim("stack", dim, x.dim() + 1)));
  }
  if (!layers.empty() && dim < 0) dim += layers.front().dim();
  const Tensor y = join("stack", layers, dim);
  if (!wants_grad(tensors)) return y;
  record({"StackBackward0", tensors, {}}, {y}, [dim](const Backward& at) {
    Gradients gradients(at.inputs());
    for (std::size_t i = 0; i < gradients.size(); ++i)
      gradients[i] = at.grad().select(dim, static_cast<std::int64_t>(i));
    return gradients;
  });
  return y;
}

Tensor Tensor::repeat(Dims times) const {
  Dims sizes = this->sizes();
  if (times.size() < sizes.size())
    throw ShapeError("repeat: times " + attn::to_string(times) + " must be as many as the dims of shape " +
                     attn::to_string(sizes) + " or more");
  while (sizes.size() < times.size()) sizes.insert(0, 1);
  Dims repeated = sizes;
  for (int i = 0; i < sizes.size(); ++i) {
    if (times[i] < 0) throw ValueError("repeat: times " + attn::to_string(times) + " hold a negative one");
    repeated[i] = Dims{sizes[i], times[i]}.product();
  }
  const Tensor result = empty(repeated, dtype());
  if (result.numel() > 0) {
    // Copies the first tile, then, for each dim from the last on, repeats the part that is already written.
    const auto corner = [&](int dims) {
      Tensor part = result;
      for (int i = 0; i < dims; ++i) part = part.narrow(i, 0, sizes[i]);
      return part;
    };
    copy_values(corner(sizes.size()), *this);
    for (int d = sizes.size() - 1; d >= 0; --d) {
      const Tensor along = corner(d);
      for (std::int64_t k = 1; k < times[d]; ++k)
        copy_values(along.narrow(d, k * sizes[d], sizes[d]), along.narrow(d, 0, sizes[d]));
    }
  }
  return record(
      "RepeatBackward0", result, wrt(*this, [sizes, times](auto& dy) {
        Tensor folded = widen(dy);
        for (int d = 0; d < sizes.size(); ++d) {  // view as [before, times, size * behind] and sum over the copies
          if (times[d] == 1) continue;
          Dims shape = folded.sizes();
          shape[d] = sizes[d];
          std::int64_t before = 1;
          for (int i = 0; i < d; ++i) before *= shape[i];
          folded =
              attn::sum(folded.reshape({before, times[d], shape.product() / std::max<std::int64_t>(1, before)}), {1})
                  .reshape(shape);
        }
        return folded;
      }));
}

Tensor Tensor::index_select(int dim, const Tensor& index) const {
  dim = wrap_dim("index_select", dim, this->dim());
  const Tensor result = pick("index_select", "the dim", *this, dim, index);
  const auto vjp = [dim, rows = size(dim)](auto& dy, auto& index) { return add_at(widen(dy), dim, index, rows); };
  return record(index.dim() == 1 ? "IndexSelectBackward0" : "IndexBackward0", result, wrt(*this, vjp, index));
}

Tensor embedding(const Tensor& index, const Tensor& weight) {
  check_defined("embedding", "index", index);
  check_defined("embedding", "weight", weight);
  if (weight.dim() != 2)
    throw ShapeError("embedding: weight has shape " + to_string(weight.sizes()) + "; it must have rank 2");
  const auto vjp = [rows = weight.size(0)](auto& dy, auto& index) { return add_at(widen(dy), 0, index, rows); };
  return record("EmbeddingBackward0", pick("embedding", "weight", weight, 0, index), wrt(weight, vjp, index));
}

}  // namespace attn
