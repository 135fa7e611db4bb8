// src/attention/relative/tile_products.h: the relative products of a call, and the memory in which they are made for a
// query tile.
#pragma once
#include "attention/relative/relative_terms.h"
#include "kernels/relative/relative_product.h"
#include "runtime/alignment.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace attn {

/// A product of the call; `term`: its number among the bias terms.
struct Product {
  int term = 0;
  kernels::RelativeProduct form;
  Tensor table, operand;  // compute type; operand undefined: rows of q or k, until bind
  std::shared_ptr<const std::vector<std::int32_t>> steps;
  bool has_operand = false, has_scale = false;
};
struct Products {
  std::vector<Product> all;
  const kernels::RelativeReference* definition = nullptr;  // makes the products in place of the fused code
};

/// Memory of a query tile: the bias terms, with products as dense ones, and of each product one number for each pair.
class TileProducts {
 public:
  /// `work`: the bytes that another object for such tiles has found; 0: none.
  TileProducts(const kernels::AttentionProblem& p, const Products& products, std::int64_t rows, bool backward,
               std::size_t work = 0)
      : products_(products), size_(p.element == kernels::Element::f64 ? 8 : 4), stride_((p.k_rows + 15) / 16 * 16),
        pairs_(runtime::aligned(static_cast<std::size_t>(rows * stride_ * size_))),
        terms_(runtime::aligned(static_cast<std::size_t>(p.bias_count) * sizeof(kernels::BiasTerm))), work_(work) {
    if (work_ != 0) return;
    for (const Product& product : products.all)
      work_ = std::max(work_, products.definition != nullptr
                                  ? static_cast<std::size_t>(kernels::query_block * product.form.table_rows * size_)
                                  : kernels::relative_scratch_bytes(product.form, p, rows, backward));
    work_ = runtime::aligned(work_);
  }
  /// `copies`: the tiles that each product has.
  std::size_t bytes(std::size_t copies) const { return terms_ + work_ + copies * pairs_ * products_.all.size(); }
  char* pairs(void* memory, std::size_t n) const { return static_cast<char*>(memory) + terms_ + work_ + n * pairs_; }
  void* work(void* memory) const { return static_cast<char*>(memory) + terms_; }
  std::size_t work_bytes() const { return work_; }
  std::size_t pairs_bytes() const { return pairs_; }
  std::int64_t stride() const { return stride_; }

  /// Computes the products of the tile and lets `problem` read them as dense terms.
  void make(kernels::AttentionProblem& problem, const kernels::Task& tile, void* memory) const {
    auto* const terms = static_cast<kernels::BiasTerm*>(memory);
    std::copy_n(problem.bias, problem.bias_count, terms);
    for (std::size_t n = 0; n < products_.all.size(); ++n) {
      const Product& product = products_.all[n];
      char* const to = pairs(memory, n);
      if (products_.definition != nullptr) products_.definition->values(product.form, problem, tile, to, stride_);
      else kernels::relative_values(product.form, problem, tile, to, stride_, work(memory), work_);
      kernels::Broadcast4& dense = terms[product.term].dense;
      dense.data = place(dense.stride, problem, tile, to);
    }
    problem.bias = terms;
  }
  /// Sets the strides of a product's pairs and returns the address of its element (0, 0, 0, 0), which is outside of it.
  void* place(std::int64_t (&stride)[4], const kernels::AttentionProblem& problem, const kernels::Task& tile,
              char* pairs) const {
    stride[0] = 0, stride[1] = tile.rows * stride_, stride[2] = stride_, stride[3] = 1;
    const std::int64_t first = tile.head * stride[1] + tile.row * stride[2] + problem.keys_begin(tile);
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(pairs) -
                                   static_cast<std::uintptr_t>(first * size_));
  }

 private:
  const Products& products_;
  std::int64_t size_, stride_;
  std::size_t pairs_, terms_, work_;
};

/// Makes the object that sums the gradients of the products. `packed`: tensors of rank 3 are [total, H, D].
std::unique_ptr<RelativeGradients> gradients_of(const Products& products, const RelativeTerms::GradientCall& call,
                                                bool packed);

}  // namespace attn
