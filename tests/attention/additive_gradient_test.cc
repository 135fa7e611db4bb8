// tests/attention/additive_gradient_test.cc: the fused backward pass of the additive score: threads, large values,
// masked keys, memory.
#include <attn/attention.h>
#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/runtime.h>

#include "attention/truth.h"
#include "runtime/memory.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace attn::testing {
namespace {

/// q, k, v, W_q, W_k, w, sinks, a bias of [Tq, Tk].
std::vector<Tensor> inputs_of(Dtype dtype, std::int64_t rows, std::int64_t keys, std::int64_t channels) {
  const Dims sizes[] = {
      {2, 4, rows, 6}, {2, 2, keys, 6}, {2, 2, keys, 5}, {channels, 6}, {channels, 6}, {channels}, {4}, {rows, keys}};
  std::vector<Tensor> inputs;
  for (const Dims& size : sizes) inputs.push_back(normal(size, inputs.size() + 1, dtype));
  return inputs;
}

std::vector<Tensor> gradients_of(std::vector<Tensor> inputs, const Mask& mask = {}) {
  for (Tensor& x : inputs) x = x.detach().requires_grad_();
  AttentionOptions options{.score = Score::additive(inputs[3], inputs[4], inputs[5]), .mask = mask};
  options.sinks = inputs[6];
  options.bias = Bias::dense(inputs[7]);
  const Tensor output = attention(inputs[0], inputs[1], inputs[2], options).output;
  return grad({output}, inputs, {.grad_outputs = {normal(output.sizes(), 20, output.dtype())}});
}

TEST(AdditiveGradient, HasTheSameBitsOnAnyNumberOfThreads) {
  const int before = num_threads();
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    std::vector<Tensor> inputs = inputs_of(dtype, 150, 200, 37);
    inputs[0].select(2, 70).copy_(inputs[0].select(2, 70) * 40);  // a row whose exponents need f32s of their own
    set_num_threads(1);
    const std::vector<Tensor> alone = gradients_of(inputs, Mask::causal(Align::bottom_right));
    for (const int threads : {2, 3, 8}) {
      set_num_threads(threads);
      const std::vector<Tensor> together = gradients_of(inputs, Mask::causal(Align::bottom_right));
      for (std::size_t n = 0; n < alone.size(); ++n)
        EXPECT_TRUE(bits_equal(together[n], alone[n])) << threads << " threads, input " << n;
    }
  }
  set_num_threads(before);
}

TEST(AdditiveGradient, OfARowDoesNotDependOnTheOthers) {
  const std::vector<Tensor> inputs = inputs_of(Dtype::f32, 130, 90, 19);
  std::vector<Tensor> far = inputs;
  far[0] = inputs[0].clone();
  // a block of rows in the wide form, and the first beside it in the narrow one
  far[0].narrow(2, 65, 60).copy_(inputs[0].narrow(2, 65, 60) * 50);
  const Tensor one = gradients_of(inputs)[0], other = gradients_of(far)[0];
  EXPECT_TRUE(bits_equal(one.narrow(2, 0, 65).contiguous(), other.narrow(2, 0, 65).contiguous()));
  EXPECT_TRUE(bits_equal(one.narrow(2, 125, 5).contiguous(), other.narrow(2, 125, 5).contiguous()));
}

TEST(AdditiveGradient, HiddenKeysMayHoldAnything) {
  std::vector<Tensor> inputs = inputs_of(Dtype::f32, 70, 90, 11), clean = inputs;
  Tensor allowed = ones({70, 90}, Dtype::boolean);
  allowed.narrow(1, 64, 20).fill_(0);
  for (const std::size_t n : {1, 2}) {
    inputs[n] = inputs[n].clone(), clean[n] = clean[n].clone();
    inputs[n].narrow(2, 64, 20).fill_(std::numeric_limits<double>::quiet_NaN());
    clean[n].narrow(2, 64, 20).fill_(0);
  }
  const std::vector<Tensor> hidden = gradients_of(inputs, Mask::attend(allowed)),
                            zero = gradients_of(clean, Mask::attend(allowed));
  // k and W_k meet NaN in W_k k itself
  for (const std::size_t n : {0, 2, 3, 5, 6, 7}) EXPECT_TRUE(bits_equal(hidden[n], zero[n])) << n;
}

TEST(AdditiveGradient, HoldsNoPairs) {
  constexpr std::int64_t tokens = 2048, channels = 16;
  std::vector<Tensor> inputs;
  for (const Dims& sizes :
       {Dims{1, tokens, 8}, {1, tokens, 8}, {1, tokens, 8}, {channels, 8}, {channels, 8}, {channels}})
    inputs.push_back(normal(sizes, inputs.size() + 1).requires_grad_());
  const Tensor output = additive_attention(inputs[0], inputs[1], inputs[2], inputs[3], inputs[4], inputs[5]).output,
               dy = normal(output.sizes(), 9);
  runtime::reset_peak();
  const std::size_t before = runtime::allocated_bytes();
  grad({output}, inputs, {.grad_outputs = {dy}});
  const std::size_t pairs = std::size_t{tokens} * tokens * sizeof(float);
  EXPECT_LT(runtime::peak_bytes() - before, pairs / 4);  // and the plain definition holds them `channels` times
}

}  // namespace
}  // namespace attn::testing
