// tests/attention/causal_conv_test.cc: the causal convolution against its formula and differences, its bits over
// targets and splits.
#include <attn/autograd.h>
#include <attn/linear_attention.h>

#include "attention/truth.h"
#include "kernels/recurrent/target.h"
#include "kernels/reference.h"
#include "runtime/cpu.h"

#include <gtest/gtest.h>

#include <algorithm>

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
          (which == 0 ? *target : *kernels::reference().recurrent)
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
