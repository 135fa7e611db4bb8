// src/tensor/extreme.cc: computes max, min, argmax, all and any, which compare along rows and are exact in every dtype.
#include "runtime/floating_point.h"
#include "runtime/parallel.h"
#include "tensor/blocks.h"
#include "tensor/elements.h"
#include "tensor/iterate.h"
#include "tensor/rows.h"

#include <algorithm>
#include <type_traits>
#include <vector>

namespace attn {
namespace {

enum class Extreme { largest, smallest };

/// Returns whether `value` replaces `best`. NaN beats every number; of equal values the first stays.
template <Extreme extreme, typename C>
bool beats(C value, C best) {
  return (best == best) & ((value != value) | (extreme == Extreme::largest ? value > best : value < best));
}

template <typename C>
struct Best {
  C value;
  std::int64_t at;
};

/// Returns the best of n >= 1 contiguous elements and the first index that has it.
template <Extreme extreme, typename C>
Best<C> best_of_block(const C* x, std::int64_t n) {
  constexpr std::int64_t ways = 16;
  using Flag = std::conditional_t<sizeof(C) == 8, std::int64_t, std::int32_t>;
  C best[ways];
  Flag nan[ways] = {};
  std::fill_n(best, ways, x[0]);
  const auto take = [&](std::int64_t w, C value) {
    best[w] = (extreme == Extreme::largest ? value > best[w] : value < best[w]) ? value : best[w];
    nan[w] |= value != value ? Flag{1} : Flag{0};
  };
  std::int64_t i = 0, at = 0;
  for (; i + ways <= n; i += ways)
    for (std::int64_t w = 0; w < ways; ++w) take(w, x[i + w]);
  for (; i < n; ++i) take(0, x[i]);
  if (std::any_of(nan, nan + ways, [](Flag flag) { return flag != 0; })) {
    while (x[at] == x[at]) ++at;
    return {x[at], at};
  }
  C most = best[0];
  for (const C other : best) most = beats<extreme>(other, most) ? other : most;
  while (x[at] != most) ++at;
  return {x[at], at};
}

/// Returns the best of n >= 1 elements that lie `stride` bytes apart.
template <Extreme extreme, typename C>
Best<C> best_of_run(Dtype dtype, const char* x, std::int64_t stride, std::int64_t n) {
  alignas(64) C block[block_elements];
  Best<C> best{};
  in_blocks(n, [&](std::int64_t start, std::int64_t count) {
    read_block(dtype, x + start * stride, stride, block, count);
    const Best<C> next = best_of_block<extreme>(block, count);
    if (start == 0 || beats<extreme>(next.value, best.value)) best = {next.value, start + next.at};
  });
  return best;
}

/// Returns the best of one long row; threads share its parts.
template <Extreme extreme, typename C>
Best<C> best_of_long_run(Dtype dtype, const char* x, std::int64_t stride, std::int64_t n) {
  constexpr std::int64_t part = 65536;
  std::vector<Best<C>> parts(static_cast<std::size_t>((n + part - 1) / part));
  runtime::parallel_for(static_cast<std::int64_t>(parts.size()), [&](std::int64_t i) {
    parts[static_cast<std::size_t>(i)] =
        best_of_run<extreme, C>(dtype, x + i * part * stride, stride, std::min(part, n - i * part));
  });
  Best<C> best = parts[0];
  for (std::size_t i = 1; i < parts.size(); ++i)
    if (beats<extreme>(parts[i].value, best.value))
      best = {parts[i].value, static_cast<std::int64_t>(i) * part + parts[i].at};
  return best;
}

/// Writes the best element of each of `count` adjacent rows to `best`, and its index to `at`. A row has n elements that
/// lie `stride` bytes apart. These rows are the columns of a matrix, which is read row by row.
template <Extreme extreme, typename C>
void best_of_columns(Dtype dtype, const char* x, std::int64_t stride, std::int64_t n, std::int64_t count, C* best,
                     std::int64_t* at) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  alignas(64) C row[block_elements];
  read_block(dtype, x, size, best, count);
  std::fill_n(at, count, 0);
  for (std::int64_t i = 1; i < n; ++i) {
    read_block(dtype, x + i * stride, size, row, count);
    ATTN_INDEPENDENT
    for (std::int64_t c = 0; c < count; ++c) {
      const bool better = beats<extreme>(row[c], best[c]);
      best[c] = better ? row[c] : best[c];
      at[c] = better ? i : at[c];
    }
  }
}

/// Returns the extreme values and their indices for the rows of [..., n], n >= 1.
template <Extreme extreme>
std::pair<Tensor, Tensor> extremes(const Tensor& x, const Dims& sizes) {
  constexpr std::int64_t long_row = 1 << 18;
  const Rows rows(x);
  const Tensor values = empty(sizes, x.dtype()), indices = empty(sizes, Dtype::i64);
  const auto size = static_cast<std::int64_t>(size_of(x.dtype())), stride = rows.stride * size;
  const auto row_of = [&](std::int64_t row) { return static_cast<const char*>(advance(rows.x, rows.offset(row))); };
  with_computed(x.dtype(), [&]<typename C>(Type<C>) {
    std::int64_t* index_out = indices.data<std::int64_t>();
    const auto put = [&](std::int64_t row, const Best<C>& best) {
      write_block(x.dtype(), &best.value, static_cast<char*>(advance(values, row)), size, 1);
      index_out[row] = best.at;
    };
    if (rows.n >= long_row) {
      for (std::int64_t row = 0; row < rows.count; ++row)
        put(row, best_of_long_run<extreme, C>(x.dtype(), row_of(row), stride, rows.n));
    } else if (rows.stride != 1 && rows.x.dim() > 1 && rows.x.stride(-2) == 1) {
      const std::int64_t columns = rows.x.size(-2), step = 128, parts = (columns + step - 1) / step;
      runtime::parallel_for(rows.count / std::max<std::int64_t>(1, columns) * parts, [&](std::int64_t part) {
        const std::int64_t first = part / parts * columns + part % parts * step,
                           count = std::min(step, columns - part % parts * step);
        alignas(64) C best[step];
        best_of_columns<extreme, C>(x.dtype(), row_of(first), stride, rows.n, count, best, index_out + first);
        write_block(x.dtype(), best, static_cast<char*>(advance(values, first)), size, count);
      });
    } else {
      parallel_rows(rows.count, rows.n, [&](std::int64_t row) {
        put(row, best_of_run<extreme, C>(x.dtype(), row_of(row), stride, rows.n));
      });
    }
  });
  return {values, indices};
}

Dims ones_of(int rank) {
  Dims sizes;
  while (sizes.size() < rank) sizes.push_back(1);
  return sizes;
}

void check_not_empty(const char* function, const Tensor& x, std::int64_t n) {
  if (n == 0)
    throw ValueError(std::string(function) + ": x has shape " + to_string(x.sizes()) +
                     "; it needs at least one element to choose from");
}

template <Extreme extreme>
Tensor extreme_of_all(const char* function, const char* backward, const Tensor& x) {
  check_not_empty(function, x, x.numel());
  const Tensor y = extremes<extreme>(x.detach().reshape({-1}), {}).first;
  return record(backward, y,
                wrt(
                    x,
                    [](auto& dy, auto& x, auto& y) {  // elements that equal the extreme share the gradient evenly
                      const Tensor reaches = logical_or(eq(x, y), logical_and(isnan(x), isnan(y)));
                      return where(reaches, widen(dy) / sum(reaches), 0);
                    },
                    x, y));
}

std::pair<Tensor, Tensor> largest_along(const char* function, const Tensor& x, int dim, bool keepdim) {
  const Dims reduced = reduced_dims(function, {dim}, x.dim());
  if (x.dim() > 0) check_not_empty(function, x, x.size(dim));
  return extremes<Extreme::largest>(reduced_last(x.detach(), reduced), reduced_sizes(x.sizes(), reduced, keepdim));
}

/// Returns whether some element is `wanted` after conversion to bool.
bool holds(const Tensor& x, bool wanted) {
  const runtime::DefaultFloatingPoint floating_point;  // a caller's flush-to-zero mode would make denormals 0
  bool found = false;
  with_type(x.dtype(), [&]<typename T>(Type<T>) {
    iterate(x.sizes(), {operand(x, x.sizes())}, [&](char* const* data, const std::int64_t* strides, std::int64_t n) {
      for (std::int64_t i = 0; i < n && !found; ++i)
        found = convert<bool>(*reinterpret_cast<const T*>(data[0] + i * strides[0])) == wanted;
    });
  });
  return found;
}

}  // namespace

Tensor max(const Tensor& x) { return extreme_of_all<Extreme::largest>("max", "MaxBackward1", x); }
Tensor min(const Tensor& x) { return extreme_of_all<Extreme::smallest>("min", "MinBackward1", x); }

std::pair<Tensor, Tensor> max(const Tensor& x, int dim, bool keepdim) {
  const auto [values, indices] = largest_along("max", x, dim, keepdim);
  const auto vjp = [sizes = x.sizes(), reduced = reduced_dims("max", {dim}, x.dim())](auto& dy, auto& indices) {
    Dims along = ones_of(sizes.size());
    if (!reduced.empty()) along[static_cast<int>(reduced[0])] = sizes[static_cast<int>(reduced[0])];
    const Tensor taken = eq(arange(along.product()).reshape(along), spread(indices, sizes, reduced));
    return where(taken, spread(dy, sizes, reduced), 0);
  };
  return {record("MaxBackward0", values, wrt(x, vjp, indices)), indices};
}

Tensor argmax(const Tensor& x, std::optional<int> dim, bool keepdim) {
  if (dim) return largest_along("argmax", x, *dim, keepdim).second;
  check_not_empty("argmax", x, x.numel());
  return extremes<Extreme::largest>(x.detach().reshape({-1}),
                                    reduced_sizes(x.sizes(), reduced_dims("argmax", {}, x.dim()), keepdim))
      .second;
}

bool all(const Tensor& x) { return !holds(x, false); }
bool any(const Tensor& x) { return holds(x, true); }

}  // namespace attn
