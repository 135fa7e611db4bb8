// src/attention/schedule/partial_backward.h: runs the backward pass of some keys or some rows of a call, in two passes,
// because no sum may be split: dQ of rows whose keys come in chunks, dK and dV of keys whose rows come in chunks.
#pragma once
#include "attention/schedule/backward_plan.h"
#include "attention/schedule/call_part.h"
#include "kernels/attention/backward_problem.h"

#include <functional>

namespace attn {

/// Tasks may run at the same time, in any order. Nothing is allocated. `rows.begins` and `rows.ends` of the gradient
/// say whether no keys were computed before, and none come later.
class PartialRows {
 public:
  /// Without dk and dv. `gradient`, `part` and the kernel of `plan` must outlive this object.
  PartialRows(const kernels::AttentionGradient& gradient, const BackwardPlan& plan, const CallPart& part);
  std::size_t scratch_bytes() const { return bytes_; }
  std::int64_t blocks() const;  // of a head
  std::int64_t tasks() const { return gradient_.problem.batch * gradient_.problem.q_heads * blocks(); }
  void run(std::int64_t task, void* scratch) const;

 private:
  const kernels::AttentionGradient& gradient_;
  const kernels::GradientKernel& kernel_;
  const CallPart& part_;
  std::size_t bytes_;
};

/// dK and dV of the keys. A unit is the query heads that share heads of K or V. Its heads follow each other, and the
/// rows of each ascend; so every chunk has all rows of a head, or a call has one head of each unit.
class PartialKeys {
 public:
  struct Chunk {
    bool begins = true;              // no rows came before: dK and dV begin at 0
    bool ends = true;                // no rows come later: dK and dV are final
    std::int64_t head_of_unit = -1;  // the head that is computed; -1: all
    float* totals = nullptr;         // [B][units] times totals_bytes, 64-byte aligned, if that is not 0
    // sets the operands of a head, unless they are in place
    std::function<void(kernels::AttentionGradient&, std::int64_t b, std::int64_t h)> place = {};
  };
  /// Without dq. gradient.rows.delta must be given. `threads`: for how many there should be tasks.
  PartialKeys(const kernels::AttentionGradient& gradient, const BackwardPlan& plan, const CallPart& part,
              const Chunk& chunk, int threads);
  static std::size_t totals_bytes(const kernels::AttentionGradient& gradient, const BackwardPlan& plan);
  static std::int64_t units(const kernels::AttentionProblem& problem);
  std::size_t scratch_bytes() const { return bytes_; }
  std::int64_t tasks() const { return gradient_.problem.batch * units_ * ranges_; }
  void run(std::int64_t task, void* scratch) const;

 private:
  void clear(const kernels::AttentionGradient& g, std::int64_t b, std::int64_t unit, std::int64_t begin,
             std::int64_t end) const;
  void finish(const kernels::AttentionGradient& g, std::int64_t b, std::int64_t unit, std::int64_t begin,
              std::int64_t end) const;
  void head(const kernels::AttentionGradient& g, kernels::Sequence& keys, std::int64_t b, std::int64_t h,
            void* scratch) const;

  const kernels::AttentionGradient& gradient_;
  const kernels::GradientKernel& kernel_;
  const CallPart& part_;
  const Chunk& chunk_;
  std::int64_t units_, heads_of_unit_, ranges_;
  std::size_t bytes_;
};

}  // namespace attn
