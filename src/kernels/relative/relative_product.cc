// src/kernels/relative/relative_product.cc: computes relative products by matrix products of rows and the part of the
// table that they need; gathers the results, and scatters derivatives (docs/numerics.md section 12).
#include "kernels/relative/relative_product.h"

#include "kernels/relative/kept_sums.h"
#include "kernels/relative/matrix_products.h"
#include "runtime/alignment.h"

#include <algorithm>
#include <tuple>

namespace attn::kernels {
namespace {

constexpr std::int64_t most_rows = 64;  // of a tile, and keys of a part for products of the keys

template <typename T>
class Relative {
 public:
  Relative(const RelativeProduct& product, const AttentionProblem& problem, std::int64_t rows, bool backward,
           void* scratch, std::size_t bytes = 0)
      : r_(product), p_(problem), keys_(product.of_keys ? kv_block : kv_split) {
    columns_ = r_.steps != nullptr || is_picture() ? r_.table_rows
                                                   : std::min(r_.table_rows, std::min(keys_, problem.k_rows) + rows);
    auto* at = static_cast<char*>(scratch);
    const auto take = [&]<typename E>(E*& place, std::int64_t count) {
      if (at != nullptr) place = reinterpret_cast<E*>(at + bytes_);
      bytes_ += runtime::aligned(static_cast<std::size_t>(count) * sizeof(E));
    };
    take(x_, most_rows * r_.dim);
    take(products_, most_rows * columns_);
    take(of_keys_, keys_);
    if (r_.steps != nullptr) take(entry_columns_, keys_ + rows);
    if (backward) take(sums_, std::max(columns_, most_rows) * r_.dim);
    char* gemm = nullptr;
    take(gemm, 0);
    const std::size_t rest = scratch == nullptr ? gemm_bytes(backward) : bytes - bytes_;
    matrices_ = MatrixProducts<T>(gemm, rest);
    bytes_ += runtime::aligned(rest);
  }
  std::size_t bytes() const { return bytes_; }

  void values(const Task& tile, T* pairs, std::int64_t stride) {
    for (std::int64_t n = 0; n < tile.heads; ++n, pairs += tile.rows * stride) {
      begin(tile, tile.head + n);
      if (!r_.of_keys) load_rows(tile.row, tile.rows);
      each_part([&](std::int64_t key, std::int64_t count) {
        if (r_.of_keys) load_rows(key, count);
        matrices_.multiply({x_, r_.dim}, {table_ + low_ * r_.dim, r_.dim, true}, r_.of_keys ? count : tile.rows, width_,
                           r_.dim, products_);
        T* const to = pairs + key - p_.keys_begin(tile);
        for (std::int64_t i = 0; i < tile.rows; ++i) {
          const T* const from = products_ + (r_.of_keys ? 0 : i * width_);
          T* const place = to + i * stride;
          const std::int64_t next = r_.of_keys ? width_ : 0;
          if (is_picture()) {
            each_piece(i, count, [&](std::int64_t k, std::int64_t keys, std::int64_t column, std::int64_t step) {
              if (next == 0 && step == 0) return void(std::fill_n(place + k, keys, from[column]));
              for (std::int64_t r = 0; r < keys; ++r) place[k + r] = from[(k + r) * next + column + r * step];
            });
            continue;
          }
          const Runs runs = runs_of(i, count);
          for (std::int64_t k = 0; k < runs.before; ++k) place[k] = from[k * next + runs.first];
          if (runs.columns != nullptr)
            for (std::int64_t k = runs.before; k < runs.after; ++k)
              place[k] = from[k * next + runs.columns[runs.line + k]];
          else if (next == 0 && !r_.backwards)
            std::copy_n(from + runs.line + runs.before, runs.after - runs.before, place + runs.before);
          else
            for (std::int64_t k = runs.before; k < runs.after; ++k) place[k] = from[runs.line + k * (next + runs.step)];
          for (std::int64_t k = runs.after; k < count; ++k) place[k] = from[k * next + runs.last];
        }
      });
    }
  }

  void gradients(const RelativeStep& step, const RelativeGradient& to, KeptSums& kept) {
    const Task& tile = step.tile;
    begin(tile, tile.head);
    if (!r_.of_keys) load_rows(tile.row, tile.rows);
    const T scale = static_cast<T>(r_.scale);
    each_part([&](std::int64_t key, std::int64_t count) {
      if (r_.of_keys) load_rows(key, count);
      const std::int64_t rows = r_.of_keys ? count : tile.rows;
      std::fill_n(products_, rows * width_, T(0));
      const T* const from = static_cast<const T*>(step.pairs) + key - p_.keys_begin(tile);
      scatter(from, step.stride, tile.rows, count);
      if (to.operand != nullptr) {
        T* const place = static_cast<T*>(to.operand) + (r_.of_keys ? key : tile.row) * r_.dim;
        const auto sums = [&](T* y) {
          matrices_.multiply_nonzero({products_, width_}, {table_ + low_ * r_.dim, r_.dim}, rows, r_.dim, width_, y);
        };
        if (r_.of_keys) add_in_turn<T>(kept, {place, rows * r_.dim, scale}, sums_, sums);
        else sums(sums_), add_sums(place, sums_, rows * r_.dim, scale);  // no other step has these rows
      }
      if (to.table != nullptr)
        add_in_turn<T>(kept, {static_cast<T*>(to.table) + low_ * r_.dim, width_ * r_.dim, T(1)}, sums_, [&](T* y) {
          matrices_.multiply_nonzero({products_, width_, true}, {x_, r_.dim}, width_, r_.dim, rows, y);
        });
    });
  }
  /// Returns the bytes of the sums of a step that other steps add to as well.
  std::size_t kept_bytes() const {
    const std::int64_t parts = (p_.k_rows + keys_ - 1) / keys_;
    return static_cast<std::size_t>(parts) *
           (Kept<T>::bytes(columns_ * r_.dim) + (r_.of_keys ? Kept<T>::bytes(keys_ * r_.dim) : 0));
  }

 private:
  bool is_picture() const { return r_.coordinate != RelativeProduct::Coordinate::position; }
  void begin(const Task& tile, std::int64_t head) {
    task_ = &tile;
    head_ = head / (p_.q_heads / r_.operand_heads);
    table_ = static_cast<const T*>(r_.table) + head * r_.table_stride;
    const std::int64_t offset = p_.row_offset(*task_, r_.bottom_right);
    for (std::int64_t i = 0; i < tile.rows; ++i) of_rows_[i] = r_.coordinate_of(tile.row + i + offset);
    rows_ = tile.rows;
  }
  /// Loads rows of the operand, scaled.
  void load_rows(std::int64_t row, std::int64_t count) {
    const T scale = static_cast<T>(r_.scale);
    const T* from =
        static_cast<const T*>(r_.operand) + task_->batch * r_.operand_stride[0] + head_ * r_.operand_stride[1];
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t d = 0; d < r_.dim; ++d) x_[i * r_.dim + d] = from[(row + i) * r_.operand_stride[2] + d] * scale;
  }
  /// Calls visit(first key, keys) for every part of the keys, counted from their origin, and sets the rows of the table
  /// that it needs: [low_, low_ + width_).
  template <typename F>
  void each_part(F&& visit) {
    const std::int64_t begin = p_.keys_begin(*task_), end = p_.keys_end(*task_);
    if (rows_ == 0) return;
    const auto [least, most] = std::minmax_element(of_rows_, of_rows_ + rows_);
    for (std::int64_t key = begin; key < end; key += keys_) {
      const std::int64_t count = std::min(keys_, end - key);
      for (std::int64_t k = 0; k < count; ++k) of_keys_[k] = r_.coordinate_of(p_.key_position(*task_, key + k));
      const std::int64_t at = p_.key_position(*task_, key) % r_.width;
      picture_column_ = at < 0 ? at + r_.width : at;
      const auto [first, last] = std::minmax_element(of_keys_, of_keys_ + count);
      const std::int64_t a = r_.row_of_entry(r_.entry_of(*first - *most)),
                         b = r_.row_of_entry(r_.entry_of(*last - *least));
      const std::int64_t last_entry = r_.entry_of(*last - *least);
      low_entry_ = r_.entry_of(*first - *most);
      low_ = std::min(a, b);
      width_ = std::max(a, b) - low_ + 1;
      if (r_.steps != nullptr)
        for (std::int64_t e = low_entry_; e <= last_entry; ++e)
          entry_columns_[e - low_entry_] = static_cast<std::int32_t>(r_.row_of_entry(e) - low_);
      visit(key, count);
    }
  }
  /// The columns of the products that the keys of a row have: `first` for the keys below `before`, `last` from `after`
  /// on; between them columns[line + k], or without these line + k step.
  struct Runs {
    std::int64_t before = 0, after = 0, first = 0, last = 0, line = 0, step = 0;
    const std::int32_t* columns = nullptr;
  };
  Runs runs_of(std::int64_t i, std::int64_t count) const {
    const std::int64_t shift = of_rows_[i] + r_.first;
    const auto column = [&](std::int64_t entry) { return r_.row_of_entry(entry) - low_; };
    const std::int64_t entry = of_keys_[0] - shift;  // keys follow each other
    Runs runs;
    runs.before = std::clamp<std::int64_t>(-entry, 0, count);
    runs.after = std::clamp<std::int64_t>(r_.entries - entry, runs.before, count);
    if (runs.before > 0) runs.first = column(0);
    if (runs.after < count) runs.last = column(r_.entries - 1);
    if (r_.steps != nullptr) {
      runs.columns = entry_columns_;
      runs.line = entry - low_entry_;
    } else {
      runs.step = r_.backwards ? -1 : 1;
      runs.line = (r_.backwards ? r_.table_rows - 1 - entry : entry) - low_;
    }
    return runs;
  }

  /// Calls piece(key, keys, column, step) for the keys of a row that lie in one row of the picture: their columns of
  /// the products are column, column + step, ...
  template <typename F>
  void each_piece(std::int64_t i, std::int64_t count, F&& piece) const {
    const bool by_column = r_.coordinate == RelativeProduct::Coordinate::column;
    const std::int64_t step = !by_column ? 0 : r_.backwards ? -1 : 1;
    for (std::int64_t k = 0, keys = r_.width - picture_column_; k < count; k += keys, keys = r_.width) {
      keys = std::min(keys, count - k);
      piece(k, keys, r_.row_of_entry(r_.entry_of(of_keys_[k] - of_rows_[i])) - low_, step);
    }
  }

  /// Adds the derivatives of a part (rows `stride` elements apart) to those of the products.
  void scatter(const T* from, std::int64_t stride, std::int64_t rows, std::int64_t count) {
    const std::int64_t next = r_.of_keys ? width_ : 0;
    constexpr std::int64_t together = 8;  // rows whose chains run side by side
    for (std::int64_t begin = 0; begin < rows; begin += together) {
      const std::int64_t end = std::min(begin + together, rows);
      Runs runs[together];
      const auto side_by_side = [&](auto&& range) {  // the keys that have one column, for all of these rows
        const T* at[together];
        T sum[together];
        std::int64_t left[together], common = count;
        for (std::int64_t n = 0; n < end - begin; ++n) {
          const auto [first, last, column] = range(runs[n]);
          at[n] = from + (begin + n) * stride + first, left[n] = last - first;
          sum[n] = products_[(begin + n) * width_ + column];
          common = std::min(common, left[n]);
        }
        if (end - begin == together)
          for (std::int64_t k = 0; k < common; ++k)
            for (std::int64_t n = 0; n < together; ++n) sum[n] += at[n][k];
        else common = 0;
        for (std::int64_t n = 0; n < end - begin; ++n) {
          for (std::int64_t k = common; k < left[n]; ++k) sum[n] += at[n][k];
          if (left[n] > 0) products_[(begin + n) * width_ + std::get<2>(range(runs[n]))] = sum[n];
        }
      };
      for (std::int64_t n = 0; n < end - begin; ++n) {
        if (is_picture()) scatter_pieces(from, stride, begin + n, count);
        else runs[n] = runs_of(begin + n, count);
      }
      if (is_picture()) continue;
      if (next == 0) side_by_side([](const Runs& r) { return std::tuple(std::int64_t{0}, r.before, r.first); });
      for (std::int64_t n = 0; n < end - begin; ++n) {
        T* const place = products_;
        const T* const g = from + (begin + n) * stride;
        if (next != 0)
          for (std::int64_t k = 0; k < runs[n].before; ++k) place[k * next + runs[n].first] += g[k];
        scatter_row(from, stride, begin + n, runs[n]);
        if (next != 0)
          for (std::int64_t k = runs[n].after; k < count; ++k) place[k * next + runs[n].last] += g[k];
      }
      if (next == 0) side_by_side([count](const Runs& r) { return std::tuple(r.after, count, r.last); });
    }
  }
  void scatter_pieces(const T* from, std::int64_t stride, std::int64_t i, std::int64_t count) const {
    const std::int64_t next = r_.of_keys ? width_ : 0;
    T* const place = products_ + (r_.of_keys ? 0 : i * width_);
    const T* const g = from + i * stride;
    each_piece(i, count, [&](std::int64_t key, std::int64_t keys, std::int64_t column, std::int64_t step) {
      if (next == 0 && step == 0) {
        T sum = place[column];
        for (std::int64_t r = 0; r < keys; ++r) sum += g[key + r];
        place[column] = sum;
        return;
      }
      for (std::int64_t r = 0; r < keys; ++r) place[(key + r) * next + column + r * step] += g[key + r];
    });
  }
  /// The keys of a row between those with the first and the last entry.
  void scatter_row(const T* from, std::int64_t stride, std::int64_t i, const Runs& runs) const {
    const std::int64_t next = r_.of_keys ? width_ : 0;
    T* const place = products_ + (r_.of_keys ? 0 : i * width_);
    const T* const g = from + i * stride;
    if (runs.columns != nullptr)
      for (std::int64_t k = runs.before; k < runs.after; ++k) place[k * next + runs.columns[runs.line + k]] += g[k];
    else if (next + runs.step == 1)
      for (std::int64_t k = runs.before; k < runs.after; ++k) place[runs.line + k] += g[k];
    else
      for (std::int64_t k = runs.before; k < runs.after; ++k) place[runs.line + k * (next + runs.step)] += g[k];
  }

  std::size_t gemm_bytes(bool backward) const {
    const GemmTarget* const target = gemm_here();
    if (target == nullptr) return 0;
    std::size_t bytes = 0;
    const auto need = [&](std::int64_t m, std::int64_t n, std::int64_t k, bool a, bool b) {
      if (m > 0 && n > 0 && k > 0)
        bytes = std::max(
            bytes, target->scratch_bytes(MatrixProducts<T>::problem_of({nullptr, a ? m : k, a}, {nullptr, b ? k : n, b},
                                                                       m, n, k, nullptr),
                                         false));
    };
    for (const std::int64_t m : {std::int64_t{1}, std::int64_t{8}, std::int64_t{16}, std::int64_t{32}, most_rows})
      for (std::int64_t n = columns_; n > 0; n = n > 16 ? n * 3 / 4 : n - 15) {
        need(m, n, r_.dim, false, true);
        if (!backward) continue;
        need(m, r_.dim, n, false, false);
        need(n, r_.dim, m, true, false);
      }
    bytes *= 2;  // shapes between those have a little more; what has still more is computed by the reference code
    return bytes;
  }

  const RelativeProduct& r_;
  const AttentionProblem& p_;
  std::int64_t keys_;         // of a part
  std::int64_t columns_ = 0;  // the most rows of the table that a part needs
  std::size_t bytes_ = 0;
  MatrixProducts<T> matrices_{nullptr, 0};
  T* x_ = nullptr;                         // [64][dim]      rows of the operand, scaled
  T* products_ = nullptr;                  // [64][columns]  their products with the table; or the derivatives by these
  std::int64_t* of_keys_ = nullptr;        // [keys]         coordinates
  std::int32_t* entry_columns_ = nullptr;  // the column of each entry from low_entry_ on
  T* sums_ = nullptr;                      // [columns or 64][dim]
  std::int64_t of_rows_[most_rows] = {};   // coordinates
  const Task* task_ = nullptr;             // whose pairs are computed
  std::int64_t head_ = 0, rows_ = 0, low_ = 0, width_ = 0, low_entry_ = 0, picture_column_ = 0;
  const T* table_ = nullptr;
};

bool is_f64(const AttentionProblem& p) { return p.element == Element::f64; }

}  // namespace

std::size_t relative_scratch_bytes(const RelativeProduct& product, const AttentionProblem& problem, std::int64_t rows,
                                   bool backward) {
  return is_f64(problem) ? Relative<double>(product, problem, rows, backward, nullptr).bytes()
                         : Relative<float>(product, problem, rows, backward, nullptr).bytes();
}

void relative_values(const RelativeProduct& product, const AttentionProblem& problem, const Task& tile, void* pairs,
                     std::int64_t stride, void* scratch, std::size_t bytes) {
  if (is_f64(problem))
    Relative<double>(product, problem, tile.rows, false, scratch, bytes)
        .values(tile, static_cast<double*>(pairs), stride);
  else
    Relative<float>(product, problem, tile.rows, false, scratch, bytes)
        .values(tile, static_cast<float*>(pairs), stride);
}

std::size_t relative_kept_bytes(const RelativeProduct& product, const AttentionProblem& problem) {
  return is_f64(problem) ? Relative<double>(product, problem, most_rows, true, nullptr).kept_bytes()
                         : Relative<float>(product, problem, most_rows, true, nullptr).kept_bytes();
}

void relative_gradients(const RelativeProduct& product, const RelativeStep& step, const RelativeGradient& to,
                        KeptSums& kept, void* scratch, std::size_t bytes) {
  const AttentionProblem& p = step.problem;
  if (is_f64(p)) Relative<double>(product, p, step.tile.rows, true, scratch, bytes).gradients(step, to, kept);
  else Relative<float>(product, p, step.tile.rows, true, scratch, bytes).gradients(step, to, kept);
}

void add_kept(const AttentionProblem& problem, KeptSums& kept) {
  if (is_f64(problem)) begin_turn<double>(kept);
  else begin_turn<float>(kept);
}

}  // namespace attn::kernels
