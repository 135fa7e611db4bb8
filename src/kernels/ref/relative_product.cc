// src/kernels/ref/relative_product.cc: computes relative products and their gradients in plain loops. This order of
// operations is the definition (docs/numerics.md section 12); the fused code has its bits.
#include "kernels/ref/math.h"
#include "kernels/relative_problem.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {
namespace {

// Keys of a part of the gradients, and terms of a chain; fixed: part of the order of operations.
constexpr std::int64_t keys_for_queries = 1024, keys_for_keys = 64, chain_terms = 256;

/// Adds products one by one in the order of section 5.1: chains, added to a total.
template <typename T>
struct Sum {
  T total = 0, chain = 0;
  std::int64_t terms = 0;

  void add(T x, T y) {
    chain = fma(x, y, chain);
    next();
  }
  void next() {
    if (++terms % chain_terms == 0) total = total + chain, chain = 0;
  }
  T value() const { return canonical(total + chain); }
};

/// One product for the rows of a task and one of its query heads.
template <typename T>
class Definition {
 public:
  Definition(const RelativeProduct& product, const AttentionProblem& problem, const Task& task, std::int64_t h)
      : r_(product), p_(problem), task_(task), begin_(problem.keys_begin(task)), end_(problem.keys_end(task)) {
    const std::int64_t own = h / (p_.q_heads / r_.operand_heads);
    operand_ = static_cast<const T*>(r_.operand) + task.batch * r_.operand_stride[0] + own * r_.operand_stride[1];
    table_ = static_cast<const T*>(r_.table) + h * r_.table_stride;
  }

  void values(std::int64_t row, std::int64_t rows, T* pairs, std::int64_t stride) const {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = begin_; j < end_; ++j) {
        const std::int64_t n = row_of(row + i, j), t = r_.of_keys ? j : row + i;
        Sum<T> sum;
        for (std::int64_t d = 0; d < r_.dim; ++d) sum.add(table(n, d), operand(t, d));
        pairs[i * stride + j - begin_] = sum.value();
      }
  }

  /// The gradients from those of the pairs of up to 64 rows, part by part.
  void gradients(std::int64_t row, std::int64_t rows, const T* pairs, std::int64_t stride, const RelativeGradient& to,
                 T* by_product) const {
    const std::int64_t part = r_.of_keys ? keys_for_keys : keys_for_queries;
    for (std::int64_t key = begin_; key < end_; key += part) {
      const std::int64_t key_end = key + part < end_ ? key + part : end_;
      // pass 1: the rows of the table that the pairs have, masked or not
      std::int64_t low = r_.table_rows, high = -1;
      for (std::int64_t i = row; i < row + rows; ++i)
        for (std::int64_t j = key; j < key_end; ++j) {
          const std::int64_t n = row_of(i, j);
          low = n < low ? n : low, high = n > high ? n : high;
        }
      // pass 2: dP_tn, of the row t of the operand and the row n of the table
      const std::int64_t first = r_.of_keys ? key : row, count = r_.of_keys ? key_end - key : rows,
                         width = high - low + 1;
      for (std::int64_t at = 0; at < count * width; ++at) by_product[at] = 0;
      for (std::int64_t i = row; i < row + rows; ++i)
        for (std::int64_t j = key; j < key_end; ++j) {
          T& sum = by_product[((r_.of_keys ? j : i) - first) * width + row_of(i, j) - low];
          sum = sum + pairs[(i - row) * stride + j - begin_];
        }
      // pass 3: dx_td
      for (std::int64_t t = 0; to.operand != nullptr && t < count; ++t)
        for (std::int64_t d = 0; d < r_.dim; ++d) {
          Sum<T> sum;
          for (std::int64_t n = 0; n < width; ++n) add_unless_0(sum, by_product[t * width + n], table(low + n, d));
          T& total = static_cast<T*>(to.operand)[(first + t) * r_.dim + d];
          total = canonical(total + sum.value() * static_cast<T>(r_.scale));
        }
      // pass 4: dR_nd
      for (std::int64_t n = 0; to.table != nullptr && n < width; ++n)
        for (std::int64_t d = 0; d < r_.dim; ++d) {
          Sum<T> sum;
          for (std::int64_t t = 0; t < count; ++t) add_unless_0(sum, by_product[t * width + n], operand(first + t, d));
          T& total = static_cast<T*>(to.table)[(low + n) * r_.dim + d];
          total = canonical(total + sum.value());
        }
    }
  }

 private:
  std::int64_t row_of(std::int64_t i, std::int64_t j) const { return r_.row_of(p_, task_, i, j); }
  T operand(std::int64_t t, std::int64_t d) const {
    return operand_[t * r_.operand_stride[2] + d] * static_cast<T>(r_.scale);
  }
  T table(std::int64_t n, std::int64_t d) const { return table_[n * r_.dim + d]; }
  /// A derivative of 0 adds nothing, whatever the other factor is.
  static void add_unless_0(Sum<T>& sum, T derivative, T factor) {
    if (derivative != 0) sum.add(derivative, factor);
    else sum.next();
  }

  const RelativeProduct& r_;
  const AttentionProblem& p_;
  const Task& task_;
  std::int64_t begin_, end_;
  const T *operand_, *table_;
};

template <typename T>
void values(const RelativeProduct& product, const AttentionProblem& problem, const Task& tile, void* pairs,
            std::int64_t stride) {
  for (std::int64_t n = 0; n < tile.heads; ++n)
    Definition<T>(product, problem, tile, tile.head + n)
        .values(tile.row, tile.rows, static_cast<T*>(pairs) + n * tile.rows * stride, stride);
}

bool is_f64(const AttentionProblem& p) { return p.element == Element::f64; }

void relative_values(const RelativeProduct& product, const AttentionProblem& problem, const Task& tile, void* pairs,
                     std::int64_t stride) noexcept {
  if (is_f64(problem)) values<double>(product, problem, tile, pairs, stride);
  else values<float>(product, problem, tile, pairs, stride);
}

template <typename T>
void gradients(const RelativeProduct& product, const RelativeStep& step, const RelativeGradient& to, void* scratch) {
  const Task& tile = step.tile;
  Definition<T>(product, step.problem, tile, tile.head)
      .gradients(tile.row, tile.rows, static_cast<const T*>(step.pairs), step.stride, to, static_cast<T*>(scratch));
}

void relative_gradients(const RelativeProduct& product, const RelativeStep& step, const RelativeGradient& to,
                        void* scratch) noexcept {
  if (is_f64(step.problem)) gradients<double>(product, step, to, scratch);
  else gradients<float>(product, step, to, scratch);
}

}  // namespace

extern const RelativeReference relative_table;
const RelativeReference relative_table = {relative_values, relative_gradients};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
