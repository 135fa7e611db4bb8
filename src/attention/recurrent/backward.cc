// src/attention/recurrent/backward.cc: the gradients of linear attention with a state, a window of chunks at a time
// from the last rows to the first (docs/numerics.md section 9.2).
#include <attn/ops.h>
#include <attn/runtime.h>

#include "attention/recurrent/window.h"
#include "kernels/gemm/product.h"
#include "runtime/floating_point.h"
#include "runtime/parallel.h"
#include "runtime/thread_scratch.h"
#include "tensor/rows.h"

namespace attn {
namespace {

constexpr std::int64_t chunk = kernels::recurrent_chunk;

template <typename T>
struct Pass {
  const RecurrentCall& call;
  const kernels::RecurrentKernels& kernels;
  const Tensor &states, &grad_output, &grad_state;  // either gradient may be undefined
  const LinearAttentionGradients& to;
  Window<T>& window;
  ColumnSlices slices;

  struct Head {  // of the window: a sequence, and a head of v
    std::int64_t n, h;
    const RecurrentSequence& sequence;
  };
  Head head(std::int64_t of_window) const {
    const std::int64_t unit = window.first_unit + of_window / call.group(), n = unit / call.k_heads;
    return {n, unit % call.k_heads * call.group() + of_window % call.group(),
            call.sequences[static_cast<std::size_t>(n)]};
  }
  std::int64_t rows_of(const RecurrentSequence& sequence, std::int64_t number) const {
    return std::clamp<std::int64_t>(sequence.rows - number * chunk, 0, chunk);
  }

  /// Sets the gradient of the states after the last row.
  void begin(std::int64_t of_window) const {
    const Head at = head(of_window);
    T* to_state = window.state_gradient(of_window);
    std::fill_n(to_state, call.dim * window.columns, T(0));
    if (!grad_state.defined()) return;
    const T* from = grad_state.data<T>() + (at.n * call.v_heads + at.h) * call.dim * call.value_dim;
    for (std::int64_t d = 0; d < call.dim; ++d)
      std::copy_n(from + d * call.value_dim, call.value_dim, to_state + d * window.columns);
  }

  /// Computes some columns of a head through the chunks of the window: the updates u again, then the reverse
  /// recurrence.
  void run_columns(std::int64_t of_window, std::int64_t c) const {
    const Head at = head(of_window);
    const std::int64_t dim = call.dim, columns = std::min(slices.width, window.columns - c);
    const std::int64_t count = std::min(columns, call.value_dim - c), values = chunk * columns;
    auto* memory = static_cast<T*>(runtime::thread_scratch(
        sizeof(T) * static_cast<std::size_t>(HeadRows<T>::items(call) + 2 * dim * columns + 4 * values)));
    HeadRows<T> keys(call, memory);
    T *state = memory + HeadRows<T>::items(call), *gradient = state + dim * columns, *v = gradient + dim * columns,
      *error = v + values, *flow = error + values, *du = flow + values;
    std::fill(state, du + values, T(0));
    T* const kept = window.state_gradient(of_window) + c;
    for (std::int64_t d = 0; d < dim; ++d) std::copy_n(kept + d * window.columns, columns, gradient + d * columns);
    for (std::int64_t in_window = window.chunks; in_window-- > 0;) {
      const std::int64_t number = window.first_chunk + in_window, first = at.sequence.first + number * chunk;
      const std::int64_t rows = rows_of(at.sequence, number);
      if (rows == 0) continue;
      const Slot<T> slot = window.slot(of_window, in_window);
      const T* before = states.data<T>() + ((at.sequence.chunk + number) * call.v_heads + at.h) * dim * call.value_dim;
      for (std::int64_t d = 0; d < dim; ++d) {
        std::copy_n(before + d * call.value_dim + c, count, state + d * columns);
        std::copy_n(state + d * columns, columns, slot.state + d * window.columns + c);
        std::copy_n(gradient + d * columns, columns, slot.state_gradient + d * window.columns + c);
      }
      keys.read(call, at.sequence.item, at.h, first, rows);
      read_values(call.v, at.sequence.item, at.h, first, rows, c, count, v, columns);
      if (grad_output.defined()) read_values(grad_output, at.sequence.item, at.h, first, rows, c, count, flow, columns);
      if (call.has_delta()) {
        kernels::ForwardRows p;
        keys.fill(call, p, rows, columns);
        p.decayed_k = keys.decayed_k;
        p.v = v;
        p.state = state;
        p.error = error;
        kernels.forward(p);
      }
      kernels::ReverseRows p;
      keys.fill(call, p, rows, columns);
      p.output_gradient = flow;
      p.state_gradient = gradient;
      p.update_gradient = du;
      kernels.reverse(p);
      keep_rows(slot, keys, rows, c, columns, v, error, flow, du);
      for (std::int64_t t = 0; t < rows; ++t)  // v has become its gradient
        write_items(
            to.v, v + t * columns,
            address(to.v, at.sequence.item, at.h, first + t) + c * static_cast<std::int64_t>(size_of(to.v.dtype())),
            count);
    }
    for (std::int64_t d = 0; d < dim; ++d) std::copy_n(gradient + d * columns, columns, kept + d * window.columns);
  }

  /// Keeps the rows of values that the products read, and replaces v by its gradient.
  void keep_rows(const Slot<T>& slot, const HeadRows<T>& keys, std::int64_t rows, std::int64_t c, std::int64_t columns,
                 T* v, const T* error, const T* flow, const T* du) const {
    for (std::int64_t t = 0; t < rows; ++t) {
      const std::int64_t from = t * columns, at = t * window.columns + c;
      for (std::int64_t i = 0; i < columns; ++i) {
        slot.output_gradient[at + i] = flow[from + i];
        if (call.has_delta()) {
          const T dv = keys.beta[t] * du[from + i];
          slot.update[at + i] = keys.beta[t] * error[from + i];
          slot.memory_gradient[at + i] = -dv;
          slot.beta_terms[at + i] = du[from + i] * error[from + i];
          v[from + i] = dv;
        } else {
          slot.update[at + i] = v[from + i];
          v[from + i] = du[from + i];
        }
      }
      make_canonical(v + from, columns);
    }
  }

  /// Computes the gradients of q, k, g and beta by this head of v.
  void run_chunk(std::int64_t of_window, std::int64_t in_window) const {
    const Head at = head(of_window);
    const std::int64_t number = window.first_chunk + in_window, first = at.sequence.first + number * chunk;
    const std::int64_t rows = rows_of(at.sequence, number), dim = call.dim, stride = window.stride;
    if (rows == 0) return;
    const Slot<T> slot = window.slot(of_window, in_window);
    auto* memory = static_cast<T*>(runtime::thread_scratch(
        sizeof(T) * static_cast<std::size_t>(HeadRows<T>::items(call) + stride + window.columns + chunk)));
    HeadRows<T> keys(call, memory);
    T *ends = memory + HeadRows<T>::items(call), *products = ends + stride, *sums = products + window.columns;
    keys.read(call, at.sequence.item, at.h, first, rows);
    if (to.g.defined()) {
      std::fill_n(ends, stride, T(0));
      for (std::int64_t d = 0; d < dim; ++d) {
        for (std::int64_t i = 0; i < call.value_dim; ++i)
          products[i] = slot.state_gradient[d * window.columns + i] * slot.state[d * window.columns + i];
        ends[d] = sum_of(products, call.value_dim);
      }
    }
    kernels.chunk_gradient({.element = call.element(),
                            .decay_kind = call.decay,
                            .rows = rows,
                            .stride = stride,
                            .k = keys.k,
                            .q = keys.q,
                            .decay = keys.decay,
                            .by_output = slot.by_output,
                            .by_memory = call.has_delta() ? slot.by_memory : nullptr,
                            .first_output = slot.first_output,
                            .first_memory = slot.first_memory,
                            .last_update = slot.last_update,
                            .ends = ends,
                            .q_gradient = slot.q_gradient,
                            .k_gradient = slot.k_gradient,
                            .log_decay_gradient = to.g.defined() ? slot.decay_gradient : nullptr});
    if (call.has_delta()) {
      for (std::int64_t t = 0; t < rows; ++t) sums[t] = sum_of(slot.beta_terms + t * window.columns, call.value_dim);
      make_canonical(sums, rows);
      write_block(to.beta.dtype(), sums, address(to.beta, at.sequence.item, at.h, first), step_bytes(to.beta, 2), rows);
    }
    if (!to.g.defined()) return;
    if (call.decay == kernels::Decay::channel) {
      for (std::int64_t t = 0; t < rows; ++t) {
        make_canonical(slot.decay_gradient + t * stride, dim);
        write_items(to.g, slot.decay_gradient + t * stride, address(to.g, at.sequence.item, at.h, first + t), dim);
      }
      return;
    }
    for (std::int64_t t = 0; t < rows; ++t) sums[t] = sum_of(slot.decay_gradient + t * stride, dim);
    make_canonical(sums, rows);
    write_block(to.g.dtype(), sums, address(to.g, at.sequence.item, at.h, first), step_bytes(to.g, 2), rows);
  }

  /// Adds the heads of v that share a head of q and k, and goes back through scale and norm.
  void write_keys(std::int64_t unit, std::int64_t in_window) const {
    const std::int64_t group = call.group(), dim = call.dim, key_head = (window.first_unit + unit) % call.k_heads;
    const Head at = head(unit * group);
    const std::int64_t number = window.first_chunk + in_window, first = at.sequence.first + number * chunk;
    auto* raw = static_cast<T*>(runtime::thread_scratch(sizeof(T) * static_cast<std::size_t>(2 * dim)));
    for (std::int64_t t = 0; t < rows_of(at.sequence, number); ++t)
      for (const bool is_q : {true, false}) {
        const auto row = [&](std::int64_t g) {
          const Slot<T> slot = window.slot(unit * group + g, in_window);
          return (is_q ? slot.q_gradient : slot.k_gradient) + t * window.stride;
        };
        T* sum = row(0);
        for (std::int64_t g = 1; g < group; ++g)
          for (std::int64_t d = 0; d < dim; ++d) sum[d] = sum[d] + row(g)[d];
        if (is_q)
          for (std::int64_t d = 0; d < dim; ++d) sum[d] = sum[d] * static_cast<T>(call.scale);
        const Tensor &x = is_q ? call.q : call.k, &gradient = is_q ? to.q : to.k;
        if (call.l2norm) through_norm(x, address(x, at.sequence.item, key_head, first + t), sum, raw);
        make_canonical(sum, dim);
        write_items(gradient, sum, address(gradient, at.sequence.item, key_head, first + t), dim);
      }
  }

  /// y = x r with r = 1 / sqrt(sum x^2 + eps): dx = (dy - y sum(y dy)) r.
  void through_norm(const Tensor& x, const char* from, T* gradient, T* raw) const {
    const std::int64_t dim = call.dim;
    read_items(x, from, raw, dim);
    const T r = inverse_norm(raw, dim);
    T* products = raw + dim;
    for (std::int64_t d = 0; d < dim; ++d) {
      raw[d] = raw[d] * r;
      products[d] = raw[d] * gradient[d];
    }
    const T along = sum_of(products, dim);
    for (std::int64_t d = 0; d < dim; ++d) gradient[d] = (gradient[d] - raw[d] * along) * r;
  }

  void end(std::int64_t of_window) const {
    const Head at = head(of_window);
    T* from = window.state_gradient(of_window);
    make_canonical(from, call.dim * window.columns);
    T* result = to.initial_state.data<T>() + (at.n * call.v_heads + at.h) * call.dim * call.value_dim;
    for (std::int64_t d = 0; d < call.dim; ++d)
      std::copy_n(from + d * window.columns, call.value_dim, result + d * call.value_dim);
  }

  void run() {
    const std::int64_t heads = window.units * call.group();
    std::int64_t most = 0;
    for (std::int64_t unit = 0; unit < window.units; ++unit)
      most = std::max(most, head(unit * call.group()).sequence.chunks());
    runtime::parallel_for(heads, [&](std::int64_t h) { begin(h); });
    for (std::int64_t last = (most + window.chunks - 1) / window.chunks; last-- > 0;) {
      window.first_chunk = last * window.chunks;
      runtime::parallel_for(heads * slices.count, [&](std::int64_t task) {
        run_columns(task / slices.count, task % slices.count * slices.width);
      });
      {
        const runtime::DefaultFloatingPoint environment;
        window.multiply(call);
      }
      runtime::parallel_for(heads * window.chunks,
                            [&](std::int64_t task) { run_chunk(task / window.chunks, task % window.chunks); });
      runtime::parallel_for(window.units * window.chunks,
                            [&](std::int64_t task) { write_keys(task / window.chunks, task % window.chunks); });
    }
    if (to.initial_state.defined()) runtime::parallel_for(heads, [&](std::int64_t h) { end(h); });
  }
};

Tensor prepared(const Tensor& gradient, Dtype compute, bool whole) {
  if (!gradient.defined()) return {};
  const Tensor x = as_read(gradient, compute);
  if (whole) return x.to(compute).contiguous();
  return x.stride(-1) == 1 || x.size(-1) <= 1 ? x : x.contiguous();
}

}  // namespace

LinearAttentionGradients run_recurrent_backward(const RecurrentCall& call, const kernels::RecurrentKernels& kernels,
                                                const Tensor& states, const Tensor& grad_output,
                                                const Tensor& grad_state) {
  const auto like = [&](const Tensor& x) { return x.defined() ? zeros(x.sizes(), x.dtype()) : Tensor(); };
  LinearAttentionGradients to{.q = like(call.q),
                              .k = like(call.k),
                              .v = like(call.v),
                              .g = like(call.g),
                              .beta = like(call.beta),
                              .initial_state = like(call.initial)};
  const Tensor flow = prepared(grad_output, call.compute, false), end = prepared(grad_state, call.compute, true);
  const std::int64_t units = static_cast<std::int64_t>(call.sequences.size()) * call.k_heads;
  with_compute_type(call.compute, [&]<typename T>(Type<T>) {
    if (units == 0) return;
    Window<T> window(call, units, num_threads());
    const std::int64_t at_once = window.units;
    for (std::int64_t first = 0; first < units; first += at_once) {
      window.first_unit = first;
      window.units = std::min(at_once, units - first);
      Pass<T>{call, kernels, states, flow, end, to, window, ColumnSlices(call.value_dim, window.units * call.group())}
          .run();
    }
  });
  return to;
}

}  // namespace attn
