// tests/attention/causal_conv_test.cc: the causal convolution against its formula and differences, its bits over
// targets, splits, layouts and threads.
#include <attn/autograd.h>
#include <attn/linear_attention.h>
#include <attn/runtime.h>

#include "attention/truth.h"
#include "kernels/recurrent/target.h"
#include "kernels/reference.h"
#include "runtime/cpu.h"
#include "support/errors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace attn::testing {
namespace {

double farthest(const Tensor& a, const Tensor& b) { return max(abs(a.to(Dtype::f64) - b.to(Dtype::f64))).item(); }

TEST(CausalConv, IsItsFormulaWholeAndSplit) {
  for (const bool by_rows : {false, true})
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
      const std::int64_t batch = 2, channels = 37, rows = 71, taps = 4;
      Tensor x = normal({batch, channels, rows}, 1, dtype);
      if (by_rows) x = x.transpose(1, 2).clone().transpose(1, 2);
      const Tensor w = normal({channels, taps}, 2, dtype), bias = normal({channels}, 3, dtype);
      const CausalConvResult ours = causal_conv1d(x, w, {.bias = bias, .silu = true});
      const Dtype wide = dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
      const Tensor padded = cat({zeros({batch, channels, taps - 1}, wide), x.to(wide)}, 2);
      Tensor sum = bias.to(wide).unsqueeze(1);
      for (std::int64_t j = 0; j < taps; ++j) sum = sum + w.to(wide).narrow(1, j, 1) * padded.narrow(2, j, rows);
      const Tensor truth = silu(sum);
      const double eps = dtype == Dtype::f64 ? 0x1p-52 : dtype == Dtype::f32 ? 0x1p-23 : 0x1p-8;
      // two roundings a tap in the formula here, one in a chain of fma
      EXPECT_LE(farthest(ours.output, truth), 8 * eps * max(abs(truth)).item());
      for (const std::int64_t split : {0, 1, 2, 3, 4, 40, 71}) {
        const CausalConvResult one = causal_conv1d(x.narrow(2, 0, split), w, {.bias = bias, .silu = true});
        const CausalConvResult two = causal_conv1d(x.narrow(2, split, rows - split), w,
                                                   {.bias = bias, .initial_state = one.state, .silu = true});
        ASSERT_TRUE(same_bits(cat({one.output, two.output}, 2), ours.output)) << split;
        ASSERT_TRUE(same_bits(two.state, ours.state)) << split;
      }
    }
}

TEST(CausalConv, GradientsAreDifferences) {
  std::vector<Tensor> inputs{normal({2, 3, 9}, 1, Dtype::f64), normal({3, 4}, 2, Dtype::f64),
                             normal({3}, 3, Dtype::f64), normal({2, 3, 3}, 4, Dtype::f64)};
  for (Tensor& x : inputs) x.requires_grad_();
  for (const bool silu : {false, true}) {
    const auto call = [&](const std::vector<Tensor>& x) {
      const CausalConvResult r = causal_conv1d(x[0], x[1], {.bias = x[2], .initial_state = x[3], .silu = silu});
      return cat({r.output.reshape({-1}), r.state.reshape({-1})});
    };
    EXPECT_EQ(check_gradients(call, inputs, {.second = true}), "");
  }
}

/// The gradients of x, weight, bias and state in plain loops, as docs/numerics.md has them; inputs f32, contiguous.
std::vector<Tensor> by_loops(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& state, bool silu,
                             const Tensor& flow) {
  const std::int64_t batch = x.size(0), channels = x.size(1), rows = x.size(2), taps = w.size(1), before = taps - 1;
  const Tensor all = cat({state, x}, 2), dz = flow.clone(), dall = zeros(all.sizes());
  const Tensor dw = zeros(w.sizes()), db = zeros({channels});
  if (silu) {
    const Tensor z = causal_conv1d(x, w, {.bias = bias, .initial_state = state}).output;
    kernels::reference().slope(kernels::Slope::silu, kernels::Element::f32, flow.data(), z.data(), dz.data(),
                               z.numel());
  }
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t line = b * channels + c;
      const float *of_z = dz.data<float>() + line * rows, *of_x = all.data<float>() + line * (rows + before);
      for (std::int64_t t = -before; t < rows; ++t) {
        float sum = 0;
        for (std::int64_t i = 0; i < taps; ++i)
          sum = std::fma(w.data<float>()[c * taps + before - i], t + i < 0 || t + i >= rows ? 0 : of_z[t + i], sum);
        dall.data<float>()[line * (rows + before) + before + t] = sum + 0.0f;
      }
      for (std::int64_t first = 0; first < rows; first += 64) {
        const std::int64_t last = std::min(rows, first + 64);
        for (std::int64_t j = 0; j < taps; ++j) {
          float sum = 0;
          for (std::int64_t t = first; t < last; ++t) sum = std::fma(of_z[t], of_x[t + j], sum);
          dw.data<float>()[c * taps + j] += sum;
        }
        float sum = 0;
        for (std::int64_t t = first; t < last; ++t) sum += of_z[t];
        db.data<float>()[c] += sum;
      }
    }
  return {dall.narrow(2, before, rows).contiguous(), dw, db, dall.narrow(2, 0, before).contiguous()};
}

TEST(CausalConv, GradientsHaveTheBitsOfTheirOrder) {
  const int threads_before = num_threads();
  for (const auto& [batch, channels, rows, taps] :
       {std::array<std::int64_t, 4>{2, 37, 71, 4}, {1, 70, 200, 4}, {3, 5, 2, 4}, {1, 130, 64, 1}, {2, 3, 130, 90}})
    for (const bool silu : {false, true}) {
      const Tensor x = normal({batch, channels, rows}, 1), w = normal({channels, taps}, 2),
                   bias = normal({channels}, 3);
      const Tensor state = normal({batch, channels, taps - 1}, 4), flow = normal(x.sizes(), 5);
      const CausalConvOptions options{.bias = bias, .initial_state = state, .silu = silu};
      const std::vector<Tensor> expected = by_loops(x, w, bias, state, silu, flow);
      const auto rows_last = [](const Tensor& t) { return t.transpose(1, 2).clone().transpose(1, 2); };
      for (const int threads : {1, 3}) {
        set_num_threads(threads);
        for (const bool by_rows : {false, true}) {
          const Tensor in = by_rows ? rows_last(x) : x;
          const CausalConvGradients g =
              causal_conv1d_backward(in, w, options, by_rows ? flow : rows_last(flow), Tensor());
          const Tensor* const found[] = {&g.x, &g.weight, &g.bias, &g.initial_state};
          for (std::size_t n = 0; n < 4; ++n)
            EXPECT_TRUE(same_bits(found[n]->contiguous(), expected[n])) << n << " " << rows << by_rows << silu;
        }
      }
    }
  set_num_threads(threads_before);
}

/// With history, in operations of the library; without it, in one pass.
TEST(CausalConv, GradientsOfBothWaysAgree) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
    std::vector<Tensor> inputs{normal({2, 37, 71}, 1, dtype), normal({37, 4}, 2, dtype), normal({37}, 3, dtype),
                               normal({2, 37, 3}, 4, dtype)};
    for (Tensor& x : inputs) x.requires_grad_();
    const Tensor y =
        causal_conv1d(inputs[0], inputs[1], {.bias = inputs[2], .initial_state = inputs[3], .silu = true}).output;
    const Tensor flow = normal(y.sizes(), 5, dtype);
    const std::vector<Tensor> once = grad({y}, inputs, {.grad_outputs = {flow}, .retain_graph = true}),
                              recorded = grad({y}, inputs, {.grad_outputs = {flow}, .create_graph = true});
    const double eps = dtype == Dtype::f64 ? 0x1p-52 : dtype == Dtype::f32 ? 0x1p-23 : 0x1p-8;
    for (std::size_t n = 0; n < 4; ++n) {
      EXPECT_EQ(once[n].dtype(), dtype);
      EXPECT_LE(farthest(once[n], recorded[n].detach()), 32 * eps * max(abs(recorded[n].detach())).item()) << n;
    }
  }
}

/// The state returned is the last of the earlier inputs and x: its gradient goes there.
TEST(CausalConv, GradientsOfTheStateAreAdded) {
  for (const std::int64_t rows : {2, 3, 9}) {
    const Tensor x = normal({2, 3, rows}, 1), w = normal({3, 4}, 2), state = normal({2, 3, 3}, 3);
    const Tensor end = normal({2, 3, 3}, 4);
    const CausalConvGradients g = causal_conv1d_backward(x, w, {.initial_state = state}, Tensor(), end);
    const Tensor all = cat({g.initial_state, g.x}, 2);
    EXPECT_TRUE(same_bits(all.narrow(2, rows, 3).contiguous(), end));
    EXPECT_TRUE(same_bits(all.narrow(2, 0, rows).contiguous(), zeros({2, 3, rows})));
    EXPECT_TRUE(same_bits(g.weight, zeros({3, 4})));
  }
  EXPECT_EQ(error_of<ShapeError>(
                [] { causal_conv1d_backward(zeros({2, 3, 4}), zeros({3, 4}), {}, zeros({2, 3, 5}), Tensor()); }),
            "causal_conv1d_backward: grad_output has shape [2, 3, 5]; it must be [2, 3, 4]");
}

TEST(CausalConv, EveryTargetHasTheBitsOfTheSpecification) {
  for (const std::string& name : runtime::targets()) {
    const kernels::RecurrentKernels* target = kernels::recurrent_target(name.c_str());
    if (target == nullptr) continue;
    for (const std::int64_t n : {1, 7, 16, 45})
      for (const bool shared : {false, true}) {
        const Tensor x = normal({3, n}, 1), w = normal({3, shared ? 1 : n}, 2), bias = normal({n}, 3);
        Tensor y[2] = {zeros({n}), zeros({n})};
        const void* taps[] = {x[0].data(), x[1].data(), x[2].data()};
        for (const int which : {0, 1})
          (which == 0 ? *target : kernels::recurrent_reference(kernels::reference()))
              .convolve({.n = n,
                         .taps = 3,
                         .x = taps,
                         .weight = w.data(),
                         .weight_stride = shared ? 0 : n,
                         .bias = bias.data(),
                         .y = y[which].data()});
        EXPECT_TRUE(same_bits(y[0], y[1])) << name << n << shared;
      }
  }
}

}  // namespace
}  // namespace attn::testing
