// src/attention/recurrent/causal_conv.cc: implements causal_conv1d, in blocks of rows if channels are adjacent in
// memory, else channel by channel; if its gradients are themselves recorded, computes them by library operations.
#include <attn/autograd.h>
#include <attn/ops.h>

#include "attention/recurrent/causal_conv.h"
#include "attention/recurrent/rows.h"
#include "kernels/recurrent/target.h"
#include "runtime/format.h"
#include "runtime/parallel.h"
#include "runtime/thread_scratch.h"
#include "tensor/defined.h"
#include "tensor/record.h"
#include "tensor/rows.h"

namespace attn {
namespace {

constexpr const char* function = "causal_conv1d";

void check_conv(const Tensor& x, const Tensor& weight, const CausalConvOptions& options) {
  check_defined(function, "x", x);
  check_defined(function, "weight", weight);
  if (x.dim() != 3)
    throw ShapeError(runtime::format("{}: x has shape {}; it must be [B, C, T]", function, to_string(x.sizes())));
  if (weight.dim() != 2 || weight.size(0) != x.size(1) || weight.size(1) == 0)
    throw ShapeError(runtime::format("{}: weight has shape {}; it must be [{}, K] for x {}", function,
                                     to_string(weight.sizes()), x.size(1), to_string(x.sizes())));
  check_floating_point(function, x);
  check_floating_point(function, weight);
  const auto check = [&](const char* name, const Tensor& given, const Dims& sizes) {
    if (!given.defined()) return;
    check_floating_point(function, given);
    if (!(given.sizes() == sizes))
      throw ShapeError(runtime::format("{}: {} has shape {}; it must be {}", function, name, to_string(given.sizes()),
                                       to_string(sizes)));
  };
  check("bias", options.bias, {x.size(1)});
  check("initial_state", options.initial_state, {x.size(0), x.size(1), weight.size(1) - 1});
}

/// What a call computes: x and the state are [B, T, C] if channels are adjacent in memory, else [B, C, T].
template <typename T>
struct Convolution {
  Tensor x, state, weight, bias, y;  // state, weight ([C, K], or [K, C] if channels are adjacent), bias as T
  bool silu, channels_adjacent;
  std::int64_t channels, rows, taps;

  static constexpr std::int64_t row_block = 64, channel_block = 256;

  void finish(const T* sums, T* to, std::int64_t n) const {
    if (silu)
      kernels::row_kernels().unary(kernels::Unary::silu, sizeof(T) == 8 ? kernels::Element::f64 : kernels::Element::f32,
                                   sums, to, n);
    make_canonical(to, n);
  }
  const T* bias_at(std::int64_t c) const { return bias.defined() ? bias.data<T>() + c : nullptr; }
  kernels::ConvolvedRow row(std::int64_t n, const std::vector<const void*>& x_taps, T* to) const {
    return {.element = sizeof(T) == 8 ? kernels::Element::f64 : kernels::Element::f32,
            .n = n,
            .taps = taps,
            .x = x_taps.data(),
            .y = to};
  }

  void run_channel(std::int64_t b, std::int64_t c) const {
    const std::int64_t before = taps - 1;
    auto* inputs = static_cast<T*>(runtime::thread_scratch(sizeof(T) * static_cast<std::size_t>(before + 2 * rows)));
    T* const sums = inputs + before + rows;
    if (state.defined()) std::copy_n(state.data<T>() + (b * channels + c) * before, before, inputs);
    else std::fill_n(inputs, before, T(0));
    read_items(x, address(x.unsqueeze(0), 0, b, c), inputs + before, rows);
    std::vector<const void*> x_taps;
    for (std::int64_t j = 0; j < taps; ++j) x_taps.push_back(inputs + j);
    kernels::ConvolvedRow p = row(rows, x_taps, sums);
    p.weight = weight.data<T>() + c * taps;
    p.bias = bias_at(c);
    kernels::recurrent_kernels().convolve(p);
    finish(sums, sums, rows);
    write_items(y, sums, address(y.unsqueeze(0), 0, b, c), rows);
  }

  void run_block(std::int64_t b, std::int64_t first, std::int64_t c) const {
    const std::int64_t n = std::min(channel_block, channels - c), last = std::min(rows, first + row_block);
    const std::int64_t before = taps - 1, size = last - first;
    auto* inputs = static_cast<T*>(
        runtime::thread_scratch(sizeof(T) * static_cast<std::size_t>((before + size + 1) * channel_block)));
    T* const sums = inputs + (before + size) * channel_block;
    const Tensor from = x.unsqueeze(0), to = y.unsqueeze(0);
    const auto bytes = static_cast<std::int64_t>(size_of(x.dtype()));
    for (std::int64_t t = first - before; t < last; ++t) {
      T* at = inputs + (t - first + before) * channel_block;
      if (t >= 0) read_items(x, address(from, 0, b, t) + c * bytes, at, n);
      else if (state.defined()) std::copy_n(state.data<T>() + (b * before + before + t) * channels + c, n, at);
      else std::fill_n(at, n, T(0));
    }
    std::vector<const void*> x_taps(static_cast<std::size_t>(taps));
    for (std::int64_t t = 0; t < size; ++t) {
      for (std::int64_t j = 0; j < taps; ++j) x_taps[static_cast<std::size_t>(j)] = inputs + (t + j) * channel_block;
      kernels::ConvolvedRow p = row(n, x_taps, sums);
      p.weight = weight.data<T>() + c;
      p.weight_stride = channels;
      p.bias = bias_at(c);
      kernels::recurrent_kernels().convolve(p);
      finish(sums, sums, n);
      write_items(y, sums, address(to, 0, b, first + t) + c * bytes, n);
    }
  }

  void run(std::int64_t batch) const {
    if (!channels_adjacent)
      return runtime::parallel_for(batch * channels, [&](std::int64_t n) { run_channel(n / channels, n % channels); });
    const std::int64_t row_blocks = (rows + row_block - 1) / row_block,
                       channel_blocks = (channels + channel_block - 1) / channel_block;
    runtime::parallel_for(batch * row_blocks * channel_blocks, [&](std::int64_t n) {
      run_block(n / channel_blocks / row_blocks, n / channel_blocks % row_blocks * row_block,
                n % channel_blocks * channel_block);
    });
  }
};

Tensor convolved(const Tensor& x, const Tensor& weight, const CausalConvOptions& options) {
  const Dtype compute = compute_dtype(x.dtype());
  const bool by_rows = !x.is_contiguous() && x.transpose(1, 2).is_contiguous();
  const auto transposed = [&](const Tensor& t, int a, int b) { return by_rows ? t.transpose(a, b) : t; };
  const auto wide = [&](const Tensor& t) { return t.detach().to(compute).contiguous(); };
  const Tensor in = transposed(x.detach(), 1, 2).contiguous();
  const Tensor y = empty(in.sizes(), x.dtype());
  with_compute_type(compute, [&]<typename T>(Type<T>) {
    Convolution<T>{.x = in,
                   .state = options.initial_state.defined() ? wide(transposed(options.initial_state, 1, 2)) : Tensor(),
                   .weight = wide(transposed(weight, 0, 1)),
                   .bias = options.bias.defined() ? wide(options.bias) : Tensor(),
                   .y = y,
                   .silu = options.silu,
                   .channels_adjacent = by_rows,
                   .channels = x.size(1),
                   .rows = x.size(2),
                   .taps = weight.size(1)}
        .run(x.size(0));
  });
  return transposed(y, 1, 2);
}

/// Returns the inputs with those before the first, [B, C, K - 1 + T], with history.
Tensor with_earlier(const Tensor& x, const Tensor& state, std::int64_t before) {
  if (before == 0) return x;
  return cat({state.defined() ? state.to(x.dtype()) : zeros({x.size(0), x.size(1), before}, x.dtype()), x}, 2);
}

/// Computes the gradients of x, weight, bias and state, in that order; where they are recorded, in operations of the
/// library.
Gradients conv_gradients(const Backward& at, bool silu, bool has_bias, bool has_state) {
  if (!grad_enabled()) {
    const CausalConvOptions options{.bias = has_bias ? at.saved(2) : Tensor(),
                                    .initial_state = has_state ? at.saved(has_bias ? 3 : 2) : Tensor(),
                                    .silu = silu};
    const CausalConvGradients found = conv_gradients_of_output(at.saved(0), at.saved(1), options, at.grad());
    Gradients gradients{found.x, found.weight};
    if (has_bias) gradients.push_back(found.bias);
    if (has_state) gradients.push_back(found.initial_state);
    return gradients;
  }
  const Tensor x = widen(at.saved(0)), weight = widen(at.saved(1));
  const Tensor bias = has_bias ? at.saved(2) : Tensor(),
               state = has_state ? widen(at.saved(has_bias ? 3 : 2)) : Tensor();
  const std::int64_t taps = weight.size(1), rows = x.size(2);
  Tensor dz = widen(at.grad());
  if (silu) {
    const Tensor z = causal_conv1d(x, weight, {.bias = bias, .initial_state = state}).output, s = sigmoid(z);
    dz = dz * (s + z * (s * (1 - s)));
  }
  std::vector<Tensor> reversed;
  for (std::int64_t j = taps; j-- > 0;) reversed.push_back(weight.narrow(1, j, 1));
  const Tensor after = zeros({x.size(0), x.size(1), taps - 1}, dz.dtype());
  const Tensor inputs = causal_conv1d(taps > 1 ? cat({dz, after}, 2) : dz, cat(reversed, 1)).output;
  const Tensor all = with_earlier(x, state, taps - 1);
  std::vector<Tensor> by_tap;
  for (std::int64_t j = 0; j < taps; ++j)
    by_tap.push_back(sum(dz * all.narrow(2, j, rows), {0, 2}, false).unsqueeze(1));
  Gradients gradients{inputs.narrow(2, taps - 1, rows), cat(by_tap, 1)};
  if (has_bias) gradients.push_back(sum(dz, {0, 2}, false));
  if (has_state) gradients.push_back(inputs.narrow(2, 0, taps - 1));
  return gradients;
}

}  // namespace

CausalConvResult causal_conv1d(const Tensor& x, const Tensor& weight, const CausalConvOptions& options) {
  check_conv(x, weight, options);
  const Tensor y = convolved(x, weight, options);
  Operation operation{"CausalConvBackward0", {x, weight}, {}};
  for (const Tensor& given : {options.bias, options.initial_state})
    if (given.defined()) operation.inputs.push_back(given);
  if (grad_enabled() && wants_grad(operation.inputs)) {
    operation.saved = operation.inputs;
    const bool silu = options.silu, has_bias = options.bias.defined(), has_state = options.initial_state.defined();
    record(operation, {y},
           [silu, has_bias, has_state](const Backward& at) { return conv_gradients(at, silu, has_bias, has_state); });
  }
  const std::int64_t before = weight.size(1) - 1, rows = x.size(2);
  const Tensor last = rows >= before ? x.narrow(2, rows - before, before)
                                     : with_earlier(x, options.initial_state, before).narrow(2, rows, before);
  return {y, last.clone()};
}

CausalConvGradients causal_conv1d_backward(const Tensor& x, const Tensor& weight, const CausalConvOptions& options,
                                           const Tensor& grad_output, const Tensor& grad_state) {
  check_conv(x, weight, options);
  const std::int64_t before = weight.size(1) - 1, rows = x.size(2);
  const auto check = [&](const char* name, const Tensor& given, const Dims& sizes) {
    if (given.defined() && !(given.sizes() == sizes))
      throw ShapeError(runtime::format("causal_conv1d_backward: {} has shape {}; it must be {}", name,
                                       to_string(given.sizes()), to_string(sizes)));
  };
  check("grad_output", grad_output, x.sizes());
  check("grad_state", grad_state, {x.size(0), x.size(1), before});
  const NoGrad unrecorded;
  const Tensor flow = grad_output.defined() ? grad_output : zeros(x.sizes(), x.dtype());
  CausalConvGradients found = conv_gradients_of_output(x, weight, options, flow);
  if (grad_state.defined() && before > 0) {  // the state is the last of the earlier inputs and x
    const std::int64_t of_x = std::min(before, rows);
    const Tensor last = found.x.narrow(2, rows - of_x, of_x);
    last.copy_(last + grad_state.narrow(2, before - of_x, of_x).to(x.dtype()));
    if (options.initial_state.defined() && of_x < before) {
      const Tensor kept = found.initial_state.narrow(2, of_x, before - of_x);
      kept.copy_(kept + grad_state.narrow(2, 0, before - of_x).to(kept.dtype()));
    }
  }
  found.weight = found.weight.to(weight.dtype());
  if (found.bias.defined()) found.bias = found.bias.to(options.bias.dtype());
  if (found.initial_state.defined()) found.initial_state = found.initial_state.to(options.initial_state.dtype());
  return found;
}

}  // namespace attn
