// src/attention/relative/relative_products.cc: checks relative products and makes them, a query tile at a time, as
// dense bias terms for the kernels of both passes.
#include "attention/relative/relative_terms.h"

#include <attn/autograd.h>
#include <attn/ops.h>

#include "runtime/alignment.h"
#include "runtime/format.h"

#include "attention/element.h"
#include "attention/operand_text.h"
#include "kernels/relative/relative_product.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace attn {
namespace {

using kernels::AttentionGradient;
using kernels::AttentionProblem;
using kernels::BiasTerm;
using kernels::DenseGradient;
using kernels::RelativeProduct;
using kernels::Task;
using runtime::aligned;

/// A product of the call; `term`: its number among the bias terms.
struct Product {
  int term = 0;
  RelativeProduct form;
  Tensor table, operand;  // compute type; operand undefined: rows of q or k, until bind
  std::shared_ptr<const std::vector<std::int32_t>> steps;
  bool has_operand = false, has_scale = false;
};

/// Memory of a query tile: the bias terms, with products as dense ones, and of each product one number for each pair.
class TileProducts {
 public:
  /// `work`: the bytes that another object for such tiles has found; 0: none.
  TileProducts(const AttentionProblem& p, const std::vector<Product>& products, std::int64_t rows, bool backward,
               std::size_t work = 0)
      : products_(products), size_(p.element == kernels::Element::f64 ? 8 : 4), stride_((p.k_rows + 15) / 16 * 16),
        pairs_(aligned(static_cast<std::size_t>(rows * stride_ * size_))),
        terms_(aligned(static_cast<std::size_t>(p.bias_count) * sizeof(BiasTerm))), work_(work) {
    if (work_ != 0) return;
    for (const Product& product : products)
      work_ = std::max(work_, kernels::relative_scratch_bytes(product.form, p, rows, backward));
    work_ = aligned(work_);
  }
  /// `copies`: the tiles that each product has.
  std::size_t bytes(std::size_t copies) const { return terms_ + work_ + copies * pairs_ * products_.size(); }
  char* pairs(void* memory, std::size_t n) const { return static_cast<char*>(memory) + terms_ + work_ + n * pairs_; }
  void* work(void* memory) const { return static_cast<char*>(memory) + terms_; }
  std::size_t work_bytes() const { return work_; }
  std::size_t pairs_bytes() const { return pairs_; }
  std::int64_t stride() const { return stride_; }

  /// Computes the products of the tile and lets `problem` read them as dense terms.
  void make(AttentionProblem& problem, const Task& tile, void* memory) const {
    auto* const terms = static_cast<BiasTerm*>(memory);
    std::copy_n(problem.bias, problem.bias_count, terms);
    for (std::size_t n = 0; n < products_.size(); ++n) {
      kernels::relative_values(products_[n].form, problem, tile, pairs(memory, n), stride_, work(memory), work_);
      kernels::Broadcast4& dense = terms[products_[n].term].dense;
      dense.data = place(dense.stride, problem, tile, pairs(memory, n));
    }
    problem.bias = terms;
  }
  /// Sets the strides of a product's pairs and returns the address of its element (0, 0, 0, 0), which is outside of it.
  void* place(std::int64_t (&stride)[4], const AttentionProblem& problem, const Task& tile, char* pairs) const {
    stride[0] = 0, stride[1] = tile.rows * stride_, stride[2] = stride_, stride[3] = 1;
    const std::int64_t first = tile.head * stride[1] + tile.row * stride[2] + problem.keys_begin(tile);
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(pairs) -
                                   static_cast<std::uintptr_t>(first * size_));
  }

 private:
  const std::vector<Product>& products_;
  std::int64_t size_, stride_;
  std::size_t pairs_, terms_, work_;
};

/// The gradients of one product: shaped as the operand, and for each group and head a table.
struct ProductGradient {
  Tensor operand;  // [B, heads, T, D]; undefined: not wanted
  Tensor sums;     // [groups together, Hq, N, D]; undefined: not wanted
  Tensor table;    // [Hq, N, D]
  bool wanted() const { return operand.defined() || sums.defined(); }
};

class Gradients final : public RelativeGradients {
 public:
  Gradients(const std::vector<Product>& products, const LoweredBias& bias, const AttentionGradient& gradient,
            const std::vector<bool>& wanted, bool k, std::int64_t groups, bool packed)
      : products_(products), bias_(bias), packed_(packed),
        tiles_(gradient.problem, products, kernels::query_block, true), dense_(gradient.dense_count) {
    const AttentionProblem& p = gradient.problem;
    for (const Product& product : products) {
      const std::size_t place = bias.place_of(product.term);
      const RelativeProduct& form = product.form;
      const Dtype type = product.table.dtype();
      ProductGradient to;
      if (product.has_operand ? wanted[place + 1] : (!form.of_keys || k))
        to.operand = zeros({p.batch, form.operand_heads, form.of_keys ? p.k_rows : p.q_rows, form.dim}, type);
      if (wanted[place]) {
        const std::int64_t bytes = p.q_heads * form.table_rows * form.dim * size_of(type);
        together_ = std::clamp<std::int64_t>(most_bytes / std::max<std::int64_t>(bytes, 1), 1, together_);
        to.table = zeros({p.q_heads, form.table_rows, form.dim}, type);
      }
      to_.push_back(to);
    }
    together_ = std::min(together_, std::max<std::int64_t>(groups, 1));
    for (ProductGradient& to : to_)
      if (to.table.defined())
        to.sums = empty({together_, to.table.size(0), to.table.size(1), to.table.size(2)}, to.table.dtype());
  }

  std::size_t scratch_bytes() const override {
    return tiles_.bytes(2) + aligned((static_cast<std::size_t>(dense_) + products_.size()) * sizeof(DenseGradient));
  }
  std::int64_t groups_together() const override { return together_; }
  void begin_groups(std::int64_t first_group) override {
    first_group_ = first_group;
    for (ProductGradient& to : to_)
      if (to.sums.defined()) to.sums.zero_();
  }
  void end_groups(std::int64_t groups) override {
    const NoGrad no_grad;
    for (ProductGradient& to : to_)
      for (std::int64_t n = 0; to.sums.defined() && n < groups; ++n) to.table = to.table + to.sums.select(0, n);
  }

  bool run(const AttentionGradient& gradient, const Step& step, void* scratch, void* memory) const override {
    AttentionGradient g = gradient;
    const AttentionProblem& p = g.problem;
    const Task& rows = step.rows;
    tiles_.make(g.problem, rows, memory);
    if (step.again) {
      g.dense_count = 0;
      g.adds_lookups = false;
      return step.kernel.step(g, rows, step.order, scratch);
    }
    const std::size_t count = products_.size();
    auto* const dense = reinterpret_cast<DenseGradient*>(tiles_.pairs(memory, 2 * count));
    std::copy_n(g.dense, g.dense_count, dense);
    for (std::size_t n = 0; n < count; ++n) {
      if (!to_[n].wanted()) continue;
      char* const pairs = tiles_.pairs(memory, count + n);
      std::memset(pairs, 0, tiles_.pairs_bytes());
      DenseGradient& to = dense[g.dense_count++];
      to = {.term = products_[n].term};
      to.data = tiles_.place(to.stride, p, rows, pairs);
    }
    g.dense = dense;
    const bool good = step.kernel.step(g, rows, step.order, scratch);
    for (std::size_t n = 0; n < count; ++n) {
      const RelativeProduct& form = products_[n].form;
      const ProductGradient& of = to_[n];
      if (!of.wanted()) continue;
      const std::int64_t size = size_of(products_[n].table.dtype());
      kernels::RelativeGradient to;
      if (of.operand.defined()) {
        const std::int64_t head = rows.head / (p.q_heads / form.operand_heads);
        to.operand = static_cast<char*>(of.operand.data()) +
                     (rows.batch * of.operand.stride(0) + head * of.operand.stride(1)) * size;
      }
      if (of.sums.defined())
        to.table = static_cast<char*>(of.sums.data()) +
                   ((step.group - first_group_) * of.sums.stride(0) + rows.head * of.sums.stride(1)) * size;
      kernels::relative_gradients(form, p, rows, tiles_.pairs(memory, count + n), tiles_.stride(), to,
                                  tiles_.work(memory), tiles_.work_bytes());
    }
    return good;
  }

  std::vector<Tensor> finish(Tensor& q, Tensor& k) override {
    const NoGrad no_grad;
    std::vector<Tensor> result(bias_.values.size());
    for (std::size_t n = 0; n < products_.size(); ++n) {
      const Product& product = products_[n];
      const std::size_t place = bias_.place_of(product.term);
      if (to_[n].operand.defined()) {
        const Tensor& x = to_[n].operand;
        if (product.has_operand)
          result[place + 1] = (bias_.values[place + 1].dim() == 3 && packed_ ? x.transpose(1, 2) : x)
                                  .reshape(bias_.values[place + 1].sizes());
        else if (Tensor& sum = product.form.of_keys ? k : q; sum.defined()) sum.copy_(sum + x);
      }
      if (Tensor table = to_[n].table; table.defined()) {
        if (product.form.table_stride == 0) {  // one table: the heads' gradients, ascending
          Tensor sum = zeros({product.form.table_rows, product.form.dim}, table.dtype());
          for (std::int64_t h = 0; h < table.size(0); ++h) sum = sum + table.select(0, h);
          table = sum;
        }
        result[place] = table.reshape(bias_.values[place].sizes());
      }
    }
    return result;
  }

 private:
  static constexpr std::int64_t most_bytes = std::int64_t{64} << 20;  // of the groups' tables, if there are several

  const std::vector<Product>& products_;
  const LoweredBias& bias_;
  bool packed_;
  TileProducts tiles_;
  std::int64_t dense_, together_ = std::int64_t{1} << 20, first_group_ = 0;
  std::vector<ProductGradient> to_;
};

class Terms final : public RelativeTerms {
 public:
  void add(const Bias::Term& term, int n, const ScoreShape& shape, const Lengths& lengths, Dtype dtype) override {
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
    form.coordinate = static_cast<RelativeProduct::Coordinate>(index.coordinate);
    form.width = index.width, form.first = index.first, form.entries = index.entries;
    form.steps = product.steps ? product.steps->data() : nullptr;
    form.backwards = index.backwards;
    product.has_scale = term.scale.has_value();
    if (term.scale) form.scale = *term.scale;
    if (term.operand.defined()) {
      product.has_operand = true;
      product.operand = term.operand.detach();
      if (term.operand.dtype() != dtype && term.operand.dtype() != Dtype::f32)
        throw DtypeError(runtime::format("{}: the operand of a relative product is {}; it must be {} as q",
                                         shape.function, name_of(term.operand.dtype()), name_of(dtype)));
    }
    products_.push_back(std::move(product));
  }

  void bind(const RelativeOperands& operands) override {
    packed_ = operands.packed;
    const Dtype computed = operands.q.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
    for (Product& product : products_) {
      RelativeProduct& form = product.form;
      const Tensor& like = form.of_keys ? operands.k : operands.q;
      const char* const name = form.of_keys ? "k" : "q";
      if (!product.has_scale) form.scale = operands.scale;
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
  std::unique_ptr<RelativeGradients> gradients(const LoweredBias& bias, const AttentionGradient& gradient,
                                               const std::vector<bool>& wanted, bool k,
                                               std::int64_t groups) const override {
    return std::make_unique<Gradients>(products_, bias, gradient, wanted, k, groups, packed_);
  }

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
    for (const Product& product : products_)
      if (product.term == n) return &product;
    return nullptr;
  }
  /// Views an operand of the caller's rank as [B, H, T, D], as q and k are.
  static Tensor with_heads(const Tensor& x, bool packed) {
    if (x.dim() == 4) return x;
    if (x.dim() == 2) return x.unsqueeze(0).unsqueeze(0);
    return packed ? x.transpose(0, 1).unsqueeze(0) : x.unsqueeze(1);
  }

  std::vector<Product> products_;
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
  if (index.rows() == 0)
    throw ValueError(runtime::format("{}: the index is empty; RelativeIndex::distance makes one", function));
  if ((table.dim() != 2 && table.dim() != 3) || table.size(-2) != index.rows())
    throw ShapeError(runtime::format(
        "{}: the table has shape {}; {} needs [Hq, {}, D] or [{}, D]", function, attn::to_string(table.sizes()),
        index.to_string().empty() ? "an index" : index.to_string(), index.rows(), index.rows()));
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
