// src/attention/schedule/backward_steps.h: splits the backward pass into steps of 64 rows and decides which steps may
// run at the same time.
#pragma once
#include "attention/relative/relative_terms.h"
#include "attention/schedule/backward_plan.h"
#include "attention/score/dropout.h"
#include "kernels/attention/backward_problem.h"
#include "runtime/progress.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <span>

namespace attn {

/// The rows of a batch item, or of one of its sequences, in blocks of 64.
struct BackwardSegment {
  const kernels::Sequence* sequence = nullptr;
  const kernels::MaskNode* mask = nullptr;  // the mask nodes that apply to these rows
  std::int64_t batch = 0, rows_begin = 0, rows_end = 0;
  std::int64_t first_block = 0;  // the index of its first block among the blocks of the call
  std::int64_t blocks() const { return (rows_end - rows_begin + kernels::query_block - 1) / kernels::query_block; }
};
/// Consecutive segments whose rows may see the same keys.
struct GradientGroup {
  std::int64_t first_segment = 0, segments = 0, first_block = 0, blocks = 0;
};

/// The backward pass consists of units. A unit is the work of the query heads that share a head of K or V, for one
/// group of rows. A step is the part of one head and one block of rows. The steps of a unit add to the same rows of dK
/// and dV in a fixed order: heads ascending, blocks of rows ascending. Different units write different rows of dK and
/// dV. Nothing is allocated.
class BackwardSteps {
 public:
  struct Partition {
    std::span<const BackwardSegment> segments;
    std::span<const GradientGroup> groups;
  };
  /// `dropout` and `products` may be null. `gradient` and the kernel of `plan` must outlive this object.
  BackwardSteps(const kernels::AttentionGradient& gradient, const BackwardPlan& plan, const Partition& partition,
                const DropoutTiles* dropout, const RelativeGradients* products = nullptr);

  /// Sets the distance in heads between a thread's current head and its next one: the number of threads if they take
  /// units in order, else 1.
  void set_heads_ahead(std::int64_t heads) { hints_.heads_ahead = heads; }

  std::size_t scratch_bytes() const {
    return products_begin() + (products_ == nullptr ? 0 : products_->scratch_bytes());
  }
  std::int64_t groups() const { return static_cast<std::int64_t>(partition_.groups.size()); }
  /// Consecutive groups, with their units and steps.
  struct Part {
    std::int64_t groups, first_unit, units, first_step, steps;
  };
  Part part(std::int64_t group, std::int64_t groups) const;
  std::int64_t units() const { return static_cast<std::int64_t>(partition_.groups.size()) * shared_heads_; }
  std::int64_t steps() const {
    return partition_.groups.empty() || shared_heads_ == 0 ? 0 : blocks() * gradient_.problem.q_heads;
  }
  std::int64_t blocks() const {
    return partition_.groups.empty() ? 0 : partition_.groups.back().first_block + partition_.groups.back().blocks;
  }
  /// Returns whether the pass runs as a wave: threads take steps in order and share the steps of a unit. This is so if
  /// there are too few units for the threads, or if all steps must run in order. The bits are the same.
  bool is_wave(int threads) const {
    if (threads == 1 || one_step_each()) return false;
    const std::int64_t units = units_together();
    return order_ == Order::steps || (units % threads != 0 && units < 4 * threads);
  }
  /// Returns whether `items` batch items like those of this call may run as a wave on `threads` or fewer threads.
  bool may_be_wave(std::int64_t items, int threads) const {
    return order_of_shared(items) == Order::steps || items * units() < 4 * threads;
  }

  /// Runs all steps of a unit, one after another.
  void unit(std::int64_t unit, char* scratch) const;

  /// Returns whether units must run in order, because they add to the same elements of the gradient of a dense bias or
  /// a looked-up tensor: each step runs behind the same step of the last earlier unit that does so. A wave keeps this
  /// order in any case.
  bool in_order(int threads) const { return threads > 1 && order_ != Order::any; }

  /// The state that the threads of a wave share, or the threads that run units in order.
  struct Wave {
    runtime::Progress* progress;               // [steps], initially 0
    std::atomic<std::uint32_t>* to_recompute;  // [units], initially 0; 1: some number of the unit is not finite
    char* totals = nullptr;                    // wave_bytes() bytes; the content may be anything
    std::atomic<std::int64_t> next{0};
  };
  /// Takes the next unit and runs it; for units that run in order.
  void next_unit(Wave& wave, char* scratch) const;
  /// Returns the bytes of Wave::totals.
  std::size_t wave_bytes() const { return static_cast<std::size_t>(units()) * totals_bytes_; }
  /// Takes the next step of the wave and runs it. It tells the step after it as soon as it has finished a range of
  /// keys.
  void wave_step(Wave& wave, char* scratch) const;
  /// Must be called for each unit after the wave: rounds the unit's sums, and recomputes the unit by the reference code
  /// if a number was not finite.
  void recompute(const Wave& wave, std::int64_t unit, char* scratch) const;

 private:
  struct Step {
    std::int64_t unit, in_unit;
    const BackwardSegment* segment;
    kernels::Task rows;
  };
  Step step_of_unit(std::int64_t unit, std::int64_t in_unit) const;
  Step step(std::int64_t index) const;
  std::int64_t steps_of_unit(std::int64_t unit) const;
  /// Searches the segments from index `n` on for the one that contains the block, and returns the block's rows of head
  /// h.
  Step rows_of_block(std::int64_t n, std::int64_t block, std::int64_t h) const;
  /// Runs one step. `gradient`: that of this call, or one that refers to the unit's copies of K and V. `totals`: the
  /// unit's f32 sums of dK and dV, if the kernel rounds them only after the last step. Returns false if a number is not
  /// finite.
  bool run(const kernels::AttentionGradient& gradient, const Step& step, const kernels::StepOrder& step_order,
           char* scratch, char* totals) const;
  /// Runs all steps of a unit; returns false if a number is not finite. `wave`: the shared state if units run in order,
  /// else null.
  bool run_unit(std::int64_t unit, char* scratch, Wave* wave) const;
  /// Recomputes the whole unit by the reference code, except the gradients of dense biases and of the looked-up tensors
  /// to which steps add: these are valid already.
  void run_again(std::int64_t unit, char* scratch) const;
  std::size_t products_begin() const { return kernel_bytes_ + keep_bytes_ + totals_bytes_ + copy_bytes_; }
  /// Returns the index of the unit's first step among the steps of the call.
  std::int64_t first_step(std::int64_t unit) const;
  /// Sets to 0 the rows of dq that no step computes. With `keys_too` it also clears the sums of the unit's keys:
  /// `totals`, or dk and dv if `totals` is null.
  void clear_unit(std::int64_t unit, char* totals, bool keys_too = true) const;
  /// Returns whether a unit has one head of K and one of V. If so, and if its steps run one after another, the first
  /// step that reaches a key may initialise its sums.
  bool one_key_head() const { return gradient_.problem.k_heads == gradient_.problem.v_heads; }
  bool begins_keys() const { return kernel_.clear_keys != nullptr && one_key_head(); }
  /// Writes dk and dv from the totals, for the keys from `begin` on.
  void finish_unit(std::int64_t unit, char* totals, std::int64_t begin) const;
  char* totals_of(const Wave& wave, std::int64_t unit) const {
    return totals_bytes_ != 0 ? wave.totals + static_cast<std::size_t>(unit) * totals_bytes_ : nullptr;
  }
  kernels::AttentionGradient with_totals(const kernels::AttentionGradient& gradient, std::int64_t unit,
                                         char* totals) const;
  /// Copies K and V of the unit to the contiguous memory `copies`, which all of its steps then read; nullopt if K and V
  /// are read in place.
  std::optional<kernels::AttentionGradient> with_copies(std::int64_t unit, char* copies) const;
  /// Calls use(gradient, task): the gradient with the mask of the step's segment, and the step's rows with the bytes of
  /// dropout if the kernel reads such bytes.
  template <typename F>
  void with_rows(const kernels::AttentionGradient& gradient, const kernels::GradientKernel& kernel, const Step& step,
                 char* scratch, char* totals, F&& use) const;
  const GradientGroup& group_of(std::int64_t unit) const {
    return partition_.groups[static_cast<std::size_t>(unit / shared_heads_)];
  }
  std::span<const BackwardSegment> segments_of(const GradientGroup& group) const {
    return partition_.segments.subspan(static_cast<std::size_t>(group.first_segment),
                                       static_cast<std::size_t>(group.segments));
  }
  std::int64_t batch_of(std::int64_t unit) const { return segments_of(group_of(unit))[0].batch; }
  std::int64_t first_head(std::int64_t unit) const { return unit % shared_heads_ * heads_of_unit_; }
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
  /// Returns whether no unit has more than one step. A wave then gains nothing.
  bool one_step_each() const;
  /// Returns how many units may run at the same time.
  std::int64_t units_together() const {
    return products_ == nullptr ? units() : std::min(products_->groups_together(), groups()) * shared_heads_;
  }
  /// Returns whether segments are packed sequences or documents.
  bool has_sequences() const { return !partition_.segments.empty() && partition_.segments[0].sequence != nullptr; }

  const kernels::AttentionGradient& gradient_;
  const kernels::GradientKernel &kernel_, &reference_;
  Partition partition_;
  const DropoutTiles* dropout_;
  const RelativeGradients* products_;                  // null: none
  std::int64_t heads_of_unit_ = 1, shared_heads_ = 0;  // query heads of a unit; units of a group
  Order order_ = Order::any;
  kernels::ScheduleHints hints_;
  // If units run in order, each step of unit n stays behind the same step of unit n - unit_before_, the last earlier
  // unit that adds to the same elements: 1 if heads share them, else shared_heads_.
  std::int64_t unit_before_ = 1;
  std::size_t kernel_bytes_ = 0, keep_bytes_ = 0, totals_bytes_ = 0, copy_bytes_ = 0;
};

}  // namespace attn
