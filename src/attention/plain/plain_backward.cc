// src/attention/plain/plain_backward.cc: implements the backward pass of plain.h, which takes all its memory from the
// caller's workspace.
#include <attn/runtime.h>

#include "attention/schedule/backward_steps.h"
#include "attention/schedule/partial_backward.h"
#include "attention/plain/plain_call.h"
#include "runtime/floating_point.h"
#include "runtime/parallel.h"

#include <algorithm>
#include <memory>

namespace attn::plain {
namespace {

using kernels::AttentionGradient;

/// A call as the kernels read it; `g` points to the other members.
struct DescribedBackward {
  Described forward;
  kernels::DenseGradient dense;
  AttentionGradient g;

  explicit DescribedBackward(const AttentionBackward& call);
  DescribedBackward(const DescribedBackward&) = delete;
  DescribedBackward& operator=(const DescribedBackward&) = delete;
};

DescribedBackward::DescribedBackward(const AttentionBackward& call) {
  describe(call.forward, forward);
  g.problem = forward.problem;
  const auto set = [](std::int64_t(&stride)[3], const Strides& s) {
    stride[0] = s.batch, stride[1] = s.head, stride[2] = s.row;
  };
  set(g.dout_stride,
      or_contiguous(call.doutput_strides, call.forward.q_heads, call.forward.q_rows, call.forward.value_dim));
  set(g.dq_stride, or_contiguous(call.dq_strides, call.forward.q_heads, call.forward.q_rows, call.forward.dim));
  set(g.dk_stride, or_contiguous(call.dk_strides, call.forward.k_heads, call.forward.k_rows, call.forward.dim));
  set(g.dv_stride, or_contiguous(call.dv_strides, call.forward.v_heads, call.forward.k_rows, call.forward.value_dim));
  g.dout = call.doutput, g.dlogsumexp = call.dlogsumexp;
  g.dq = call.dq, g.dk = call.dk, g.dv = call.dv;
  g.rows = {call.dq_totals, call.delta, call.forward.begins, call.forward.ends};
  g.problem.totals = {};
  if (call.dbias == nullptr) return;
  const ScoreStrides bias = whole(call.forward, call.forward.bias_strides);
  dense = {.term = 0, .data = call.dbias, .stride = {bias.batch, bias.head, bias.row, bias.key}};
  g.dense = &dense, g.dense_count = 1;
}

/// Returns whether the call has some of the keys of its rows, or some of the rows of its keys.
bool is_piece(const AttentionBackward& call) {
  return !part_of(call.forward).is_whole() || !call.forward.begins || !call.forward.ends || call.delta != nullptr ||
         call.dq_totals != nullptr || call.key_totals != nullptr;
}

/// Checks a call with a part of the keys (if it has dq) or of the rows (else).
Status check_piece(const AttentionBackward& call) {
  const Attention& forward = call.forward;
  const bool rows = call.dq != nullptr;
  if (rows == (call.dk != nullptr || call.dv != nullptr) || call.dbias != nullptr) return Status::piece;
  if (forward.batch == 0 || forward.q_heads == 0) return Status::ok;
  if (rows)
    return (!forward.begins || !forward.ends) && !(call.dq_totals && call.delta) ? Status::totals_left_out : Status::ok;
  if (forward.key_start || forward.bottom_right || call.dsinks) return Status::piece;
  const bool by_position = forward.causal || forward.window_left >= 0 || forward.window_right >= 0,
             begins_alone = forward.begins && forward.top_left;  // its row 0 is row 0 of the sequence
  if (by_position && !(forward.begins && forward.ends) && !begins_alone && !forward.query_start)
    return Status::alignment;
  return call.delta == nullptr || (key_totals_bytes(call) > 0 && call.key_totals == nullptr) ? Status::totals_left_out
                                                                                             : Status::ok;
}

/// Returns the forward call of a piece in the form that `check` accepts. The totals are those of the backward pass, and
/// check_piece checks them. A piece of rows has all keys, so its forward call begins and ends.
Attention whole_call(const AttentionBackward& call) {
  Attention forward = call.forward;
  forward.totals = {};
  if (call.dq != nullptr && !(forward.begins && forward.ends)) {
    static char checked_later;
    forward.totals = {&checked_later, &checked_later, &checked_later};
  } else {
    forward.begins = forward.ends = true;
  }
  if (call.dq == nullptr && forward.output == nullptr) forward.output = const_cast<void*>(call.doutput);  // not read
  return forward;
}

Status check(const AttentionBackward& call) {
  const Attention forward = is_piece(call) ? whole_call(call) : call.forward;
  if (const Status status = check(forward); status != Status::ok) return status;
  if (is_piece(call))
    if (const Status status = check_piece(call); status != Status::ok) return status;
  if (forward.element == Element::f16) return Status::element;
  for (const Status status :
       {check_rows(forward, call.doutput_strides, forward.q_heads, forward.q_rows, forward.value_dim),
        check_rows(forward, call.dq_strides, forward.q_heads, forward.q_rows, forward.dim),
        check_rows(forward, call.dk_strides, forward.k_heads, forward.k_rows, forward.dim),
        check_rows(forward, call.dv_strides, forward.v_heads, forward.k_rows, forward.value_dim)})
    if (status != Status::ok) return status;
  const bool rows = forward.batch > 0 && forward.q_heads > 0 && forward.q_rows > 0;
  const bool needs_dq = forward.dim > 0 && !(is_piece(call) && (call.dk || call.dv));
  if (rows && (!forward.max || !forward.sum || (forward.value_dim > 0 && !call.doutput) || (needs_dq && !call.dq)))
    return Status::null_saved;
  if ((call.dsinks && !forward.sinks) || (call.dbias && !forward.bias)) return Status::null_saved;
  return Status::ok;
}

/// Returns the largest number of threads that may work on a call; the workspace may have slots for fewer.
int most_threads(const Executor& executor) { return std::max(1, executor.run ? executor.threads : num_threads()); }

/// The steps of one batch item; the memory of the whole call is computed from them.
struct OneItem {
  BackwardSegment segment;
  GradientGroup group;
  BackwardSteps steps;

  OneItem(const AttentionGradient& g, const BackwardPlan& plan)
      : segment{.rows_end = g.problem.q_rows}, group{0, 1, 0, segment.blocks()},
        steps(g, plan, {{&segment, 1}, {&group, 1}}, nullptr) {}
  OneItem(const OneItem&) = delete;
  OneItem& operator=(const OneItem&) = delete;
};

/// The memory that a call needs besides the slots of its threads, taken from the workspace in order.
class Tables {
 public:
  Tables(const AttentionBackward& call, const BackwardSteps& item, int threads, void* memory)
      : next_(static_cast<char*>(memory)) {
    const Attention& forward = call.forward;
    const std::int64_t batch = std::max<std::int64_t>(forward.batch, 0),
                       blocks = (std::max<std::int64_t>(forward.q_rows, 0) + kernels::query_block - 1) /
                                kernels::query_block;
    const std::int64_t heads = std::max<std::int64_t>(forward.q_heads, 0);
    segments = take<BackwardSegment>(batch);
    groups = take<GradientGroup>(batch);
    progress = take<runtime::Progress>(batch * heads * blocks);
    to_recompute = take<std::atomic<std::uint32_t>>(batch * heads);
    parameters = take<char>(call.dsinks ? batch * heads * blocks * (forward.element == Element::f64 ? 8 : 4) : 0);
    // in a wave (BackwardSteps) the totals of all units are kept until the wave ends
    totals = take<char>(item.may_be_wave(batch, threads) ? batch * static_cast<std::int64_t>(item.wave_bytes()) : 0);
    if (memory == nullptr) return;
    for (std::int64_t b = 0; b < batch; ++b) {
      segments[b] = {.batch = b, .rows_begin = 0, .rows_end = forward.q_rows, .first_block = b * blocks};
      groups[b] = {b, 1, b * blocks, blocks};
    }
    std::uninitialized_default_construct_n(progress, batch * heads * blocks);
    std::uninitialized_value_construct_n(to_recompute, batch * heads);
  }
  std::size_t bytes() const { return bytes_; }

  BackwardSegment* segments;
  GradientGroup* groups;
  runtime::Progress* progress;
  std::atomic<std::uint32_t>* to_recompute;
  char* parameters;
  char* totals;

 private:
  template <typename X>
  X* take(std::int64_t count) {
    X* const taken = next_ == nullptr ? nullptr : reinterpret_cast<X*>(next_ + bytes_);
    bytes_ += runtime::aligned(static_cast<std::size_t>(count) * sizeof(X));
    return taken;
  }
  char* next_;
  std::size_t bytes_ = 0;
};

/// Runs part(index, scratch) for every index, in parallel; each task gets a slot of the workspace.
template <typename F>
void for_each_part(const Executor& executor, const Slots& slots, std::int64_t parts, F&& part) {
  struct Context {
    const Slots& slots;
    F& part;
  } context{slots, part};
  const auto run = [](void* at, std::int64_t index) {
    const runtime::DefaultFloatingPoint floating_point;
    const auto& [in, work] = *static_cast<Context*>(at);
    char* const scratch = in.take(index);
    work(index, scratch);
    in.give_back(scratch);
  };
  executor.run ? executor.run(executor.context, parts, run, &context) : runtime::parallel_for(parts, run, &context);
}

/// The pass of a piece, of keys or of rows: its scratch and its tasks.
class Piece {
 public:
  Piece(const AttentionBackward& call, const AttentionGradient& g, const BackwardPlan& plan, int threads)
      : part_(part_of(call.forward)), rows_of_(call.dq != nullptr), rows_(g, plan, part_),
        chunk_{.begins = call.forward.begins, .ends = call.forward.ends, .totals = first_line(call.key_totals)},
        keys_(g, plan, part_, chunk_, threads) {}
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  std::size_t scratch_bytes() const { return rows_of_ ? rows_.scratch_bytes() : keys_.scratch_bytes(); }
  std::int64_t tasks() const { return rows_of_ ? rows_.tasks() : keys_.tasks(); }
  std::int64_t blocks() const { return rows_.blocks(); }
  void run(std::int64_t task, void* scratch) const { rows_of_ ? rows_.run(task, scratch) : keys_.run(task, scratch); }

 private:
  static float* first_line(void* memory) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    return reinterpret_cast<float*>((address + runtime::alignment - 1) / runtime::alignment * runtime::alignment);
  }
  CallPart part_;
  bool rows_of_;
  PartialRows rows_;
  PartialKeys::Chunk chunk_;
  PartialKeys keys_;
};

/// Returns the bytes of the block sums for the gradient of the sinks.
std::size_t sink_bytes(const AttentionBackward& call, std::int64_t blocks) {
  if (call.dsinks == nullptr || !call.forward.ends) return 0;
  const std::size_t size = call.forward.element == Element::f64 ? 8 : 4;
  return runtime::aligned(static_cast<std::size_t>(call.forward.batch * call.forward.q_heads * blocks) * size);
}

/// Sums the gradients of the sinks in a fixed order: batch items ascending, and in each its blocks of rows ascending.
template <typename T>
void sum_sinks(const AttentionGradient& g, std::int64_t blocks, T* to) {
  const T* from = static_cast<const T*>(g.parameters);
  std::fill_n(to, g.problem.q_heads, T(0));
  for (std::int64_t block = 0; block < blocks; ++block)
    for (std::int64_t h = 0; h < g.problem.q_heads; ++h) to[h] += *from++;
}

struct Workspace {
  void* memory;
  std::size_t bytes;
};
Status run_piece(const AttentionBackward& call, AttentionGradient& g, const BackwardPlan& plan,
                 const Workspace& workspace, const Executor& executor) {
  const Piece piece(call, g, plan, most_threads(executor));
  const std::size_t sums = sink_bytes(call, piece.blocks()),
                    skip =
                        (runtime::alignment - reinterpret_cast<std::uintptr_t>(workspace.memory) % runtime::alignment) %
                        runtime::alignment;
  if (workspace.memory == nullptr || workspace.bytes < sums + skip) return Status::small_workspace;
  char* const first = static_cast<char*>(workspace.memory) + skip;
  if (sums > 0) g.parameters = first;
  const Slots slots(first + sums, workspace.bytes - sums - skip, piece.scratch_bytes());
  if (slots.count() == 0) return Status::small_workspace;
  for_each_part(executor, slots, piece.tasks(), [&](std::int64_t task, char* scratch) { piece.run(task, scratch); });
  if (call.dsinks == nullptr || !call.forward.ends) return Status::ok;
  const std::int64_t blocks = call.forward.batch * piece.blocks();
  if (g.problem.element == kernels::Element::f64) sum_sinks(g, blocks, static_cast<double*>(call.dsinks));
  else sum_sinks(g, blocks, static_cast<float*>(call.dsinks));
  return Status::ok;
}

}  // namespace

std::size_t key_totals_bytes(const AttentionBackward& call) noexcept {
  try {
    const DescribedBackward described(call);
    const BackwardPlan plan = plan_backward(described.g.problem);
    if (plan.kernel == nullptr || described.g.problem.q_heads == 0) return 0;
    const std::size_t unit = PartialKeys::totals_bytes(described.g, plan);
    const std::int64_t units = call.forward.batch * PartialKeys::units(described.g.problem);
    return unit == 0 ? 0 : runtime::alignment + static_cast<std::size_t>(units) * unit;
  } catch (...) { return 0; }
}

std::size_t workspace_bytes(const AttentionBackward& call, const Executor& executor) noexcept {
  try {
    const DescribedBackward described(call);
    const BackwardPlan plan = plan_backward(described.g.problem);
    if (plan.kernel == nullptr) return 0;
    if (is_piece(call)) {
      const int threads = most_threads(executor);
      const Piece piece(call, described.g, plan, threads);
      return 2 * runtime::alignment + sink_bytes(call, piece.blocks()) +
             static_cast<std::size_t>(threads) * Slots::slot_bytes(piece.scratch_bytes());
    }
    const OneItem item(described.g, plan);
    const int threads = most_threads(executor);
    const std::size_t slot = Slots::slot_bytes(item.steps.scratch_bytes());
    return 2 * runtime::alignment + Tables(call, item.steps, threads, nullptr).bytes() +
           static_cast<std::size_t>(threads) * slot;
  } catch (...) { return 0; }
}

Status attention_backward(const AttentionBackward& call, void* workspace, std::size_t bytes,
                          const Executor& executor) noexcept {
  const runtime::DefaultFloatingPoint floating_point;
  try {
    if (const Status status = check(call); status != Status::ok) return status;
    DescribedBackward described(call);
    AttentionGradient& g = described.g;
    const BackwardPlan plan = plan_backward(g.problem);
    if (plan.kernel == nullptr) return Status::element;
    if (is_piece(call)) return run_piece(call, g, plan, {workspace, bytes}, executor);
    const OneItem item(g, plan);
    const int most = most_threads(executor);  // read once, because another thread may change the number meanwhile
    const std::size_t needed = Tables(call, item.steps, most, nullptr).bytes(),
                      skip = (runtime::alignment - reinterpret_cast<std::uintptr_t>(workspace) % runtime::alignment) %
                             runtime::alignment;
    if (workspace == nullptr || bytes < needed + skip) return Status::small_workspace;
    const Tables tables(call, item.steps, most, static_cast<char*>(workspace) + skip);
    const auto batch = static_cast<std::size_t>(call.forward.batch);
    if (call.dsinks) g.parameters = tables.parameters;
    const BackwardSteps steps(g, plan, {{tables.segments, batch}, {tables.groups, batch}}, nullptr);
    const Slots slots(static_cast<char*>(workspace) + skip + needed, bytes - needed - skip, steps.scratch_bytes());
    if (slots.count() == 0) return Status::small_workspace;

    const int threads = std::min(static_cast<int>(slots.count()), most);
    if (steps.is_wave(threads)) {
      BackwardSteps::Wave wave{tables.progress, tables.to_recompute, tables.totals};
      for_each_part(executor, slots, steps.steps(),
                    [&](std::int64_t, char* scratch) { steps.wave_step(wave, scratch); });
      for_each_part(executor, slots, steps.units(),
                    [&](std::int64_t unit, char* scratch) { steps.recompute(wave, unit, scratch); });
    } else if (steps.in_order(threads)) {
      BackwardSteps::Wave wave{tables.progress, tables.to_recompute};
      for_each_part(executor, slots, steps.units(),
                    [&](std::int64_t, char* scratch) { steps.next_unit(wave, scratch); });
    } else if (threads == 1) {  // one task, which keeps the units in order
      for_each_part(executor, slots, 1, [&](std::int64_t, char* scratch) {
        for (std::int64_t unit = 0; unit < steps.units(); ++unit) steps.unit(unit, scratch);
      });
    } else {
      for_each_part(executor, slots, steps.units(),
                    [&](std::int64_t unit, char* scratch) { steps.unit(unit, scratch); });
    }
    if (call.dsinks) {
      if (g.problem.element == kernels::Element::f64) sum_sinks(g, steps.blocks(), static_cast<double*>(call.dsinks));
      else sum_sinks(g, steps.blocks(), static_cast<float*>(call.dsinks));
    }
    return Status::ok;
  } catch (...) { return Status::failed; }
}

}  // namespace attn::plain
