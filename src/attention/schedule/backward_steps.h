// src/attention/schedule/backward_steps.h: splits the backward pass into steps of 64 rows and decides which steps may
// run at the same time.
#pragma once
#include "attention/score/dropout.h"
#include "kernels/attention/backward_problem.h"
#include "runtime/progress.h"

#include <atomic>
#include <optional>
#include <span>

namespace attn {

/// A kernel of the backward pass and its name.
struct BackwardPlan {
  const char* name = "ref";
  const kernels::GradientKernel* kernel = nullptr;
};
/// Returns the first kernel that accepts the problem. The last one, the reference code, accepts everything in f32 and
/// f64. For bf16 without its own kernel: none.
BackwardPlan plan_backward(const kernels::AttentionProblem& problem);

/// Rows of a batch item, or of one of its sequences, in blocks of 64.
struct BackwardSegment {
  const kernels::Sequence* sequence = nullptr;
  const kernels::MaskNode* mask = nullptr;  // the mask nodes that apply in it
  std::int64_t batch = 0, rows_begin = 0, rows_end = 0;
  std::int64_t first_block = 0;  // index among the blocks of the call
  std::int64_t blocks() const { return (rows_end - rows_begin + kernels::query_block - 1) / kernels::query_block; }
};
/// Consecutive segments whose rows may see the same keys.
struct GradientGroup {
  std::int64_t first_segment = 0, segments = 0, first_block = 0, blocks = 0;
};

/// A unit consists of the query heads that share a head of K or V, for one group of rows. Its steps add to the same
/// rows of dK and dV in a fixed order: heads ascending, blocks of rows ascending. Units are independent. Allocates
/// nothing.
class BackwardSteps {
 public:
  struct Partition {
    std::span<const BackwardSegment> segments;
    std::span<const GradientGroup> groups;
  };
  /// `dropout` may be null.
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
  /// Returns whether there are too few units for the threads, so that the threads share the steps of each unit as a
  /// wave. The bits are the same.
  bool is_wave(int threads) const {
    if (threads == 1 || one_step_each()) return false;
    return order_ == Order::steps || (units() % threads != 0 && units() < 4 * threads);
  }
  /// Returns whether `items` batch items like those of this call may run as a wave on `threads` or fewer threads.
  bool may_be_wave(std::int64_t items, int threads) const {
    return order_of_shared(items) == Order::steps || items * units() < 4 * threads;
  }

  /// Runs all steps of a unit, one after another.
  void unit(std::int64_t unit, char* scratch) const;

  /// Returns whether units must run in order, because they add to the same elements of a dense bias's gradient: a step
  /// runs after the same step of the unit before. In a wave of such a call the order holds anyway.
  bool in_order(int threads) const { return threads > 1 && order_ != Order::any; }

  /// State that is shared by the threads of a wave, or of units in order.
  struct Wave {
    runtime::Progress* progress;               // [steps], initially 0
    std::atomic<std::uint32_t>* to_recompute;  // [units], initially 0; 1: some number is not finite
    char* totals = nullptr;                    // wave_bytes, any initial content
    std::atomic<std::int64_t> next{0};
  };
  /// Runs the next unit, if units run in order.
  void next_unit(Wave& wave, char* scratch) const;
  /// Runs steps as a wave: each call of wave_step takes the next step in order and releases its keys to the step after
  /// it.
  std::size_t wave_bytes() const { return static_cast<std::size_t>(units()) * totals_bytes_; }
  void wave_step(Wave& wave, char* scratch) const;
  /// Called after the wave: rounds the sums, and recomputes the unit by the reference code if a number was not finite.
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
  /// Finds the segment that contains the block, from segment `n` on, and returns the block's rows of head h.
  Step rows_of_block(std::int64_t n, std::int64_t block, std::int64_t h) const;
  /// `gradient`: this call's, or one with the unit's copies. `totals`: those of the unit, if the kernel rounds only at
  /// the end.
  bool run(const kernels::AttentionGradient& gradient, const Step& step, const kernels::StepOrder& step_order,
           char* scratch, char* totals) const;
  /// `wave`: the shared state if units run in order, else null.
  bool run_unit(std::int64_t unit, char* scratch, Wave* wave) const;
  /// Recomputes the whole unit by the reference code, except the gradients of biases, which are already final.
  void run_again(std::int64_t unit, char* scratch) const;
  /// Returns the index of the unit's first step among the steps of the call.
  std::int64_t first_step(std::int64_t unit) const;
  /// Sets to 0 the rows of dq that no step computes. With `keys_too` also the sums of the unit's keys: `totals`, or dk
  /// and dv if `totals` is null.
  void clear_unit(std::int64_t unit, char* totals, bool keys_too = true) const;
  /// Returns whether a unit has one head of K and one of V. If so, and its steps run one after another, the steps may
  /// initialise the sums of its keys themselves.
  bool one_key_head() const { return gradient_.problem.k_heads == gradient_.problem.v_heads; }
  bool begins_keys() const { return kernel_.clear_keys != nullptr && one_key_head(); }
  /// Writes dk and dv from the totals, for the keys from `begin` on.
  void finish_unit(std::int64_t unit, char* totals, std::int64_t begin) const;
  char* totals_of(const Wave& wave, std::int64_t unit) const {
    return totals_bytes_ != 0 ? wave.totals + static_cast<std::size_t>(unit) * totals_bytes_ : nullptr;
  }
  kernels::AttentionGradient with_totals(const kernels::AttentionGradient& gradient, std::int64_t unit,
                                         char* totals) const;
  /// Copies K and V of the unit to contiguous memory, `copies`, for all of its steps; nullopt if they are used in
  /// place.
  std::optional<kernels::AttentionGradient> with_copies(std::int64_t unit, char* copies) const;
  /// Calls `use` with the gradient limited to the rows of a segment: their keys, their mask, and the kept bytes of
  /// dropout if the kernel needs them.
  template <typename F>
  void with_rows(const kernels::AttentionGradient& gradient, const kernels::GradientKernel& kernel, const Step& step,
                 char* scratch, char* totals, F&& use) const;
  struct Keys {
    std::int64_t begin, end;
  };
  Keys keys_of(const BackwardSegment& segment) const;
  Keys keys_of(const GradientGroup& group) const;
  /// The order that units or steps must keep, because they add to the same gradients.
  enum class Order : std::uint8_t { any, units, steps };
  Order order_of_shared(std::int64_t items) const;
  template <typename F>
  void for_each_sum(F&& sum) const;
  std::int64_t keys_apart(std::int64_t unit) const;
  /// Returns whether no unit has more than one step; a wave is then of no use.
  bool one_step_each() const;
  /// Returns whether segments are packed sequences or documents.
  bool has_sequences() const { return !partition_.segments.empty() && partition_.segments[0].sequence != nullptr; }

  const kernels::AttentionGradient& gradient_;
  const kernels::GradientKernel& kernel_;
  Partition partition_;
  const DropoutTiles* dropout_;
  std::int64_t heads_of_unit_ = 1, shared_heads_ = 0;  // heads of a unit, units of a group
  Order order_ = Order::any;
  // Order::units: how many units before this one the unit is that it waits for.
  std::int64_t unit_before_ = 1;
  std::size_t kernel_bytes_ = 0, keep_bytes_ = 0, totals_bytes_ = 0, copy_bytes_ = 0;
};

}  // namespace attn
