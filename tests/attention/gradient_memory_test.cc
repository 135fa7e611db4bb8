// tests/attention/gradient_memory_test.cc: gradients do not depend on what their memory held before.
#include <attn/ops.h>
#include <attn/runtime.h>

#include "support/golden.h"
#include "verify/backward.h"
#include "verify/inputs.h"

#include <gtest/gtest.h>

#include <limits>

namespace attn::testing {
namespace {

/// One thread begins the sums of a key where the first block of rows sees it; a wave begins with 0 everywhere. Keys
/// before, between and behind those that rows see, blocks that later rows see first, rows that see nothing.
TEST(GradientMemory, MayHoldAnything) {
  const int before = num_threads();
  for (const std::string dtype : {"f32", "f64", "bf16"})
    for (const std::string rows : {"50", "200"})
      for (const std::string mask : {"causal(top_left)", "causal(bottom_right)", "~window(64,64,top_left)",
                                     "window(20,-1,top_left)", "window(0,0,bottom_right)", "~causal(bottom_right)"}) {
        const std::string line =
            "attention_backward " + dtype + " Hq=2 Hk=1 Tq=" + rows + " Tk=260 D=20 Dv=12 mask=" + mask;
        SCOPED_TRACE(line);
        const cases::Inputs in = cases::make_inputs(cases::parse_case(line));
        const cases::Differentiated passed(in);
        const auto with = [&](int threads, double what) {
          set_num_threads(threads);
          AttentionBackward options;
          options.dq = full(in.q.sizes(), what, in.q.dtype()), options.dk = full(in.k.sizes(), what, in.q.dtype()),
          options.dv = full(in.v.sizes(), what, in.q.dtype());
          return passed.backward(options);
        };
        const FusedGradients alone = with(1, std::numeric_limits<double>::quiet_NaN()), wave = with(3, 0);
        EXPECT_TRUE(bits_equal(alone.q, wave.q));
        EXPECT_TRUE(bits_equal(alone.k, wave.k));
        EXPECT_TRUE(bits_equal(alone.v, wave.v));
      }
  set_num_threads(before);
}

}  // namespace
}  // namespace attn::testing
