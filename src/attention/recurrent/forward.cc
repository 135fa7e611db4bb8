// src/attention/recurrent/forward.cc: runs linear attention with a state: sequences, heads and slices of columns are
// the tasks.
#include <attn/ops.h>
#include <attn/runtime.h>

#include "attention/recurrent/rows.h"
#include "runtime/parallel.h"
#include "runtime/thread_scratch.h"
#include "tensor/rows.h"

namespace attn {

ColumnSlices::ColumnSlices(std::int64_t value_dim, std::int64_t heads) : width(64) {
  const std::int64_t columns = padded_lanes(value_dim);
  // narrower slices if 64 columns would leave threads idle; each slice reads its keys again
  while (width > kernels::recurrent_lanes && heads * ((columns + width - 1) / width) < 2 * num_threads()) width /= 2;
  width = std::min(width, columns);
  count = (columns + width - 1) / width;
}

Tensor kept_states(const RecurrentCall& call) {
  return empty({call.chunks, call.v_heads, call.dim, call.value_dim}, call.compute);
}

namespace {

/// Copies `count` columns of a state [dim, columns] to or from the rows of `state`.
template <typename T>
void copy_columns(const T* from, std::int64_t from_stride, T* to, std::int64_t to_stride, std::int64_t rows,
                  std::int64_t count) {
  for (std::int64_t d = 0; d < rows; ++d) std::copy_n(from + d * from_stride, count, to + d * to_stride);
}

template <typename T>
void run_slice(const RecurrentCall& call, const kernels::RecurrentKernels& kernels, std::int64_t n, std::int64_t h,
               std::int64_t c, std::int64_t columns, const Tensor& states, const LinearAttentionResult& result) {
  constexpr std::int64_t chunk = kernels::recurrent_chunk;
  const RecurrentSequence& sequence = call.sequences[static_cast<std::size_t>(n)];
  const std::int64_t dim = call.dim, width = call.value_dim, count = std::min(columns, width - c);
  const std::int64_t head = (n * call.v_heads + h) * dim * width + c;
  const std::int64_t most = std::min(chunk, sequence.rows);  // a call of one row, as a model generates, prepares one
  const std::int64_t shared = HeadRows<T>::items(call, most);
  auto* scratch = static_cast<T*>(
      runtime::thread_scratch(sizeof(T) * static_cast<std::size_t>(shared + (dim + 2 * most) * columns)));
  HeadRows<T> keys(call, scratch, most);
  T *state = scratch + shared, *values = state + dim * columns, *outputs = values + most * columns;
  std::fill(call.initial.defined() && count == columns ? values : state, outputs, T(0));
  if (call.initial.defined()) copy_columns(call.initial.data<T>() + head, width, state, columns, dim, count);
  for (std::int64_t t = 0; t < sequence.rows; t += chunk) {
    const std::int64_t rows = std::min(chunk, sequence.rows - t), first = sequence.first + t;
    if (states.defined())
      copy_columns<T>(state, columns,
                      states.data<T>() + ((sequence.chunk + t / chunk) * call.v_heads + h) * dim * width + c, width,
                      dim, count);
    keys.read(call, sequence.item, h, first, rows);
    read_values(call.v, sequence.item, h, first, rows, c, count, values, columns);
    kernels::ForwardRows p;
    keys.fill(call, p, rows, columns);
    p.decayed_k = keys.decayed_k;
    p.v = values;
    p.state = state;
    p.output = outputs;
    kernels.forward(p);
    for (std::int64_t r = 0; r < rows; ++r)
      write_items(result.output, outputs + r * columns,
                  address(result.output, sequence.item, h, first + r) +
                      c * static_cast<std::int64_t>(size_of(result.output.dtype())),
                  count);
  }
  make_canonical(state, dim * columns);
  copy_columns<T>(state, columns, result.state.data<T>() + head, width, dim, count);
}

}  // namespace

LinearAttentionResult run_recurrent(const RecurrentCall& call, const kernels::RecurrentKernels& kernels,
                                    const Tensor& states) {
  // the output lies in memory as v does: [B, H, T, D] or [B, T, H, D]
  const bool by_rows = call.rows > 1 && call.v_heads > 1 && call.v.stride(1) < call.v.stride(2);
  LinearAttentionResult result{
      .output = by_rows ? empty({call.batch, call.rows, call.v_heads, call.value_dim}, call.q.dtype()).transpose(1, 2)
                        : empty({call.batch, call.v_heads, call.rows, call.value_dim}, call.q.dtype()),
      .state = empty(call.state_sizes(), call.compute)};
  std::int64_t covered = 0;
  for (const RecurrentSequence& sequence : call.sequences) covered += sequence.rows;
  if (covered < call.batch * call.rows) result.output.zero_();
  const auto sequences = static_cast<std::int64_t>(call.sequences.size());
  const ColumnSlices slices(call.value_dim, sequences * call.v_heads);
  runtime::parallel_for(sequences * call.v_heads * slices.count, [&](std::int64_t task) {
    const std::int64_t c = task % slices.count * slices.width, head = task / slices.count;
    const std::int64_t columns = std::min(slices.width, padded_lanes(call.value_dim) - c);
    with_compute_type(call.compute, [&]<typename T>(Type<T>) {
      run_slice<T>(call, kernels, head / call.v_heads, head % call.v_heads, c, columns, states, result);
    });
  });
  return result;
}

}  // namespace attn
