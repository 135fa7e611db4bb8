// tests/attention/gradient_threads_test.cc: the backward pass while another thread changes the number of threads.
#include <attn/attention.h>
#include <attn/autograd.h>
#include <attn/runtime.h>

#include "support/golden.h"
#include "attention/truth.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace attn::testing {
namespace {

/// Heads and batch items add to one bias, in an order: alone, and as many as make a wave.
TEST(GradientThreads, OfASharedBiasHasTheSameBitsWhileTheirNumberChanges) {
  const int before = num_threads();
  for (const std::int64_t heads : {1, 12}) {
    const Tensor q = normal({2, heads, 70, 8}, 1), k = normal({2, heads, 40, 8}, 2), v = normal({2, heads, 40, 8}, 3);
    const Tensor values = normal({70, 40}, 4), dy = normal({2, heads, 70, 8}, 5);
    const auto gradients = [&] {
      std::vector<Tensor> leaves;
      for (const Tensor& x : {q, k, v, values}) leaves.push_back(x.detach().requires_grad_());
      attention(leaves[0], leaves[1], leaves[2], {.bias = Bias::dense(leaves[3])}).output.backward(dy);
      for (Tensor& x : leaves) x = x.grad();
      return leaves;
    };
    set_num_threads(1);
    const std::vector<Tensor> alone = gradients();
    std::atomic<bool> done = false;
    std::thread other([&] {
      for (int n = 0; !done; ++n) set_num_threads(n % 2 == 0 ? 4 : 1);
    });
    int different = 0;
    for (int n = 0; n < 300; ++n) {
      const std::vector<Tensor> ours = gradients();
      for (std::size_t i = 0; i < ours.size(); ++i) different += bits_equal(ours[i], alone[i]) ? 0 : 1;
    }
    done = true;
    other.join();
    EXPECT_EQ(different, 0) << heads;
  }
  set_num_threads(before);
}

/// Sequences without rows, as many as the steps of the others: their bias is shared, and they have no step to wait for.
TEST(GradientThreads, OfPackedSequencesOfWhichSomeAreEmpty) {
  const int before = num_threads();
  const Tensor q = normal({1, 4, 2, 8}, 1, Dtype::f64), k = normal({1, 1, 5, 8}, 2, Dtype::f64),
               v = normal({1, 1, 5, 8}, 3, Dtype::f64);
  const Tensor values = normal({4, 2, 5}, 4, Dtype::f64), dy = normal({1, 4, 2, 8}, 5, Dtype::f64);
  for (const auto& [of_q, of_k] : {std::pair{integers({0, 0, 0, 0, 2}), integers({0, 0, 0, 0, 5})},
                                   {integers({0, 1, 1, 2, 2, 2}), integers({0, 2, 3, 5, 5, 5})},
                                   {integers({0, 2, 2, 2, 2}), integers({0, 4, 5, 5, 5})}}) {
    std::vector<Tensor> first;
    for (const int threads : {1, 2, 3, 8}) {
      set_num_threads(threads);
      std::vector<Tensor> leaves;
      for (const Tensor& x : {q, k, v, values}) leaves.push_back(x.detach().requires_grad_());
      attention(leaves[0], leaves[1], leaves[2],
                {.bias = Bias::dense(leaves[3]), .cu_seqlens_q = of_q, .cu_seqlens_k = of_k})
          .output.backward(dy);
      if (first.empty()) first = leaves;
      for (std::size_t i = 0; i < leaves.size(); ++i)
        EXPECT_TRUE(bits_equal(leaves[i].grad(), first[i].grad())) << threads << " threads, leaf " << i;
    }
  }
  set_num_threads(before);
}

}  // namespace
}  // namespace attn::testing
