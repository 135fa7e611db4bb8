// src/tensor/where.cc: selects elements by a mask or by their position: where, masked_fill, tril, triu.
#include <attn/ops.h>

#include "tensor/binary.h"
#include "tensor/defined.h"

#include <algorithm>
#include <cstring>

namespace attn {
namespace {

/// Selects elements as words of their size, because their type does not matter.
template <typename Word>
void choose_words(const void*, const void* const* x, void* y, std::int64_t n) {
  const auto* condition = static_cast<const bool*>(x[0]);
  const Word *a = static_cast<const Word*>(x[1]), *b = static_cast<const Word*>(x[2]);
  Word* result = static_cast<Word*>(y);
  ATTN_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) {
    const Word mask = static_cast<Word>(-static_cast<Word>(condition[i]));
    result[i] = static_cast<Word>((a[i] & mask) | (b[i] & ~mask));
  }
}

ElementLoop choice_of_words(std::size_t size) {
  switch (size) {
    case 1: return choose_words<std::uint8_t>;
    case 2: return choose_words<std::uint16_t>;
    case 4: return choose_words<std::uint32_t>;
    default: return choose_words<std::uint64_t>;
  }
}

/// Returns a where the condition is true, else b; both have the same dtype.
Tensor choose(const char* function, const char* mask_name, const Tensor& condition, const Tensor& a, const Tensor& b,
              const Tensor& out = {}) {
  if (condition.dtype() != Dtype::boolean)
    throw DtypeError(std::string(function) + ": " + mask_name + " is " + std::string(name_of(condition.dtype())) +
                     "; it must be bool");
  const Dims sizes = broadcast_shapes(function, broadcast_shapes(function, condition.sizes(), a.sizes()), b.sizes());
  return compute_into(function, out, sizes, a.dtype(), {&condition, &a, &b}, [&](const Tensor& target) {
    compute_elements({.loop = choice_of_words(size_of(a.dtype())), .words = true}, target, {&condition, &a, &b});
  });
}

/// Copies x and writes zeros outside the columns [first(row), last(row)) of each row of every matrix.
template <typename F>
Tensor triangle(const char* function, const Tensor& x, F&& columns) {
  if (x.dim() < 2)
    throw ShapeError(std::string(function) + ": x has shape " + to_string(x.sizes()) + "; it must have rank 2 or more");
  const Tensor result = x.detach().clone();
  const std::int64_t rows = x.size(-2), width = x.size(-1);
  const std::size_t bytes = size_of(x.dtype());
  char* row = static_cast<char*>(result.data());
  for (std::int64_t i = 0; width > 0 && i < x.numel() / width; ++i, row += static_cast<std::size_t>(width) * bytes) {
    auto [first, last] = columns(i % rows);
    first = std::clamp<std::int64_t>(first, 0, width);
    last = std::clamp<std::int64_t>(last, first, width);
    std::memset(row, 0, static_cast<std::size_t>(first) * bytes);
    std::memset(row + static_cast<std::size_t>(last) * bytes, 0, static_cast<std::size_t>(width - last) * bytes);
  }
  return result;
}

/// Clamps a diagonal that lies outside of the matrix to the nearest such one.
std::int64_t within(const Tensor& x, std::int64_t diagonal) {
  return x.dim() < 2 ? 0 : std::clamp(diagonal, -x.size(-2), x.size(-1));
}

constexpr auto where_true = [](auto& dy, auto& condition) { return where(condition, dy, 0); };
constexpr auto where_false = [](auto& dy, auto& condition) { return where(condition, 0, dy); };

}  // namespace

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor out) {
  for (const auto& [name, x] : {std::pair{"condition", &condition}, {"a", &a}, {"b", &b}})
    check_defined("where", name, *x);
  const Dtype common = result_type(a, b);
  const Tensor y = choose("where", "condition", condition, as(a, common), as(b, common), out);
  return record("WhereBackward0", y, wrt(a, where_true, condition), wrt(b, where_false, condition));
}

Tensor where(const Tensor& condition, const Tensor& a, Scalar b) {
  const Dtype common = result_type(a, b);
  check_fits("where", b, common);
  return record("WhereBackward0", choose("where", "condition", condition, as(a, common), filled({}, b, common)),
                wrt(a, where_true, condition));
}

Tensor where(const Tensor& condition, Scalar a, const Tensor& b) {
  const Dtype common = result_type(b, a);
  check_fits("where", a, common);
  return record("WhereBackward0", choose("where", "condition", condition, filled({}, a, common), as(b, common)),
                wrt(b, where_false, condition));
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value) {
  check_fits("masked_fill", value, x.dtype());
  return record("MaskedFillBackward0", choose("masked_fill", "mask", mask, filled({}, value, x.dtype()), x),
                wrt(x, where_false, mask));
}

Tensor tril(const Tensor& x, std::int64_t diagonal) {
  const std::int64_t last = within(x, diagonal);
  const Tensor result =
      triangle("tril", x, [&](std::int64_t row) { return std::pair<std::int64_t, std::int64_t>(0, row + last + 1); });
  return record("TrilBackward0", result, wrt(x, [diagonal](auto& dy) { return tril(dy, diagonal); }));
}

Tensor triu(const Tensor& x, std::int64_t diagonal) {
  const std::int64_t first = within(x, diagonal), width = x.dim() ? x.size(-1) : 0;
  const Tensor result =
      triangle("triu", x, [&](std::int64_t row) { return std::pair<std::int64_t, std::int64_t>(row + first, width); });
  return record("TriuBackward0", result, wrt(x, [diagonal](auto& dy) { return triu(dy, diagonal); }));
}

}  // namespace attn
