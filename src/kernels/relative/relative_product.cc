// src/kernels/relative/relative_product.cc: computes relative products by matrix products of rows and the part of the
// table that they need; gathers the results, and scatters derivatives (docs/numerics.md section 12).
#include "kernels/relative/relative_product.h"

#include "kernels/relative/kept_sums.h"
#include "kernels/relative/matrix_products.h"
#include "kernels/relative/table_columns.h"

#include <algorithm>

namespace attn::kernels {
namespace {

template <typename T>
class Relative {
  // of the operand at a time: of a tile, or the keys of a part
  static constexpr std::int64_t most_rows = TableColumns::most_rows;

 public:
  /// `bytes`: of the scratch. Without a scratch only bytes() and kept_bytes() may be called.
  Relative(const RelativeProduct& product, const AttentionProblem& problem, std::int64_t rows, bool backward,
           void* scratch, std::size_t bytes = 0)
      : Relative(product, problem, rows, backward, Arena(scratch), bytes) {}
  std::size_t bytes() const { return bytes_; }

  void values(const Task& tile, T* pairs, std::int64_t stride) {
    for (std::int64_t n = 0; n < tile.heads; ++n, pairs += tile.rows * stride) {
      begin(tile, tile.head + n);
      columns_.each_part(tile, [&](std::int64_t key, std::int64_t keys) {
        const std::int64_t rows = load_part(tile, key, keys);
        matrices_.multiply({x_, r_.dim}, {table_part(), r_.dim, true}, rows, columns_.count(), r_.dim, products_);
        T* const part = pairs + key - p_.keys_begin(tile);
        for (std::int64_t i = 0; i < tile.rows; ++i) gather_row(i, keys, part + i * stride);
      });
    }
  }

  void gradients(const RelativeStep& step, const RelativeGradient& to, KeptSums& kept) {
    const Task& tile = step.tile;
    begin(tile, tile.head);
    const T scale = static_cast<T>(r_.scale);
    columns_.each_part(tile, [&](std::int64_t key, std::int64_t keys) {
      const std::int64_t rows = load_part(tile, key, keys), width = columns_.count();
      std::fill_n(products_, rows * width, T(0));
      scatter(static_cast<const T*>(step.pairs) + key - p_.keys_begin(tile), step.stride, tile.rows, keys);
      if (to.operand != nullptr) {
        T* const gradient = static_cast<T*>(to.operand) + (r_.of_keys ? key : tile.row) * r_.dim;
        const auto sums = [&](T* y) {
          matrices_.multiply_nonzero({products_, width}, {table_part(), r_.dim}, rows, r_.dim, width, y);
        };
        if (r_.of_keys) add_in_turn<T>(kept, {gradient, rows * r_.dim, scale}, sums_, sums);
        else sums(sums_), add_sums(gradient, sums_, rows * r_.dim, scale);  // no other step has these rows
      }
      if (to.table != nullptr)
        add_in_turn<T>(
            kept, {static_cast<T*>(to.table) + columns_.first_row() * r_.dim, width * r_.dim, T(1)}, sums_,
            [&](T* y) { matrices_.multiply_nonzero({products_, width, true}, {x_, r_.dim}, width, r_.dim, rows, y); });
    });
  }
  /// Returns the bytes of the sums of a step that other steps add to as well.
  std::size_t kept_bytes() const {
    const std::int64_t part = columns_.part_keys(), parts = (p_.k_rows + part - 1) / part;
    return static_cast<std::size_t>(parts) *
           (Kept<T>::bytes(columns_.most() * r_.dim) + (r_.of_keys ? Kept<T>::bytes(part * r_.dim) : 0));
  }

 private:
  Relative(const RelativeProduct& product, const AttentionProblem& problem, std::int64_t rows, bool backward,
           Arena arena, std::size_t bytes)
      : r_(product), p_(problem), columns_(product, problem, rows, arena), x_(arena.take<T>(most_rows * r_.dim)),
        products_(arena.take<T>(most_rows * columns_.most())),
        sums_(arena.take<T>(backward ? std::max(columns_.most(), most_rows) * r_.dim : 0)) {
    const std::size_t rest = bytes == 0 ? gemm_bytes(backward) : bytes - arena.bytes();
    matrices_ = MatrixProducts<T>(arena.take<char>(static_cast<std::int64_t>(rest)), rest);
    bytes_ = arena.bytes();
  }

  void begin(const Task& tile, std::int64_t head) {
    operand_ = static_cast<const T*>(r_.operand) + tile.batch * r_.operand_stride[0] +
               head / (p_.q_heads / r_.operand_heads) * r_.operand_stride[1];
    table_ = static_cast<const T*>(r_.table) + head * r_.table_stride;
    if (!r_.of_keys) load_rows(tile.row, tile.rows);
  }
  /// Loads rows of the operand, scaled.
  void load_rows(std::int64_t row, std::int64_t count) {
    const T scale = static_cast<T>(r_.scale);
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t d = 0; d < r_.dim; ++d)
        x_[i * r_.dim + d] = operand_[(row + i) * r_.operand_stride[2] + d] * scale;
  }
  /// Returns the number of rows of the operand that take part; loads them if they are the keys.
  std::int64_t load_part(const Task& tile, std::int64_t key, std::int64_t keys) {
    if (!r_.of_keys) return tile.rows;
    load_rows(key, keys);
    return keys;
  }
  const T* table_part() const { return table_ + columns_.first_row() * r_.dim; }

  /// Returns the product of a run's first key, and the distance to the product of the next one.
  T* product_of(std::int64_t i, const ColumnRun& run) const {
    return products_ + (r_.of_keys ? run.key : i) * columns_.count() + run.column;
  }
  std::int64_t distance(const ColumnRun& run) const { return run.step + (r_.of_keys ? columns_.count() : 0); }

  /// Writes the products of row i and the keys of the part.
  void gather_row(std::int64_t i, std::int64_t keys, T* to) const {
    for (std::int64_t key = 0; key < keys;) {
      const ColumnRun run = columns_.run(i, key);
      const T* const from = product_of(i, run);
      const std::int64_t step = distance(run);
      if (step == 0) std::fill_n(to + key, run.keys, *from);
      else if (step == 1) std::copy_n(from, run.keys, to + key);
      else
        for (std::int64_t k = 0; k < run.keys; ++k) to[key + k] = from[k * step];
      key += run.keys;
    }
  }

  /// Adds the derivatives of a part, rows `stride` elements apart, to the products that they are of. For each product
  /// the keys ascend; where rows share products, which are those of keys, the rows ascend too.
  void scatter(const T* from, std::int64_t stride, std::int64_t rows, std::int64_t keys) const {
    std::int64_t i = 0;
    if (!r_.of_keys && columns_.has_long_runs())
      for (; i + together <= rows; i += together) scatter_rows(i, from + i * stride, stride, keys);
    for (; i < rows; ++i)
      for (std::int64_t key = 0; key < keys;) {
        const ColumnRun run = columns_.run(i, key);
        add_run(product_of(i, run), from + i * stride, run);
        key += run.keys;
      }
  }

  static constexpr std::int64_t together = 8;  // rows whose sums over keys of one column run side by side

  /// Adds the derivatives of eight rows from row i on, a run of each row at a time.
  void scatter_rows(std::int64_t i, const T* from, std::int64_t stride, std::int64_t keys) const {
    std::int64_t key[together] = {};
    ColumnRun runs[together];
    for (bool left = true; left;) {
      left = false;
      bool one_column = true;  // for each row
      for (std::int64_t n = 0; n < together; ++n) {
        runs[n] = key[n] < keys ? columns_.run(i + n, key[n]) : ColumnRun{keys};
        key[n] += runs[n].keys;
        left = left || key[n] < keys;
        one_column = one_column && runs[n].step == 0;
      }
      if (one_column) add_columns(i, from, stride, runs);
      else
        for (std::int64_t n = 0; n < together; ++n) add_run(product_of(i + n, runs[n]), from + n * stride, runs[n]);
    }
  }
  void add_run(T* to, const T* from, const ColumnRun& run) const {
    const std::int64_t step = distance(run);
    from += run.key;
    if (step == 0) {
      T sum = *to;
      for (std::int64_t k = 0; k < run.keys; ++k) sum += from[k];
      *to = sum;
    } else if (step == 1) {
      for (std::int64_t k = 0; k < run.keys; ++k) to[k] += from[k];
    } else {
      for (std::int64_t k = 0; k < run.keys; ++k) to[k * step] += from[k];
    }
  }
  /// Adds runs of one column each, of eight rows.
  void add_columns(std::int64_t i, const T* from, std::int64_t stride, const ColumnRun (&runs)[together]) const {
    const T* at[together];
    T sum[together];
    std::int64_t common = runs[0].keys;
    for (std::int64_t n = 0; n < together; ++n) {
      at[n] = from + n * stride + runs[n].key;
      sum[n] = *product_of(i + n, runs[n]);
      common = std::min(common, runs[n].keys);
    }
    for (std::int64_t k = 0; k < common; ++k)
      for (std::int64_t n = 0; n < together; ++n) sum[n] += at[n][k];
    for (std::int64_t n = 0; n < together; ++n) {
      for (std::int64_t k = common; k < runs[n].keys; ++k) sum[n] += at[n][k];
      *product_of(i + n, runs[n]) = sum[n];
    }
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
      for (std::int64_t n = columns_.most(); n > 0; n = n > 16 ? n * 3 / 4 : n - 15) {
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
  TableColumns columns_;
  T* x_;         // [64][dim]           rows of the operand, scaled
  T* products_;  // [64][columns]       their products with the table; or the derivatives by these
  T* sums_;      // [columns or 64][dim]
  MatrixProducts<T> matrices_{nullptr, 0};
  std::size_t bytes_ = 0;
  const T *operand_ = nullptr, *table_ = nullptr;  // of the head
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
  return is_f64(problem) ? Relative<double>(product, problem, TableColumns::most_rows, true, nullptr).kept_bytes()
                         : Relative<float>(product, problem, TableColumns::most_rows, true, nullptr).kept_bytes();
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
