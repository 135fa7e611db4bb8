// src/attention/recurrent/window.h: the memory of a window of chunks in the backward pass of linear attention, and the
// products of its chunks.
#pragma once
#include <attn/ops.h>

#include "attention/recurrent/rows.h"
#include "kernels/gemm/product.h"

namespace attn {

/// The arrays of one chunk of one head of v. Values are [64, columns], keys [64, stride], states [dim, columns].
template <typename T>
struct Slot {
  T *update, *output_gradient, *memory_gradient, *beta_terms;
  T *state, *state_gradient;                     // before the rows, and of that after them
  T *by_output, *by_memory;                      // [64, 64]
  T *first_output, *first_memory, *last_update;  // keys
  T *q_gradient, *k_gradient, *decay_gradient;   // keys
};

/// Some units (a unit is a sequence and a head of k), and some chunks of each: few enough that memory stays small, and
/// enough to keep the threads busy.
template <typename T>
struct Window {
  static constexpr std::int64_t chunk = kernels::recurrent_chunk;
  std::int64_t first_unit = 0, units, first_chunk = 0, chunks;
  std::int64_t columns, stride, group, state_items, slot_items;
  Tensor memory;

  Window(const RecurrentCall& call, std::int64_t all_units, std::int64_t threads)
      : columns(padded_lanes(call.value_dim)), stride(padded_lanes(call.dim)), group(call.group()),
        state_items(call.dim * columns), slot_items(4 * values() + 2 * state_items + 2 * chunk * chunk + 6 * keys()) {
    const std::int64_t slots = std::max<std::int64_t>(16, 2 * threads);
    units = std::min(all_units, (slots + group - 1) / group);
    std::int64_t longest = 1;
    for (const RecurrentSequence& sequence : call.sequences) longest = std::max(longest, sequence.chunks());
    chunks = std::clamp<std::int64_t>(slots / (units * group), 1, longest);
    memory = zeros({units * group * (state_items + chunks * slot_items)}, call.compute);
  }
  std::int64_t values() const { return chunk * columns; }
  std::int64_t keys() const { return chunk * stride; }
  T* state_gradient(std::int64_t head) const { return memory.data<T>() + head * state_items; }

  Slot<T> slot(std::int64_t head, std::int64_t in_window) const {
    T* at = slots() + (head * chunks + in_window) * slot_items;
    const auto take = [&](std::int64_t items) {
      T* const taken = at;
      at += items;
      return taken;
    };
    Slot<T> slot;
    for (T** x : {&slot.update, &slot.output_gradient, &slot.memory_gradient, &slot.beta_terms}) *x = take(values());
    for (T** x : {&slot.state, &slot.state_gradient}) *x = take(state_items);
    for (T** x : {&slot.by_output, &slot.by_memory}) *x = take(chunk * chunk);
    for (T** x : {&slot.first_output, &slot.first_memory, &slot.last_update, &slot.q_gradient, &slot.k_gradient,
                  &slot.decay_gradient})
      *x = take(keys());
    return slot;
  }

  /// Multiplies the rows of values of every chunk by its updates and its states.
  void multiply(const RecurrentCall& call) const {
    const Slot<T> first = slot(0, 0);
    product(call, first.output_gradient, first.update, columns, chunk, first.by_output, chunk);
    product(call, first.output_gradient, first.state, columns, call.dim, first.first_output, stride);
    product(call, first.update, first.state_gradient, columns, call.dim, first.last_update, stride);
    if (!call.has_delta()) return;
    product(call, first.memory_gradient, first.update, columns, chunk, first.by_memory, chunk);
    product(call, first.memory_gradient, first.state, columns, call.dim, first.first_memory, stride);
  }

 private:
  T* slots() const { return memory.data<T>() + units_allocated() * group * state_items; }
  std::int64_t units_allocated() const { return memory.numel() / (group * (state_items + chunks * slot_items)); }

  /// y [64, n] = a [64, Dv] b^T for b [n, Dv], in every slot.
  void product(const RecurrentCall& call, const T* a, const T* b, std::int64_t b_stride, std::int64_t n, T* y,
               std::int64_t y_stride) const {
    kernels::GemmProblem p;
    p.m = chunk;
    p.n = n;
    p.k = call.value_dim;
    p.a = a;
    p.a_stride[0] = columns;
    p.a_stride[1] = 1;
    p.b = b;
    p.b_stride[0] = 1;
    p.b_stride[1] = b_stride;
    p.y = y;
    p.y_stride[0] = y_stride;
    p.y_stride[1] = 1;
    p.element = call.element();
    p.b_element = p.element;
    const std::int64_t size = units * group * chunks, step = slot_items;
    const kernels::GemmBatch batch{1, &size, &step, &step, &step};
    kernels::multiply(p, batch);
  }
};

}  // namespace attn
