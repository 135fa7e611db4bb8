// src/attention/schedule/backward_steps.h: the backward pass split into steps of 64 rows, and which steps may run at
// the same time.
#pragma once
#include "attention/score/dropout.h"
#include "kernels/attention/backward_problem.h"
#include "runtime/progress.h"

#include <atomic>
#include <optional>
#include <span>

namespace attn {

/// A kernel of the backward pass.
struct BackwardPlan {
  const char* name = "ref";
  const kernels::GradientKernel* kernel = nullptr;
};
/// The first that takes the problem; the last, the reference, takes everything in f32 and f64. Of bf16 without a kernel
/// of its own: none.
BackwardPlan plan_backward(const kernels::AttentionProblem& problem);

/// Rows of a batch item, or of a part of one, in blocks of 64.
struct BackwardSegment {
  const kernels::Sequence* sequence = nullptr;
  const kernels::MaskNode* mask = nullptr;  // the nodes that hold in it
  std::int64_t batch = 0, rows_begin = 0, rows_end = 0;
  std::int64_t first_block = 0;  // among the call's
  std::int64_t blocks() const { return (rows_end - rows_begin + kernels::query_block - 1) / kernels::query_block; }
};
/// Pieces side by side whose rows may see the same keys.
struct GradientGroup {
  std::int64_t first_segment = 0, segments = 0, first_block = 0, blocks = 0;
};

/// Query heads that share a head of K or V are, for one group of rows, a unit: its steps add to the same rows of dK and
/// dV, head after head, block of rows after block of rows. Units are independent. Allocates nothing.
class BackwardSteps {
 public:
  struct Partition {
    std::span<const BackwardSegment> segments;
    std::span<const GradientGroup> groups;
  };
  /// `dropout`: may be null.
  BackwardSteps(const kernels::AttentionGradient& gradient, const BackwardPlan& plan, const Partition& partition,
                const DropoutTiles* dropout);

  std::size_t scratch_bytes() const { return kernel_bytes_ + keep_bytes_ + totals_bytes_ + copy_bytes_; }
  std::int64_t units() const { return static_cast<std::int64_t>(partition_.groups.size()) * shared_heads_; }
  std::int64_t steps() const {
    return partition_.groups.empty() || shared_heads_ == 0 ? 0 : blocks() * gradient_.problem.q_heads;
  }
  std::int64_t blocks() const {
    return partition_.groups.empty() ? 0 : partition_.groups.back().first_block + partition_.groups.back().blocks;
  }
  /// Too few units for so many threads: they share the steps of each as a wave. The bits are the same.
  bool is_wave(int threads) const {
    if (threads == 1 || one_step_each()) return false;
    return order_ == Order::steps || (units() % threads != 0 && units() < 4 * threads);
  }
  /// Whether so many items like those of this call may be a wave, on that many threads or fewer.
  bool may_be_wave(std::int64_t items, int threads) const {
    return order_of_shared(items) == Order::steps || items * units() < 4 * threads;
  }

  /// All steps of a unit, one after another.
  void unit(std::int64_t unit, char* scratch) const;

  /// Where units add to the same elements of a dense bias's gradient: in the order of units, a step after the same step
  /// of the unit before. Of calls like that a wave is in order by itself.
  bool in_order(int threads) const { return threads > 1 && order_ != Order::any; }

  /// What the threads of a wave, or of units in order, share.
  struct Wave {
    runtime::Progress* progress;               // [steps], at 0
    std::atomic<std::uint32_t>* to_recompute;  // [units], at 0: some number is not finite
    char* totals = nullptr;                    // wave_bytes, of any content
    std::atomic<std::int64_t> next{0};
  };
  /// The next unit, where units are in order.
  void next_unit(Wave& wave, char* scratch) const;
  /// Steps as a wave: each call takes the next step, in order, and hands keys on to the step after.
  std::size_t wave_bytes() const { return static_cast<std::size_t>(units()) * totals_bytes_; }
  void wave_step(Wave& wave, char* scratch) const;
  /// After the wave: sums rounded; once more by the specification where a number was not finite.
  void recompute(const Wave& wave, std::int64_t unit, char* scratch) const;

 private:
  struct Step {
    std::int64_t unit, in_unit;
    const BackwardSegment* segment;
    kernels::GradientRows rows;
  };
  Step step_of_unit(std::int64_t unit, std::int64_t in_unit) const;
  Step step(std::int64_t index) const;
  std::int64_t steps_of_unit(std::int64_t unit) const;
  /// The piece that has the block, from piece `n` on, and the block's rows of head h.
  Step rows_of_block(std::int64_t n, std::int64_t block, std::int64_t h) const;
  /// `gradient`: this call's, or with the unit's copies; `totals`: of the unit, where the kernel rounds at the end.
  bool run(const kernels::AttentionGradient& gradient, const Step& step, const kernels::StepOrder& step_order,
           char* scratch, char* totals) const;
  /// `wave`: of units in order, or null.
  bool run_unit(std::int64_t unit, char* scratch, Wave* wave) const;
  /// The whole unit again by the specification; biases have theirs.
  void run_again(std::int64_t unit, char* scratch) const;
  /// The first step of a unit among the call's.
  std::int64_t first_step(std::int64_t unit) const;
  /// 0 in the rows that no step has, and in what steps add to: of keys that none of them begins.
  void clear_unit(std::int64_t unit, char* totals, bool keys_too = true) const;
  /// Whether a unit has one head of K and one of V; then its steps, one after another, may begin the sums of its keys
  /// themselves.
  bool one_key_head() const { return gradient_.problem.k_heads == gradient_.problem.v_heads; }
  bool begins_keys() const { return kernel_.clear_keys != nullptr && one_key_head(); }
  /// dk and dv from the totals, of the keys from `begin` on.
  void finish_unit(std::int64_t unit, char* totals, std::int64_t begin) const;
  char* totals_of(const Wave& wave, std::int64_t unit) const {
    return totals_bytes_ != 0 ? wave.totals + static_cast<std::size_t>(unit) * totals_bytes_ : nullptr;
  }
  kernels::AttentionGradient with_totals(const kernels::AttentionGradient& gradient, std::int64_t unit,
                                         char* totals) const;
  /// K and V of the unit side by side in `copies`, for all of its steps; none where they stay in place.
  std::optional<kernels::AttentionGradient> with_copies(std::int64_t unit, char* copies) const;
  /// The gradient as the rows of a piece have it: their keys, their mask, the kept bytes of dropout where the kernel
  /// needs them.
  template <typename F>
  void with_rows(const kernels::AttentionGradient& gradient, const kernels::GradientKernel& kernel, const Step& step,
                 char* scratch, char* totals, F&& use) const;
  struct Keys {
    std::int64_t begin, end;
  };
  Keys keys_of(const BackwardSegment& segment) const;
  Keys keys_of(const GradientGroup& group) const;
  /// The order that units or steps must keep because they add to the same gradients.
  enum class Order : std::uint8_t { any, units, steps };
  Order order_of_shared(std::int64_t items) const;
  template <typename F>
  void for_each_sum(F&& sum) const;
  std::int64_t keys_apart(std::int64_t unit) const;
  /// Whether no unit has two steps, or none beside others that have some: in order, a step waits for the same step of
  /// another unit.
  bool one_step_each() const;
  /// Whether pieces of a batch item are apart: packed sequences.
  bool has_sequences() const { return !partition_.segments.empty() && partition_.segments[0].sequence != nullptr; }

  const kernels::AttentionGradient& gradient_;
  const kernels::GradientKernel& kernel_;
  Partition partition_;
  const DropoutTiles* dropout_;
  std::int64_t heads_of_unit_ = 1, shared_heads_ = 0;  // heads of a unit, units of a group
  Order order_ = Order::any;
  // Order::units: how many units ahead the one is that comes before
  std::int64_t unit_before_ = 1;
  std::size_t kernel_bytes_ = 0, keep_bytes_ = 0, totals_bytes_ = 0, copy_bytes_ = 0;
};

}  // namespace attn
