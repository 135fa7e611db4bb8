// src/attention/plain/plain.cc: implements plain::attention: describes the caller's pointers as a problem and splits
// the caller's workspace into slots.
#include <attn/runtime.h>

#include "attention/plain/plain_call.h"
#include "attention/schedule/plan.h"
#include "runtime/floating_point.h"
#include "runtime/parallel.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace attn::plain {
namespace {

using kernels::AttentionProblem;

kernels::Element element_of(Element element) {
  switch (element) {
    case Element::f64: return kernels::Element::f64;
    case Element::bf16: return kernels::Element::bf16;
    case Element::f16: return kernels::Element::f16;
    default: return kernels::Element::f32;
  }
}

kernels::Broadcast4 broadcast(const void* data, const Attention& call, const ScoreStrides& given) {
  const ScoreStrides s = whole(call, given);
  return {data, {s.batch, s.head, s.row, s.key}};
}

Status check_lengths(const Attention& call) {
  constexpr std::int64_t far = std::int64_t{1} << 40;
  const auto inside = [&](const std::int64_t* lengths, std::int64_t least, std::int64_t most) {
    return lengths == nullptr ||
           std::all_of(lengths, lengths + call.batch, [&](std::int64_t n) { return n >= least && n <= most; });
  };
  const bool fits = inside(call.query_lengths, 0, call.q_rows) && inside(call.key_lengths, 0, call.k_rows) &&
                    inside(call.key_start, 0, call.k_rows) && inside(call.query_start, -far, far);
  return fits ? Status::ok : Status::bad_length;
}

/// Checks the fields for keys that come in pieces, and row_block_step.
Status check_piece(const Attention& call) {
  constexpr std::int64_t far = std::int64_t{1} << 40, span = 1024;
  const bool piece = !call.begins || !call.ends, placed = call.first_key != 0 || call.row_block_step != 64;
  const int given = (call.totals.max != nullptr) + (call.totals.sum != nullptr) +
                    (call.totals.output != nullptr || call.value_dim == 0);
  const bool rows = call.batch > 0 && call.q_heads > 0 && call.q_rows > 0;
  if ((piece && rows && given != 3) || (given != 3 && given > (call.value_dim == 0 ? 1 : 0)))
    return Status::totals_left_out;
  if (!piece && !placed) return Status::ok;
  if (call.first_key < 0 || call.first_key > far || call.first_key % span != 0 || call.row_block_step < 64 ||
      call.row_block_step > far || call.row_block_step % 64 != 0 || call.q_rows / 64 > far / call.row_block_step)
    return Status::piece;
  if ((!call.ends && call.k_rows % span != 0) || (call.begins && piece && call.first_key != 0)) return Status::piece;
  return call.key_start != nullptr || call.bottom_right ? Status::piece : Status::ok;
}

void describe_mask(const Attention& call, Described& to) {
  int count = 0;
  const auto add = [&](const kernels::MaskNode& node) {
    to.nodes[count++] = node;
    if (count > 1) to.nodes[count++] = {.op = kernels::MaskOp::op_and};
  };
  if (call.causal) add({.op = kernels::MaskOp::causal, .bottom_right = call.bottom_right});
  if (call.window_left >= 0 || call.window_right >= 0)
    add({.op = kernels::MaskOp::window,
         .left = std::min(call.window_left, kernels::farthest_key),
         .right = std::min(call.window_right, kernels::farthest_key),
         .bottom_right = call.bottom_right});
  if (call.mask) add({.op = kernels::MaskOp::dense, .dense = broadcast(call.mask, call, call.mask_strides)});
  to.problem.mask = {.nodes = to.nodes, .count = count};
}

}  // namespace

Strides or_contiguous(const Strides& strides, std::int64_t heads, std::int64_t rows, std::int64_t columns) {
  if (strides.batch != 0 || strides.head != 0 || strides.row != 0) return strides;
  return {heads * rows * columns, rows * columns, columns};
}

Status check_rows(const Attention& call, const Strides& s, std::int64_t heads, std::int64_t rows, std::int64_t width) {
  if ((s.batch == 0 && s.head == 0 && s.row == 0) || call.batch == 0 || heads == 0 || rows == 0) return Status::ok;
  bool short_stride = false;
  for (const auto& [count, stride] : {std::pair(call.batch, s.batch), {heads, s.head}, {rows, s.row}}) {
    if (count > 1 && stride == 0) return Status::stride_left_out;
    short_stride = short_stride || (count > 1 && stride < width && stride > -width);
  }
  return short_stride ? Status::short_stride : Status::ok;
}

ScoreStrides whole(const Attention& call, ScoreStrides s) {
  if (s.key != ScoreStrides::neighbours) return s;
  if (s.batch == 0 && s.head == 0 && s.row == 0)
    s = {call.q_heads * call.q_rows * call.k_rows, call.q_rows * call.k_rows, call.k_rows};
  s.key = 1;
  return s;
}

Status check(const Attention& call) {
  const std::int64_t sizes[] = {call.batch,  call.q_heads, call.k_heads, call.v_heads,
                                call.q_rows, call.k_rows,  call.dim,     call.value_dim};
  if (std::any_of(std::begin(sizes), std::end(sizes), [](std::int64_t size) { return size < 0; }))
    return Status::negative_size;
  for (const std::int64_t groups : {call.k_heads, call.v_heads})
    if (groups == 0 ? call.q_heads != 0 : call.q_heads % groups != 0) return Status::heads_do_not_divide;
  const bool rows = call.batch > 0 && call.q_heads > 0 && call.q_rows > 0, keys = rows && call.k_rows > 0;
  if ((rows && call.value_dim > 0 && !call.output) || (rows && call.dim > 0 && !call.q)) return Status::null_pointer;
  if ((keys && call.dim > 0 && !call.k) || (keys && call.value_dim > 0 && !call.v)) return Status::null_pointer;
  if (call.batch > 0 && call.q_heads > 0) {  // a size of 0 with a pointer means that the caller forgot the size
    if ((call.dim == 0 && (call.q || call.k)) || (call.value_dim == 0 && (call.v || call.output)))
      return Status::size_left_out;
    if ((call.q_rows == 0 && (call.q || call.output)) || (call.k_rows == 0 && (call.k || call.v)))
      return Status::size_left_out;
  }
  for (const Status status : {check_rows(call, call.q_strides, call.q_heads, call.q_rows, call.dim),
                              check_rows(call, call.k_strides, call.k_heads, call.k_rows, call.dim),
                              check_rows(call, call.v_strides, call.v_heads, call.k_rows, call.value_dim),
                              check_rows(call, call.output_strides, call.q_heads, call.q_rows, call.value_dim)})
    if (status != Status::ok) return status;
  const bool by_position = call.causal || call.window_left >= 0 || call.window_right >= 0;
  if (call.top_left && call.bottom_right) return Status::alignment;
  const bool whole = call.begins && call.ends && call.first_key == 0 && call.row_block_step == 64;
  if (by_position && (call.q_rows != call.k_rows || !whole) && !call.top_left && !call.bottom_right &&
      !call.query_start)
    return Status::alignment;
  if (const Status status = check_piece(call); status != Status::ok) return status;
  const auto in = [&](double x) {
    return call.element == Element::f64 ? x : static_cast<double>(static_cast<float>(x));
  };
  if (!(in(call.temperature) > 0) || std::isinf(in(call.temperature)) || !(in(call.softcap) >= 0) ||
      std::isinf(in(call.softcap)))
    return Status::bad_value;
  if (call.scale && !std::isfinite(in(*call.scale))) return Status::bad_value;
  if (call.window_left < -1 || call.window_right < -1) return Status::bad_value;
  if (call.element > Element::f16 || (call.bias && call.bias_element > Element::f16)) return Status::element;
  return check_lengths(call);
}

void describe(const Attention& call, Described& to) {
  const runtime::DefaultFloatingPoint floating_point;
  AttentionProblem& p = to.problem;
  p.batch = call.batch, p.q_heads = call.q_heads, p.k_heads = call.k_heads, p.v_heads = call.v_heads;
  p.q_rows = call.q_rows, p.k_rows = call.k_rows, p.dim = call.dim, p.value_dim = call.value_dim;
  p.element = p.k.element = p.v.element = element_of(call.element);
  const Strides q = or_contiguous(call.q_strides, call.q_heads, call.q_rows, call.dim);
  const Strides k = or_contiguous(call.k_strides, call.k_heads, call.k_rows, call.dim);
  const Strides v = or_contiguous(call.v_strides, call.v_heads, call.k_rows, call.value_dim);
  const Strides o = or_contiguous(call.output_strides, call.q_heads, call.q_rows, call.value_dim);
  p.q = call.q, p.q_stride[0] = q.batch, p.q_stride[1] = q.head, p.q_stride[2] = q.row;
  p.k.base = call.k, p.k.row_stride = k.row, p.k_stride[0] = k.batch, p.k_stride[1] = k.head;
  p.v.base = call.v, p.v.row_stride = v.row, p.v_stride[0] = v.batch, p.v_stride[1] = v.head;
  p.out = call.output, p.out_stride[0] = o.batch, p.out_stride[1] = o.head, p.out_stride[2] = o.row;
  p.logsumexp = call.logsumexp, p.max = call.max, p.sum = call.sum;
  p.totals = {call.totals.max, call.totals.sum, call.totals.output, call.begins, call.ends};
  p.scale = call.dim == 0 ? 1 : call.scale ? *call.scale : 1 / std::sqrt(static_cast<double>(call.dim));
  p.softcap = call.softcap;
  p.temperature = call.temperature;
  p.sinks = call.sinks;
  p.query_lengths = call.query_lengths, p.key_lengths = call.key_lengths, p.key_start = call.key_start,
  p.query_start = call.query_start;
  describe_mask(call, to);
  if (call.bias) {
    to.bias = {.element = element_of(call.bias_element), .dense = broadcast(call.bias, call, call.bias_strides)};
    p.bias = &to.bias;
    p.bias_count = 1;
  }
}

namespace {

struct Work {
  const AttentionProblem& problem;
  const AttentionKernel& kernel;
  const Slots& slots;
  std::int64_t query_tiles;
  CallPart part;
};

/// Computes a query tile whose rows or keys have positions of their own.
void part_of_rows(const Work& work, kernels::Task tile, char* scratch) {
  const kernels::Sequence sequence = work.part.sequence(work.problem, tile.batch, tile.row);
  tile.sequence = &sequence;
  work.kernel.rows(work.problem, tile, scratch);
}

void task(void* context, std::int64_t index) {
  const runtime::DefaultFloatingPoint floating_point;
  const Work& work = *static_cast<const Work*>(context);
  const std::int64_t begin = index % work.query_tiles * work.kernel.query_tile_rows, head = index / work.query_tiles;
  const std::int64_t end = std::min(begin + work.kernel.query_tile_rows, work.problem.q_rows);
  char* scratch = work.slots.take(index);
  const kernels::Task tile{head / work.problem.q_heads, head % work.problem.q_heads, 1, begin, end - begin};
  if (work.part.is_whole()) work.kernel.rows(work.problem, tile, scratch);
  else part_of_rows(work, tile, scratch);
  work.slots.give_back(scratch);
}

}  // namespace

const char* text_of(Status status) noexcept {
  switch (status) {
    case Status::ok: return "plain::attention: ok";
    case Status::negative_size: return "plain::attention: a size is negative; sizes are at least 0";
    case Status::heads_do_not_divide: return "plain::attention: k_heads and v_heads must each divide q_heads";
    case Status::null_pointer: return "plain::attention: q, k, v or output is null; all four are needed";
    case Status::bad_value:
      return "plain::attention: scale must be finite, temperature above 0, softcap at least 0, window_left and "
             "window_right at least -1";
    case Status::bad_length:
      return "plain::attention: query_lengths must be from 0 to q_rows, key_lengths and key_start from 0 to k_rows, "
             "query_start within 2^40";
    case Status::small_workspace:
      return "plain::attention: the workspace is too small for one thread; workspace_bytes says what is needed";
    case Status::element:
      return "plain::attention: element must be f32, f64, bf16 or f16; of attention_backward f32, f64, or bf16 where "
             "the processor has its dot product";
    case Status::null_saved:
      return "plain::attention_backward: max, sum, output, doutput and dq are needed, sinks for dsinks, bias for "
             "dbias; one is null";
    case Status::failed: return "plain::attention: the threads could not be used";
    case Status::size_left_out:
      return "plain::attention: q_rows, k_rows, dim or value_dim is 0 though a pointer to what it counts is given";
    case Status::stride_left_out:
      return "plain::attention: a stride of batch, head or row is 0 beside others; give each that counts more than "
             "one, or none";
    case Status::short_stride: return "plain::attention: a stride is below dim or value_dim, so that rows overlap";
    case Status::alignment:
      return "plain::attention: causal and windows need top_left, bottom_right or query_start if q_rows is not k_rows, "
             "and top_left or query_start for a piece; not top_left and bottom_right at once";
    case Status::totals_left_out:
      return "plain::attention: keys in pieces need totals.max, totals.sum and totals.output; of attention_backward "
             "dq_totals and delta beside dq, or delta and (bf16) key_totals beside dk or dv";
    case Status::piece:
      return "plain::attention: a piece begins at a first_key that is a multiple of 1024 (0 if it begins the keys) and "
             "has a multiple of 1024 keys unless it ends them, without key_start and bottom_right; row_block_step is a "
             "multiple of 64; a piece of attention_backward has dq, or dk and dv, and no dbias";
  }
  return "plain::attention: unknown status";
}

std::size_t workspace_bytes(const Attention& call, const Executor& executor) noexcept {
  try {
    Described described;
    describe(call, described);
    Plan plan;
    const AttentionKernel& kernel = plan_attention(described.problem, plan);
    const int threads = std::max(1, executor.run ? executor.threads : num_threads());
    return runtime::alignment +
           static_cast<std::size_t>(threads) * Slots::slot_bytes(kernel.scratch_bytes(described.problem));
  } catch (...) {  // num_threads() throws if the environment's number of threads is invalid
    return 0;
  }
}

Status attention(const Attention& call, void* workspace, std::size_t bytes, const Executor& executor) noexcept {
  try {
    if (const Status status = check(call); status != Status::ok) return status;
    Described described;
    describe(call, described);
    const AttentionProblem& problem = described.problem;
    Plan plan;
    const AttentionKernel& kernel = plan_attention(problem, plan);
    const Slots slots(workspace, bytes, kernel.scratch_bytes(problem));
    if (slots.count() == 0) return Status::small_workspace;
    Work work{problem, kernel, slots, (problem.q_rows + kernel.query_tile_rows - 1) / kernel.query_tile_rows,
              part_of(call)};
    const std::int64_t tasks = problem.batch * problem.q_heads * work.query_tiles;
    executor.run ? executor.run(executor.context, tasks, task, &work) : runtime::parallel_for(tasks, task, &work);
    return Status::ok;
  } catch (...) { return Status::failed; }
}

}  // namespace attn::plain
