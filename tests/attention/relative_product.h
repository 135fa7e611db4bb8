// tests/attention/relative_product.h: relative products by their definition (kernels/ref, docs/numerics.md section 12):
// the matrix of all pairs, and the gradients from the derivatives by it.
#pragma once
#include <attn/attention.h>
#include <attn/ops.h>

#include "attention/truth.h"
#include "kernels/relative/relative_product.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace attn::testing {

/// A product of the literature.
struct RelativeForm {
  const char* name;
  RelativeIndex index;
  bool of_keys = false, one_table = false;
  std::optional<double> scale = std::nullopt;
};

inline std::vector<RelativeForm> relative_forms(std::int64_t rows) {
  return {{"Shaw", RelativeIndex::distance(9, 5), false, true},
          {"Conformer", RelativeIndex::distance(rows - 1, rows - 1)},
          {"Transformer-XL", RelativeIndex::distance(rows - 1, 0).reversed()},
          {"content to position", RelativeIndex::log_buckets(8, 40), false, false, 0.3},
          {"position to content", RelativeIndex::log_buckets(8, 40), true, false, 0.3},
          {"of keys by distance", RelativeIndex::distance(70, 20), true, true},
          {"rows of a picture", RelativeIndex::picture_rows(rows / 10 + 1, 10), false, true, 1.0},
          {"columns of a picture", RelativeIndex::picture_columns(10), false, true, 1.0},
          {"columns of a narrow picture, of keys", RelativeIndex::picture_columns(1), true, true},
          {"one distance, of keys", RelativeIndex::distance(0, 0).reversed(), true},
          {"rows of a picture, of keys", RelativeIndex::picture_rows(rows / 10 + 1, 10), true, false}};
}

struct RelativeSizes {
  std::int64_t batch = 1, heads = 2, key_heads = 2, rows = 70, keys = 70, dim = 8;
};

struct RelativeInputs {
  Tensor q, k, v, table, dy;
};
inline RelativeInputs relative_inputs(const RelativeSizes& z, const RelativeForm& form, Dtype dtype) {
  const Dims table = form.one_table ? Dims{form.index.rows(), z.dim} : Dims{z.heads, form.index.rows(), z.dim};
  return {normal({z.batch, z.heads, z.rows, z.dim}, 1, dtype), normal({z.batch, z.key_heads, z.keys, z.dim}, 2, dtype),
          normal({z.batch, z.key_heads, z.keys, 5}, 3, dtype), normal(table, 4, dtype),
          normal({z.batch, z.heads, z.rows, 5}, 5, dtype)};
}

/// One product by its definition. `operand` [B, H, T, D], `table` [Hq, N, D] or [N, D]; all of type T.
template <typename T>
struct RelativeDefinition {
  Tensor table, operand;
  RelativeIndex index;
  bool of_keys = false;
  double scale = 1;
  bool bottom_right = false;
  const kernels::Reference& build = kernels::reference();

  /// Returns the products of all pairs, [B, Hq, Tq, Tk].
  Tensor matrix(std::int64_t heads, std::int64_t rows, std::int64_t keys) const {
    const Tensor all = empty({operand.size(0), heads, rows, keys}, table.dtype());
    const kernels::AttentionProblem p = problem(all.sizes());
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t h = 0; h < heads; ++h)
        kernels::relative_reference(build).values(product(), p, {b, h, 1, 0, rows}, at(all, b, h, 0), keys);
    return all;
  }

  /// The gradients of the operand (shaped as it) and the table (shaped as it), from those of all pairs.
  std::pair<Tensor, Tensor> gradients(const Tensor& pairs) const {
    const kernels::AttentionProblem p = problem(pairs.sizes());
    const std::int64_t heads = p.q_heads, own = operand.size(1);
    const Tensor dx = zeros(operand.sizes(), operand.dtype()),
                 by_head = zeros({heads, table.size(-2), table.size(-1)}, table.dtype());
    std::vector<T> scratch(static_cast<std::size_t>(64 * table.size(-2)));
    for (std::int64_t b = 0; b < p.batch; ++b) {
      const Tensor item = zeros(by_head.sizes(), table.dtype());
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t row = 0; row < p.q_rows; row += 64) {
          const kernels::Task tile{b, h, 1, row, std::min<std::int64_t>(64, p.q_rows - row)};
          kernels::relative_reference(build).gradients(
              product(), {p, tile, at(pairs, b, h, row), p.k_rows},
              {.operand = dx.select(0, b).select(0, h / (heads / own)).data(), .table = item.select(0, h).data()},
              scratch.data());
        }
      by_head.add_(item);
    }
    if (table.dim() == 3 && table.size(0) == heads) return {dx, by_head};
    const Tensor sum = zeros({table.size(-2), table.size(-1)}, table.dtype());
    for (std::int64_t h = 0; h < heads; ++h) sum.add_(by_head.select(0, h));
    return {dx, sum.reshape(table.sizes())};
  }

 private:
  kernels::AttentionProblem problem(const Dims& pairs) const {
    kernels::AttentionProblem p;
    p.element = sizeof(T) == 8 ? kernels::Element::f64 : kernels::Element::f32;
    p.batch = pairs[0], p.q_heads = pairs[1], p.q_rows = pairs[2], p.k_rows = pairs[3];
    return p;
  }
  kernels::RelativeProduct product() const {
    const RelativeIndex::Form& f = index.form();
    kernels::RelativeProduct r{.table = table.data(),
                               .table_stride = table.dim() == 3 && table.size(0) > 1 ? table.stride(0) : 0,
                               .table_rows = table.size(-2),
                               .dim = table.size(-1),
                               .operand = operand.data(),
                               .operand_heads = operand.size(1),
                               .of_keys = of_keys,
                               .bottom_right = bottom_right,
                               .scale = scale,
                               .coordinate = static_cast<kernels::RelativeProduct::Coordinate>(f.coordinate),
                               .width = f.width,
                               .first = f.first,
                               .entries = f.entries,
                               .steps = f.steps ? f.steps->data() : nullptr,
                               .backwards = f.backwards};
    for (int d = 0; d < 3; ++d) r.operand_stride[d] = operand.stride(d);
    return r;
  }
  static T* at(const Tensor& pairs, std::int64_t b, std::int64_t h, std::int64_t row) {
    return pairs.data<T>() + ((b * pairs.size(1) + h) * pairs.size(2) + row) * pairs.size(3);
  }
};

}  // namespace attn::testing
