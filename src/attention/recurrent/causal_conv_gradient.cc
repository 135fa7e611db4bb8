// src/attention/recurrent/causal_conv_gradient.cc: computes the gradients of causal_conv1d in blocks of rows and
// channels: each reads x and the gradient of the output once (docs/numerics.md section 9.3).
#include <attn/ops.h>

#include "attention/recurrent/causal_conv.h"
#include "attention/recurrent/rows.h"
#include "kernels/recurrent/target.h"
#include "runtime/parallel.h"
#include "runtime/thread_scratch.h"
#include "tensor/rows.h"

#include <algorithm>
#include <vector>

namespace attn {
namespace {

constexpr std::int64_t row_block = kernels::recurrent_chunk, channel_block = 64;

/// Rows of some channels: row t of [.., channel_block] from `first` on.
template <typename T>
struct BlockRows {
  T* data;
  std::int64_t first;
  T* operator[](std::int64_t t) const { return data + (t - first) * channel_block; }
};

template <typename T>
struct ConvGradient {
  Tensor x, flow, dx;             // [B, C, T]; rows or channels are adjacent
  Tensor state, dstate;           // [B, C, K - 1] or undefined
  Tensor weight, reversed, bias;  // [K, C], [K, C], [C] or undefined
  Tensor partial;                 // [B, row blocks, K + 1, C]: of each tap, and of the bias
  bool silu;
  std::int64_t channels, rows, taps;

  static constexpr kernels::Element element = sizeof(T) == 8 ? kernels::Element::f64 : kernels::Element::f32;
  std::int64_t row_blocks() const { return (rows + row_block - 1) / row_block; }

  /// Reads rows [begin, end) of n channels from c on.
  void read(const Tensor& from, std::int64_t b, std::int64_t c, std::int64_t n, std::int64_t begin, std::int64_t end,
            const BlockRows<T>& to, T* line) const {
    if (from.stride(1) == 1) {
      for (std::int64_t t = begin; t < end; ++t) read_items(from, address(from, b, c, t), to[t], n);
      return;
    }
    for (std::int64_t i = 0; i < n; ++i) {
      read_items(from, address(from, b, c + i, begin), line, end - begin);
      for (std::int64_t t = begin; t < end; ++t) to[t][i] = line[t - begin];
    }
  }

  void write(const BlockRows<T>& from, std::int64_t b, std::int64_t c, std::int64_t n, std::int64_t begin,
             std::int64_t end, T* line) const {
    if (dx.stride(1) == 1) {
      for (std::int64_t t = begin; t < end; ++t) write_items(dx, from[t], address(dx, b, c, t), n);
      return;
    }
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t t = begin; t < end; ++t) line[t - begin] = from[t][i];
      write_items(dx, line, address(dx, b, c + i, begin), end - begin);
    }
  }

  /// The inputs before the first row.
  void read_state(std::int64_t b, std::int64_t c, std::int64_t n, std::int64_t begin, const BlockRows<T>& to) const {
    const std::int64_t before = taps - 1;
    for (std::int64_t t = begin; t < 0; ++t)
      for (std::int64_t i = 0; i < n; ++i)
        to[t][i] = state.defined() ? state.data<T>()[(b * channels + c + i) * before + before + t] : T(0);
  }

  /// y = start + sum over `count` rows of `factors` times rows of `values`; both advance by one row a term.
  void chain(const T* factors, std::int64_t factor_stride, const BlockRows<T>& values, std::int64_t first,
             std::int64_t count, const T* start, T* y, std::int64_t n, std::vector<const void*>& terms) const {
    terms.clear();
    for (std::int64_t j = 0; j < count; ++j) terms.push_back(values[first + j]);
    kernels::recurrent_kernels().convolve({.element = element,
                                           .n = n,
                                           .taps = count,
                                           .x = terms.data(),
                                           .weight = factors,
                                           .weight_stride = factor_stride,
                                           .bias = start,
                                           .y = y});
  }

  void run_block(std::int64_t b, std::int64_t block, std::int64_t c) const {
    const std::int64_t n = std::min(channel_block, channels - c), before = taps - 1, first = block * row_block;
    const std::int64_t last = std::min(rows, first + row_block), end = std::min(rows, last + before);
    // x from the rows before the first; the gradient also for rows after the last, 0 before row 0 and behind the end
    const std::int64_t height = row_block + 2 * before, items = height * channel_block;
    auto* memory = static_cast<T*>(
        runtime::thread_scratch(sizeof(T) * static_cast<std::size_t>(3 * items + channel_block + height)));
    const BlockRows<T> inputs{memory, first - before}, dz{memory + items, first - before},
        result{memory + 2 * items, first - before};
    T *sums = memory + 3 * items, *line = sums + channel_block;
    std::vector<const void*> terms;
    if (first < before) read_state(b, c, n, first - before, inputs);
    read(x, b, c, n, std::max<std::int64_t>(0, first - before), end, inputs, line);
    std::fill_n(dz.data, items, T(0));
    read(flow, b, c, n, first, end, dz, line);
    for (std::int64_t t = first; silu && t < end; ++t) {
      chain(weight.data<T>() + c, channels, inputs, t - before, taps, bias.defined() ? bias.data<T>() + c : nullptr,
            sums, n, terms);
      kernels::row_kernels().slope(kernels::Slope::silu, element, dz[t], sums, dz[t], n);
    }
    const std::int64_t from = block == 0 ? -before : first;
    for (std::int64_t t = from; t < last; ++t)
      chain(reversed.data<T>() + c, channels, dz, t, taps, nullptr, result[t], n, terms);
    write(result, b, c, n, first, last, line);
    for (std::int64_t t = from; t < 0 && dstate.defined(); ++t)
      for (std::int64_t i = 0; i < n; ++i)
        dstate.data<T>()[(b * channels + c + i) * before + before + t] = result[t][i];
    T* to = partial.data<T>() + (b * row_blocks() + block) * (taps + 1) * channels + c;
    for (std::int64_t j = 0; j < taps; ++j)
      chain(dz[first], channel_block, inputs, first - before + j, last - first, nullptr, to + j * channels, n, terms);
    for (std::int64_t i = 0; i < n; ++i) {
      T sum = 0;
      for (std::int64_t t = first; t < last; ++t) sum = sum + dz[t][i];
      to[taps * channels + i] = sum;
    }
  }

  /// Adds the blocks in ascending order: [K + 1, C].
  Tensor added() const {
    const Tensor sums = zeros({taps + 1, channels}, x.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32);
    const std::int64_t all = (taps + 1) * channels, blocks = partial.size(0) * row_blocks();
    runtime::parallel_for((all + 511) / 512, [&](std::int64_t task) {
      const std::int64_t begin = task * 512, n = std::min<std::int64_t>(512, all - begin);
      T* to = sums.data<T>() + begin;
      for (std::int64_t block = 0; block < blocks; ++block) {
        const T* from = partial.data<T>() + block * all + begin;
        for (std::int64_t i = 0; i < n; ++i) to[i] = to[i] + from[i];
      }
      make_canonical(to, n);
    });
    return sums;
  }

  void run(std::int64_t batch) const {
    const std::int64_t wide = (channels + channel_block - 1) / channel_block;
    runtime::parallel_for(batch * row_blocks() * wide, [&](std::int64_t task) {
      run_block(task / wide / row_blocks(), task / wide % row_blocks(), task % wide * channel_block);
    });
  }
};

/// Returns x in a dtype that the kernel reads, with rows or channels adjacent; a copy only if needed.
Tensor with_adjacent(const Tensor& x, Dtype compute) {
  const Tensor plain = compute_dtype(x.dtype()) == compute ? x.detach() : x.detach().to(compute);
  return plain.stride(2) == 1 || plain.stride(1) == 1 ? plain : plain.contiguous();
}

}  // namespace

CausalConvGradients conv_gradients_of_output(const Tensor& x, const Tensor& weight, const CausalConvOptions& options,
                                             const Tensor& grad_output) {
  const Dtype compute = compute_dtype(x.dtype());
  const std::int64_t batch = x.size(0), channels = x.size(1), rows = x.size(2), taps = weight.size(1);
  const auto wide = [&](const Tensor& t) { return t.detach().to(compute).contiguous(); };
  const Tensor in = with_adjacent(x, compute);
  const bool by_rows = in.stride(1) == 1 && in.stride(2) != 1;
  const Tensor by_tap = wide(weight.transpose(0, 1));
  std::vector<Tensor> reversed;
  for (std::int64_t j = taps; j-- > 0;) reversed.push_back(by_tap.narrow(0, j, 1));
  CausalConvGradients gradients;
  gradients.x =
      by_rows ? empty({batch, rows, channels}, x.dtype()).transpose(1, 2) : empty({batch, channels, rows}, x.dtype());
  if (options.initial_state.defined()) gradients.initial_state = zeros({batch, channels, taps - 1}, compute);
  with_compute_type(compute, [&]<typename T>(Type<T>) {
    ConvGradient<T> pass{.x = in,
                         .flow = with_adjacent(grad_output, compute),
                         .dx = gradients.x,
                         .state = options.initial_state.defined() ? wide(options.initial_state) : Tensor(),
                         .dstate = gradients.initial_state,
                         .weight = by_tap,
                         .reversed = cat(reversed, 0),
                         .bias = options.bias.defined() ? wide(options.bias) : Tensor(),
                         .partial = {},
                         .silu = options.silu,
                         .channels = channels,
                         .rows = rows,
                         .taps = taps};
    pass.partial = empty({batch, pass.row_blocks(), taps + 1, channels}, compute);
    pass.run(batch);
    const Tensor sums = pass.added();
    gradients.weight = sums.narrow(0, 0, taps).transpose(0, 1).contiguous();
    if (options.bias.defined()) gradients.bias = sums.select(0, taps).contiguous();
  });
  return gradients;
}

}  // namespace attn
