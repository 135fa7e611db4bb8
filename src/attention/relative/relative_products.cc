// src/attention/relative/relative_products.cc: checks relative products and makes them, a query tile at a time, as
// dense bias terms for the kernels of both passes.
#include <attn/ops.h>

#include "runtime/format.h"

#include "attention/relative/tile_products.h"

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

using kernels::AttentionProblem;
using kernels::RelativeProduct;
using kernels::Task;

/// Checks the table's shape. `function`: for errors.
void check_table(const char* function, const Tensor& table, const RelativeIndex& index) {
  if (index.rows() == 0)
    throw ValueError(runtime::format("{}: the index is empty; RelativeIndex::distance makes one", function));
  if ((table.dim() != 2 && table.dim() != 3) || table.size(-2) != index.rows())
    throw ShapeError(runtime::format("{}: the table has shape {}; {} needs [Hq, {}, D] or [{}, D]", function,
                                     to_string(table.sizes()), index.to_string(), index.rows(), index.rows()));
}

/// Refuses positions that a picture does not have: they would be taken for those of other pixels. A part of the pixels
/// is accepted, for rows and keys may be computed a few at a time. A picture_columns does not know the height, and is
/// right for any.
void check_positions(const RelativeIndex& index, bool bottom_right, const ScoreShape& shape, const Lengths& lengths) {
  const RelativeIndex::Form& form = index.form();
  if (form.coordinate == RelativeIndex::Coordinate::position) return;
  const bool by_row = form.coordinate == RelativeIndex::Coordinate::row;
  const std::int64_t height = 1 - form.first, pixels = by_row ? height * form.width : kernels::farthest_key;
  const auto number = [](const Tensor& given, std::int64_t n, std::int64_t other) {
    return given.defined() ? given.data<std::int64_t>()[n] : other;
  };
  for (std::int64_t n = 0; n < shape.items(); ++n) {
    const auto packed = [n](const std::vector<std::int64_t>& ends) {
      return ends[static_cast<std::size_t>(n + 1)] - ends[static_cast<std::size_t>(n)];
    };
    const std::int64_t rows = shape.packed ? packed(shape.packed->q) : number(lengths.query_lengths, n, shape.q_rows),
                       keys = shape.packed
                                  ? packed(shape.packed->k)
                                  : number(lengths.key_lengths, n, shape.k_rows) - number(lengths.key_start, n, 0),
                       first = number(lengths.query_start, n, bottom_right ? keys - rows : 0);
    if (rows <= 0 || keys <= 0 || (first >= 0 && first + rows <= pixels && keys <= pixels)) continue;
    throw ShapeError(runtime::format(
        "{}: {} {} has rows at positions {} to {} and keys at 0 to {}; {} has {}", shape.function, shape.item(), n,
        first, first + rows - 1, keys - 1, index.to_string(),
        by_row ? runtime::format("{} x {} = {} pixels, from position 0 to {}", height, form.width, pixels, pixels - 1)
               : "pixels from position 0"));
  }
}

class Terms final : public RelativeTerms {
 public:
  void add(const Bias::Term& term, int n, const ScoreShape& shape, const Lengths& lengths, Dtype dtype) override {
    check_table(shape.function, term.values, term.index);  // Bias::with_tensors may have exchanged it
    const Dtype computed = dtype == Dtype::f64 ? dtype : Dtype::f32;
    Product product{.term = n,
                    .form = {},
                    .table = term.values.detach().to(computed).contiguous(),
                    .operand = {},
                    .steps = term.index.form().steps};
    const int rank = product.table.dim();
    if (rank == 3 && product.table.size(0) != shape.heads && product.table.size(0) != 1)
      throw ShapeError(
          runtime::format("{}: the table of a relative product has shape {}; its first dim must be the {} "
                          "heads of q, or 1",
                          shape.function, to_string(term.values.sizes()), shape.heads));
    RelativeProduct& form = product.form;
    const RelativeIndex::Form& index = term.index.form();
    form.table_rows = product.table.size(rank - 2), form.dim = product.table.size(rank - 1);
    form.table_stride = rank == 3 && product.table.size(0) > 1 ? form.table_rows * form.dim : 0;
    form.of_keys = term.of_keys;
    form.bottom_right = is_bottom_right(term.align, "relative_product", shape, lengths);
    check_positions(term.index, form.bottom_right, shape, lengths);
    form.coordinate = static_cast<RelativeProduct::Coordinate>(index.coordinate);
    form.width = index.width, form.first = index.first, form.entries = index.entries;
    form.steps = product.steps ? product.steps->data() : nullptr;
    form.backwards = index.backwards;
    product.has_scale = term.scale.has_value();
    if (term.scale) form.scale = *term.scale;
    if (term.operand.defined()) {
      product.has_operand = true;
      product.operand = term.operand.detach();
      if (term.operand.dim() != 4 && term.operand.dim() != shape.rank)
        throw ShapeError(runtime::format(
            "{}: the operand of a relative product has shape {}; it must be [B, H, T, D], or of the rank of q, {}",
            shape.function, to_string(term.operand.sizes()), shape.rank));
      if (term.operand.dtype() != dtype && term.operand.dtype() != Dtype::f32)
        throw DtypeError(runtime::format("{}: the operand of a relative product is {}; it must be {} as q",
                                         shape.function, name_of(term.operand.dtype()), name_of(dtype)));
    }
    products_.all.push_back(std::move(product));
  }

  void bind(const RelativeOperands& operands) override {
    packed_ = operands.packed;
    const Dtype computed = operands.q.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
    for (Product& product : products_.all) {
      RelativeProduct& form = product.form;
      const Tensor& like = form.of_keys ? operands.k : operands.q;
      const char* const name = form.of_keys ? "k" : "q";
      if (!product.has_scale) form.scale = operands.scale;
      if (computed == Dtype::f32 && !std::isfinite(static_cast<float>(form.scale)))
        throw ValueError(runtime::format("{}: the scale of a relative product is {}; it must be finite in f32",
                                         operands.function, form.scale));
      if (!product.has_operand) {
        if (!operands.dot)
          throw ValueError(
              runtime::format("{}: a relative product of {} needs the (scaled) dot product as score, or an "
                              "operand",
                              operands.function, name));
        if (form.of_keys && operands.cached)
          throw ValueError(runtime::format("{}: a relative product of k needs an operand where keys are in a cache",
                                           operands.function));
        product.operand = like.detach();
      } else {
        product.operand = with_heads(product.operand, operands.packed);
      }
      product.operand = product.operand.to(computed);
      if (product.operand.size(-1) > 1 && product.operand.stride(-1) != 1)
        product.operand = product.operand.contiguous();
      const Dims needed{like.size(0), like.size(1), like.size(2), form.dim};
      if (!(product.operand.sizes() == needed))
        throw ShapeError(
            product.has_operand
                ? runtime::format(
                      "{}: the operand of a relative product has shape {}; it must be {} as {} and the table",
                      operands.function, to_string(product.operand.sizes()), to_string(needed), name)
                : runtime::format(
                      "{}: the table of a relative product has rows of {}; they must have the {} columns of {}",
                      operands.function, form.dim, like.size(3), name));
      form.operand = product.operand.data();
      form.table = product.table.data();
      form.operand_heads = product.operand.size(1);
      for (int d = 0; d < 3; ++d) form.operand_stride[d] = product.operand.stride(d);
    }
  }

  TileMemory tile_memory(const AttentionProblem& problem, std::int64_t tile_rows) const override {
    const TileProducts tiles(problem, products_, tile_rows, false);
    return {.bytes = tiles.bytes(1), .work = tiles.work_bytes()};
  }
  void rows(const Kernel& kernel, std::int64_t tile_rows, const AttentionProblem& problem, const Task& tile,
            const TileMemory& sizes, void* memory) const override {
    const TileProducts tiles(problem, products_, tile_rows, false, sizes.work);
    AttentionProblem p = problem;
    for (std::int64_t row = 0; row < tile.rows; row += tile_rows) {
      Task part = tile;
      part.row += row;
      part.rows = std::min(tile_rows, tile.rows - row);
      p.bias = problem.bias;
      tiles.make(p, part, memory);
      kernel(p, part);
    }
  }
  std::unique_ptr<RelativeGradients> gradients(const GradientCall& call) const override {
    return gradients_of(products_, call, packed_);
  }
  void use(const kernels::RelativeReference& definition) override { products_.definition = &definition; }

  bool has(int n) const override { return find(n) != nullptr; }
  bool of_keys(int n) const override { return find(n)->form.of_keys; }
  bool has_operand(int n) const override { return find(n)->has_operand; }
  std::int64_t row_of(int n, const AttentionProblem& problem, const Task& task, std::int64_t i,
                      std::int64_t j) const override {
    return find(n)->form.row_of(problem, task, i, j);
  }
  Tensor matrix(int n, const Tensor& table, const Tensor& operand, const Tensor& places) const override {
    const Product& product = *find(n);
    const std::int64_t heads = places.size(1);
    Tensor x = operand * product.form.scale;  // [B, H, T, D]
    if (x.size(1) != heads) {
      const Dims grouped{x.size(0), x.size(1), heads / x.size(1), x.size(2), x.size(3)};
      x = x.unsqueeze(2).expand(grouped).reshape({x.size(0), heads, x.size(2), x.size(3)});
    }
    const Tensor rows = table.dim() == 2 ? table.unsqueeze(0) : table;
    const Tensor all = matmul(x, rows.transpose(-1, -2)).contiguous();  // [B, Hq, T, N]
    const std::int64_t b = all.size(0), t = all.size(2), columns = all.size(3);
    Tensor first = (arange(b * heads) * (t * columns)).reshape({b, heads, 1, 1});
    const Tensor line = arange(t) * columns;
    first = first + (product.form.of_keys ? line.reshape({1, 1, 1, t}) : line.reshape({1, 1, t, 1}));
    const Tensor place = first + places;
    return all.reshape({-1}).index_select(0, place.reshape({-1})).reshape(place.sizes());
  }

 private:
  const Product* find(int n) const {
    for (const Product& product : products_.all)
      if (product.term == n) return &product;
    return nullptr;
  }
  /// Views an operand of the caller's rank as [B, H, T, D], as q and k are.
  static Tensor with_heads(const Tensor& x, bool packed) {
    if (x.dim() == 4) return x;
    if (x.dim() == 2) return x.unsqueeze(0).unsqueeze(0);
    return packed ? x.transpose(0, 1).unsqueeze(0) : x.unsqueeze(1);
  }

  Products products_;
  bool packed_ = false;
};

}  // namespace

Bias Bias::relative_product(const Tensor& table, const RelativeIndex& index, const RelativeProductOptions& options) {
  constexpr const char* function = "Bias::relative_product";
  const auto check = [&](const char* name, const Tensor& x) {
    if (!is_floating(x.dtype()))
      throw DtypeError(
          runtime::format("{}: {} is {}; it must be f32, f64, bf16 or f16", function, name, name_of(x.dtype())));
  };
  if (!table.defined()) throw ValueError(runtime::format("{}: the table is undefined", function));
  check("the table", table);
  check_table(function, table, index);
  if (options.operand.defined()) {
    check("the operand", options.operand);
    if (options.operand.dim() < 2 || options.operand.dim() > 4)
      throw ShapeError(runtime::format("{}: the operand has shape {}; it must be [B, H, T, D], or of the rank of q",
                                       function, attn::to_string(options.operand.sizes())));
  }
  if (options.scale && !std::isfinite(*options.scale))
    throw ValueError(runtime::format("{}: scale is {}; it must be finite", function, *options.scale));
  Bias bias;
  bias.terms_.push_back({.kind = Kind::product,
                         .values = table,
                         .align = options.align,
                         .operand = options.operand,
                         .index = index,
                         .of_keys = options.of_keys,
                         .scale = options.scale,
                         .products = []() -> std::shared_ptr<RelativeTerms> { return std::make_shared<Terms>(); }});
  return bias;
}

}  // namespace attn
