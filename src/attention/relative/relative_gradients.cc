// src/attention/relative/relative_gradients.cc: runs the steps of the backward pass with relative products as dense
// bias terms, and sums the gradients of operands and tables.
#include <attn/autograd.h>
#include <attn/ops.h>

#include "runtime/alignment.h"

#include "attention/relative/tile_products.h"

#include <algorithm>
#include <cstring>

namespace attn {
namespace {

using kernels::AttentionProblem;
using kernels::DenseGradient;

/// The gradients of one product: shaped as the operand, and for each group and head a table.
struct ProductGradient {
  Tensor operand;  // [B, heads, T, D]; undefined: not wanted
  Tensor sums;     // [groups together, Hq, N, D]; undefined: not wanted
  Tensor table;    // [Hq, N, D]: the groups so far; undefined: none
  bool wanted() const { return operand.defined() || sums.defined(); }
};

class Gradients final : public RelativeGradients {
 public:
  Gradients(const Products& products, const RelativeTerms::GradientCall& call, bool packed)
      : products_(products), bias_(call.bias), packed_(packed), groups_(call.groups),
        tiles_(call.gradient.problem, products, kernels::query_block, true),
        dense_bytes_(runtime::aligned((static_cast<std::size_t>(call.gradient.dense_count) + products.all.size()) *
                                      sizeof(DenseGradient))) {
    const AttentionProblem& p = call.gradient.problem;
    for (const Product& product : products.all) {
      const std::size_t place = bias_.place_of(product.term);
      const kernels::RelativeProduct& form = product.form;
      const Dtype type = product.table.dtype();
      ProductGradient to;
      if (product.has_operand ? call.wanted[place + 1] : (!form.of_keys || call.k))
        to.operand = zeros({p.batch, form.operand_heads, form.of_keys ? p.k_rows : p.q_rows, form.dim}, type);
      if (call.wanted[place]) {
        const std::int64_t bytes = p.q_heads * form.table_rows * form.dim * size_of(type);
        together_ = std::clamp<std::int64_t>(most_bytes / std::max<std::int64_t>(bytes, 1), 1, together_);
      }
      if (call.threads > 1 && (call.wanted[place] || (to.operand.defined() && form.of_keys)))
        kept_bytes_ += kernels::relative_kept_bytes(form, p);
      to_.push_back(to);
    }
    together_ = std::min(together_, std::max<std::int64_t>(groups_, 1));
    kept_bytes_ = std::min(kept_bytes_, most_kept_bytes);
    for (std::size_t n = 0; n < to_.size(); ++n) {
      const kernels::RelativeProduct& form = products.all[n].form;
      if (call.wanted[bias_.place_of(products.all[n].term)])
        to_[n].sums = empty({together_, p.q_heads, form.table_rows, form.dim}, products.all[n].table.dtype());
    }
  }

  std::size_t scratch_bytes() const override { return tiles_.bytes(2) + dense_bytes_ + kept_bytes_; }
  std::int64_t groups_together() const override { return together_; }
  void begin_groups(std::int64_t first_group) override {
    first_group_ = first_group;
    for (ProductGradient& to : to_)
      if (to.sums.defined()) to.sums.zero_();
  }
  void end_groups(std::int64_t groups) override {
    const NoGrad no_grad;
    for (ProductGradient& to : to_)
      for (std::int64_t n = 0; to.sums.defined() && n < groups; ++n) {
        const Tensor group = to.sums.select(0, n);
        if (to.table.defined()) to.table.add_(group);
        else to.table = groups_ == 1 ? group : group.clone();
      }
  }

  bool run(const kernels::AttentionGradient& gradient, const Step& step, void* scratch, void* memory) const override {
    kernels::AttentionGradient g = gradient;
    const AttentionProblem& p = g.problem;
    const kernels::Task& tile = step.rows;
    tiles_.make(g.problem, tile, memory);
    if (step.again) {
      g.dense_count = 0;
      g.adds_lookups = false;
      return step.kernel.step(g, tile, step.order, scratch);
    }
    kernels::StepOrder order = step.order;
    const bool shares_elements = g.dense_count != 0 || p.score_gradient != nullptr || p.normalization != nullptr;
    if (!shares_elements) order.wait_dense = nullptr;  // the pairs of products are this step's own
    const std::size_t count = products_.all.size();
    char* const after = tiles_.pairs(memory, 2 * count);
    auto* const dense = reinterpret_cast<DenseGradient*>(after);
    std::copy_n(g.dense, g.dense_count, dense);
    for (std::size_t n = 0; n < count; ++n) {
      if (!to_[n].wanted()) continue;
      char* const pairs = tiles_.pairs(memory, count + n);
      std::memset(pairs, 0, tiles_.pairs_bytes());
      DenseGradient& to = dense[g.dense_count++];
      to = {.term = products_.all[n].term};
      to.data = tiles_.place(to.stride, p, tile, pairs);
    }
    g.dense = dense;
    const bool good = step.kernel.step(g, tile, order, scratch);
    // in a wave (BackwardSteps), the kernel of the next step need not wait for the sums below
    if (order.wait != nullptr) order.done(order.context, kernels::every_key);
    kernels::KeptSums kept{.order = order, .memory = after + dense_bytes_, .bytes = kept_bytes_};
    for (std::size_t n = 0; n < count; ++n) {
      if (!to_[n].wanted()) continue;
      const kernels::RelativeProduct& form = products_.all[n].form;
      const kernels::RelativeStep of{p, tile, tiles_.pairs(memory, count + n), tiles_.stride()};
      const kernels::RelativeGradient to = places(step, p, n);
      if (products_.definition == nullptr) {
        kernels::relative_gradients(form, of, to, kept, tiles_.work(memory), tiles_.work_bytes());
      } else {
        kernels::add_kept(p, kept);
        products_.definition->gradients(form, of, to, tiles_.work(memory));
      }
    }
    kernels::add_kept(p, kept);
    return good;
  }

  std::vector<Tensor> finish(Tensor& q, Tensor& k) override {
    const NoGrad no_grad;
    std::vector<Tensor> result(bias_.values.size());
    for (std::size_t n = 0; n < products_.all.size(); ++n) {
      const Product& product = products_.all[n];
      const std::size_t place = bias_.place_of(product.term);
      if (const Tensor x = to_[n].operand; x.defined()) {
        if (product.has_operand)
          result[place + 1] = (bias_.values[place + 1].dim() == 3 && packed_ ? x.transpose(1, 2) : x)
                                  .reshape(bias_.values[place + 1].sizes());
        else if (Tensor& sum = product.form.of_keys ? k : q; sum.defined()) sum.add_(x);
        to_[n].operand = {};
      }
      if (to_[n].sums.defined()) result[place] = table_gradient(n, bias_.values[place].sizes());
    }
    return result;
  }

 private:
  static constexpr std::int64_t most_bytes = std::int64_t{64} << 20;  // of the groups' tables, if there are several
  // Of the sums that a thread computes before its turn. At T = 8,192 and D = 64 a step has 2.2 MB (Conformer).
  static constexpr std::size_t most_kept_bytes = std::size_t{4} << 20;

  /// Returns where the gradients of product n of a step go.
  kernels::RelativeGradient places(const Step& step, const AttentionProblem& p, std::size_t n) const {
    const ProductGradient& of = to_[n];
    const std::int64_t size = size_of(products_.all[n].table.dtype());
    kernels::RelativeGradient to;
    if (of.operand.defined()) {
      const std::int64_t head = step.rows.head / (p.q_heads / products_.all[n].form.operand_heads);
      to.operand = static_cast<char*>(of.operand.data()) +
                   (step.rows.batch * of.operand.stride(0) + head * of.operand.stride(1)) * size;
    }
    if (of.sums.defined())
      to.table = static_cast<char*>(of.sums.data()) +
                 ((step.group - first_group_) * of.sums.stride(0) + step.rows.head * of.sums.stride(1)) * size;
    return to;
  }
  /// Returns the sums over all groups; for one table of all heads those of the heads added, ascending.
  Tensor table_gradient(std::size_t n, const Dims& sizes) const {
    const Tensor& by_head = to_[n].table;
    if (!by_head.defined() || by_head.numel() == 0) return zeros(sizes, products_.all[n].table.dtype());
    if (by_head.size(0) == 1 || products_.all[n].form.table_stride != 0) return by_head.reshape(sizes);
    const Tensor sum = zeros({by_head.size(1), by_head.size(2)}, by_head.dtype());
    for (std::int64_t h = 0; h < by_head.size(0); ++h) sum.add_(by_head.select(0, h));
    return sum.reshape(sizes);
  }

  const Products& products_;
  const LoweredBias& bias_;
  bool packed_;
  std::int64_t groups_;
  TileProducts tiles_;
  std::size_t dense_bytes_, kept_bytes_ = 0;
  std::int64_t together_ = std::int64_t{1} << 20, first_group_ = 0;
  std::vector<ProductGradient> to_;
};

}  // namespace

std::unique_ptr<RelativeGradients> gradients_of(const Products& products, const RelativeTerms::GradientCall& call,
                                                bool packed) {
  return std::make_unique<Gradients>(products, call, packed);
}

}  // namespace attn
