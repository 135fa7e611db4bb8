// tests/attention/relative_product.h: relative products as their definition reads (docs/numerics.md section 12): plain
// loops over pairs, the matrix of all pairs, and the gradients from the derivatives by it.
#pragma once
#include <attn/attention.h>
#include <attn/ops.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

namespace attn::testing {

/// Positions of rows and keys: one batch item without lengths unless they are given.
struct RelativePlaces {
  std::function<std::int64_t(std::int64_t b, std::int64_t i)> row = [](auto, auto i) { return i; };
  std::function<std::int64_t(std::int64_t b, std::int64_t j)> key = [](auto, auto j) { return j; };
  /// The first row, the end of the rows, the first key and the end of the keys of an item.
  std::function<std::vector<std::int64_t>(std::int64_t b)> range = {};
};

inline std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

/// Returns the row of the table, as the literature writes it.
inline std::int64_t row_by_form(const RelativeIndex& index, std::int64_t row, std::int64_t key) {
  const RelativeIndex::Form& f = index.form();
  const auto at = [&](std::int64_t p) {
    return f.coordinate == RelativeIndex::Coordinate::position ? p
           : f.coordinate == RelativeIndex::Coordinate::row    ? floor_div(p, f.width)
                                                               : p - floor_div(p, f.width) * f.width;
  };
  const std::int64_t entry = std::clamp<std::int64_t>(at(key) - at(row) - f.first, 0, f.entries - 1);
  const std::int64_t step = f.steps ? (*f.steps)[static_cast<std::size_t>(entry)] : entry;
  return f.backwards ? index.rows() - 1 - step : step;
}

/// A sum of products in the order of section 5.1: chains of 256, added to a total. Zeros of `a` may be left out.
template <typename T>
T chains(const std::vector<T>& a, const std::vector<T>& b, bool without_zeros = false) {
  T total = 0, chain = 0;
  for (std::size_t n = 0; n < a.size(); ++n) {
    if (!without_zeros || a[n] != 0) chain = std::fma(a[n], b[n], chain);
    if (n % 256 == 255 || n + 1 == a.size()) total = total + chain, chain = 0;
  }
  return total;
}

/// One product by its definition. `operand` [B, H, T, D], `table` [Hq, N, D] or [N, D]; all of type T.
template <typename T>
struct RelativeDefinition {
  Tensor table, operand;
  RelativeIndex index;
  bool of_keys = false;
  double scale = 1;
  RelativePlaces places = {};

  std::int64_t dim() const { return table.size(-1); }
  const T* row(std::int64_t h, std::int64_t n) const {
    return table.data<T>() + ((table.dim() == 3 && table.size(0) > 1 ? h * table.size(-2) : 0) + n) * dim();
  }
  std::vector<T> scaled(std::int64_t b, std::int64_t h, std::int64_t heads, std::int64_t t) const {
    const std::int64_t own = operand.size(1);
    const T* from = operand.data<T>() + ((b * own + h / (heads / own)) * operand.size(2) + t) * dim();
    std::vector<T> x;
    for (std::int64_t d = 0; d < dim(); ++d) x.push_back(from[d] * static_cast<T>(scale));
    return x;
  }

  /// Returns the products of all pairs, [B, Hq, Tq, Tk].
  Tensor matrix(std::int64_t heads, std::int64_t rows, std::int64_t keys) const {
    const std::int64_t batch = operand.size(0);
    Tensor all = zeros({batch, heads, rows, keys}, table.dtype());
    T* to = all.data<T>();
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t j = 0; j < keys; ++j) {
            const T* r = row(h, row_by_form(index, places.row(b, i), places.key(b, j)));
            *to++ = chains<T>(std::vector<T>(r, r + dim()), scaled(b, h, heads, of_keys ? j : i));
          }
    return all;
  }

  /// The gradients of the operand (shaped as it) and the table (shaped as it), from those of all pairs.
  std::pair<Tensor, Tensor> gradients(const Tensor& pairs) const {
    const std::int64_t batch = pairs.size(0), heads = pairs.size(1), rows = pairs.size(2), keys = pairs.size(3);
    const std::int64_t part = of_keys ? 64 : 1024, n_rows = table.size(-2);
    const Tensor dx = zeros(operand.sizes(), operand.dtype());
    std::vector<T> dtable(static_cast<std::size_t>(heads * n_rows * dim()), T(0));
    const T c = static_cast<T>(scale);
    for (std::int64_t b = 0; b < batch; ++b) {
      std::vector<T> item(dtable.size(), T(0));
      const std::vector<std::int64_t> range =
          places.range ? places.range(b) : std::vector<std::int64_t>{0, rows, 0, keys};
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t row0 = range[0]; row0 < range[1]; row0 += 64)
          for (std::int64_t key0 = range[2]; key0 < range[3]; key0 += part) {
            const std::int64_t row1 = std::min(row0 + 64, range[1]), key1 = std::min(key0 + part, range[3]);
            // the derivatives by the products of row (or key) and table row
            std::map<std::pair<std::int64_t, std::int64_t>, T> by;
            std::int64_t low = n_rows, high = -1;
            for (std::int64_t i = row0; i < row1; ++i)
              for (std::int64_t j = key0; j < key1; ++j) {
                const std::int64_t n = row_by_form(index, places.row(b, i), places.key(b, j));
                low = std::min(low, n), high = std::max(high, n);
                T& sum = by[{of_keys ? j : i, n}];
                sum = sum + pairs.data<T>()[((b * heads + h) * rows + i) * keys + j];
              }
            const std::int64_t first = of_keys ? key0 : row0, last = of_keys ? key1 : row1;
            for (std::int64_t t = first; t < last; ++t) {
              const std::int64_t own = operand.size(1);
              T* to = dx.data<T>() + ((b * own + h / (heads / own)) * operand.size(2) + t) * dim();
              for (std::int64_t d = 0; d < dim(); ++d) {
                std::vector<T> left, right;
                for (std::int64_t n = low; n <= high; ++n) {
                  const auto found = by.find({t, n});
                  left.push_back(found == by.end() ? T(0) : found->second);
                  right.push_back(row(h, n)[d]);
                }
                to[d] = to[d] + chains(left, right, true) * c;
              }
            }
            for (std::int64_t n = low; n <= high; ++n)
              for (std::int64_t d = 0; d < dim(); ++d) {
                std::vector<T> left, right;
                for (std::int64_t t = first; t < last; ++t) {
                  const auto found = by.find({t, n});
                  left.push_back(found == by.end() ? T(0) : found->second);
                  right.push_back(scaled(b, h, heads, t)[static_cast<std::size_t>(d)]);
                }
                T& sum = item[static_cast<std::size_t>((h * n_rows + n) * dim() + d)];
                sum = sum + chains(left, right, true);
              }
          }
      for (std::size_t n = 0; n < item.size(); ++n) dtable[n] = dtable[n] + item[n];
    }
    Tensor result = zeros(table.sizes(), table.dtype());
    const std::int64_t size = n_rows * dim();
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t n = 0; n < size; ++n) {
        const T x = dtable[static_cast<std::size_t>(h * size + n)];
        T& to = result.data<T>()[(result.numel() == size ? 0 : h * size) + n];
        to = result.numel() == size && heads > 1 ? to + x : x;
      }
    return {dx, result};
  }
};

}  // namespace attn::testing
