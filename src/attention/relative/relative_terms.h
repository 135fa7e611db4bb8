// src/attention/relative/relative_terms.h: the interface between a call with relative products and the code that
// computes them. A call has this object only if such a term was made, so a program that makes none links none of its
// code.
#pragma once
#include "attention/lower.h"
#include "kernels/attention/backward_problem.h"

#include <functional>
#include <memory>

namespace attn::kernels {
struct RelativeReference;  // kernels/relative_problem.h
}

namespace attn {

/// The operands of a call, as products multiply them.
struct RelativeOperands {
  const char* function;
  const Tensor &q, &k;  // [B, H, T, D]
  double scale;         // of the scores
  bool dot;             // whether the score is a (scaled) dot product
  bool cached;          // k has no rows: they are in a cache
  bool packed;          // tensors of rank 3 are [total, H, D]
};

/// The gradients of a call's relative products. Units of BackwardSteps are computed for several row groups together;
/// all units of these groups may run at the same time. If StepOrder::wait is given, the steps of a unit may too: each
/// adds to tables and rows of keys when the previous step has ended.
class RelativeGradients {
 public:
  virtual ~RelativeGradients() = default;
  /// Returns the bytes of scratch that a step needs in addition to the kernel's.
  virtual std::size_t scratch_bytes() const = 0;
  /// Returns how many row groups are summed at a time. begin_groups must be called before their units, end_groups
  /// after them.
  virtual std::int64_t groups_together() const = 0;
  virtual void begin_groups(std::int64_t first_group) = 0;
  virtual void end_groups(std::int64_t groups) = 0;

  /// A step whose rows are those of `group`.
  struct Step {
    const kernels::GradientKernel& kernel;
    const kernels::Task& rows;
    const kernels::StepOrder& order;
    std::int64_t group;
    bool again;  // the reference code recomputes it: the gradients of products are valid already
  };
  /// Runs the step with the products as bias terms. `memory`: scratch_bytes() bytes.
  virtual bool run(const kernels::AttentionGradient& gradient, const Step& step, void* scratch, void* memory) const = 0;
  /// Adds the gradients of products of q and k to `q` and `k`, and returns the others: one for each of the tensors in
  /// LoweredBias::values, undefined if it is not of a product or not wanted.
  virtual std::vector<Tensor> finish(Tensor& q, Tensor& k) = 0;
};

/// The relative products among a call's bias terms.
class RelativeTerms {
 public:
  virtual ~RelativeTerms() = default;
  /// Checks and adds term number n of the call.
  virtual void add(const Bias::Term& term, int n, const ScoreShape& shape, const Lengths& lengths, Dtype dtype) = 0;
  /// Sets the rows that products of q and k multiply, when the call has them.
  virtual void bind(const RelativeOperands& operands) = 0;

  /// The bytes of scratch that `rows` needs in addition to the kernel's, and how many of them computing a product
  /// needs.
  struct TileMemory {
    std::size_t bytes = 0, work = 0;
  };
  virtual TileMemory tile_memory(const kernels::AttentionProblem& problem, std::int64_t tile_rows) const = 0;
  /// Computes a task of the forward pass, `tile_rows` rows at a time: the products, then the kernel. `sizes`: of
  /// tile_memory() for the call. `memory`: sizes.bytes bytes.
  using Kernel = std::function<void(const kernels::AttentionProblem& problem, const kernels::Task& tile)>;
  virtual void rows(const Kernel& kernel, std::int64_t tile_rows, const kernels::AttentionProblem& problem,
                    const kernels::Task& tile, const TileMemory& sizes, void* memory) const = 0;
  /// What the backward pass of the call computes.
  struct GradientCall {
    const LoweredBias& bias;
    const kernels::AttentionGradient& gradient;
    const std::vector<bool>& wanted;  // which of the tensors in LoweredBias::values need a gradient
    bool k;                           // whether k needs one
    std::int64_t groups;              // of rows
    int threads;
  };
  virtual std::unique_ptr<RelativeGradients> gradients(const GradientCall& call) const = 0;
  /// From now on the products and their gradients are made by their definition (`attn verify`).
  virtual void use(const kernels::RelativeReference& definition) = 0;

  /// Returns whether term n is a product.
  virtual bool has(int n) const = 0;
  /// Returns the row of its table that belongs to the pair.
  virtual std::int64_t row_of(int n, const kernels::AttentionProblem& problem, const kernels::Task& task,
                              std::int64_t i, std::int64_t j) const = 0;
  /// Returns term n of all pairs by tensor operations: [B, Hq, Tq, Tk]. `places`: the table row (row_of) of each pair,
  /// [B, 1, Tq, Tk].
  virtual Tensor matrix(int n, const Tensor& table, const Tensor& operand, const Tensor& places) const = 0;
  virtual bool of_keys(int n) const = 0;
  virtual bool has_operand(int n) const = 0;
};

}  // namespace attn
