// src/tensor/copy.cc: copies tensors between any strides and converts between dtypes.
#include <attn/ops.h>

#include "runtime/floating_point.h"
#include "runtime/shares.h"
#include "tensor/blocks.h"
#include "tensor/build.h"
#include "tensor/elements.h"

#include <algorithm>
#include <optional>

namespace attn {
namespace {

/// Names two dims of a copy: the dim with stride 1 in the target (`to`), and the dim with stride 1 in the source
/// (`from`).
struct TransposedDims {
  int to, from;
};

/// Returns the two dims if the copy is a transpose: target and source have stride 1 along different dims, each of at
/// least 8 elements.
std::optional<TransposedDims> transposed_dims(const Tensor& target, const Tensor& source) {
  constexpr std::int64_t least = 8;
  const auto dim_of_neighbours = [](const Tensor& x) {
    for (int d = x.dim() - 1; d >= 0; --d)
      if (x.size(d) >= least && x.stride(d) == 1) return d;
    return -1;
  };
  if (!(target.sizes() == source.sizes())) return std::nullopt;
  const TransposedDims dims{dim_of_neighbours(target), dim_of_neighbours(source)};
  if (dims.to < 0 || dims.from < 0 || dims.to == dims.from || source.stride(dims.to) == 0) return std::nullopt;
  return dims;
}

/// Copies a tile of `rows` rows and `columns` columns of the target, whose rows lie `to_stride` words apart. The rows
/// of the source are the columns of the target.
template <typename Word>
void transpose_tile(const Word* from, std::int64_t from_stride, Word* to, std::int64_t to_stride, std::int64_t rows,
                    std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) to[r * to_stride + c] = from[c * from_stride + r];
}

/// Copies with a transpose, in tiles. A tile is one cache line wide in the target, so that each line is written once,
/// and high enough to use whole cache lines of the source.
template <typename Word>
void copy_transposed(const Tensor& target, const Tensor& source, TransposedDims dims) {
  constexpr std::int64_t width = 64 / sizeof(Word), height = 64;
  Dims corners = target.sizes();  // the number of tiles along each dim
  corners[dims.to] = (target.size(dims.to) + width - 1) / width;
  corners[dims.from] = (target.size(dims.from) + height - 1) / height;
  const std::int64_t tiles = corners.product(), together = std::max<std::int64_t>(1, 16384 / (width * height));
  runtime::parallel_for_neighbours((tiles + together - 1) / together, [&](std::int64_t part) {
    for (std::int64_t tile = part * together; tile < std::min(tiles, (part + 1) * together); ++tile) {
      std::int64_t left = tile, to = 0, from = 0, columns = 0, rows = 0;
      const auto at = [&](int d, std::int64_t step) {  // moves to the start of the tile along d, returns its size
        const std::int64_t begin = left % corners[d] * step;
        left /= corners[d];
        to += begin * target.stride(d);
        from += begin * source.stride(d);
        return std::min(step, target.size(d) - begin);
      };
      rows = at(dims.from, height);  // consecutive tiles lie below each other, in one column of cache lines
      columns = at(dims.to, width);
      for (int d = target.dim() - 1; d >= 0; --d)
        if (d != dims.to && d != dims.from) at(d, 1);
      transpose_tile(static_cast<const Word*>(source.data()) + from, source.stride(dims.to),
                     static_cast<Word*>(target.data()) + to, target.stride(dims.from), rows, columns);
    }
  });
}

/// Copies words without conversion.
void copy_words(const Tensor& target, const Tensor& source) {
  const std::size_t size = size_of(target.dtype());
  if (const std::optional<TransposedDims> dims = transposed_dims(target, source)) {
    if (size == 4) return copy_transposed<std::uint32_t>(target, source, *dims);
    if (size == 2) return copy_transposed<std::uint16_t>(target, source, *dims);
    if (size == 8) return copy_transposed<std::uint64_t>(target, source, *dims);
  }
  iterate_in_parts(target.sizes(), {operand(target, target.sizes()), operand(source, target.sizes())},
                   [size](char* const* data, const std::int64_t* strides, std::int64_t n) {
                     move_words(size, data[1], strides[1], data[0], strides[0], n);
                   });
}

template <typename To>
struct Conversion {
  template <typename From>
  To operator()(From value) const {
    return convert<To>(value);
  }
};

Tensor copy_as(const Tensor& x, Dtype dtype) {
  Tensor copy = empty(x.sizes(), dtype);
  copy_values(copy, x);
  return copy;
}

constexpr auto same = [](auto& dy) { return dy; };  // the tape converts the dtype

}  // namespace

void copy_values(const Tensor& target, const Tensor& source) {
  if (target.dtype() == source.dtype()) return copy_words(target, source);
  const auto from = [&]<typename From>(Type<From>) {
    return with_computed(target.dtype(), []<typename To>(Type<To>) { return unary_loop<To, From, Conversion<To>>(); });
  };
  const Conversion<void> none;  // an object, because the loops take a pointer to one
  compute_elements({.loop = with_computed(source.dtype(), from), .function = &none}, target, {&source});
}

Tensor Tensor::clone() const { return record("CloneBackward0", copy_as(*this, dtype()), wrt(*this, same)); }

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

Tensor Tensor::to(Dtype dtype) const {
  if (dtype == this->dtype()) return *this;
  return record("ToCopyBackward0", copy_as(*this, dtype), wrt(*this, same));
}

const Tensor& Tensor::copy_(const Tensor& source) const {
  if (!(broadcast_shapes("copy_", sizes(), source.sizes()) == sizes()))
    throw ShapeError("copy_: source has shape " + attn::to_string(source.sizes()) + "; it must broadcast to " +
                     attn::to_string(sizes()));
  check_in_place("copy_", *this, source);
  const History history =
      history_of("CopyBackwards", *this, wrt(*this, [](auto& dy) { return zeros_like(dy); }), wrt(source, same));
  copy_values(*this, overlaps(*this, source) ? copy_as(source, source.dtype()) : source);
  return history.changed(*this);
}

const Tensor& Tensor::fill_(Scalar value) const {
  const runtime::DefaultFloatingPoint floating_point;
  if (defined()) check_fits("fill_", value, dtype());
  check_overwrite("fill_", *this);
  const History history = history_of_overwriting("FillBackward0", *this);
  copy_words(*this, filled({}, value, dtype()));
  return history.changed(*this);
}

}  // namespace attn
