// tests/attention/half_test.cc: f16, and bf16 where the processor has no product for it, are f32 of the widened
// numbers, rounded once.
#include <attn/attention.h>
#include <attn/ops.h>

#include "runtime/cpu.h"
#include "verify/inputs.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

std::vector<std::string> widened_dtypes() {
  if (runtime::vectors_of(runtime::target()) == "avx512" && runtime::cpu().avx512_bf16) return {"f16"};
  return {"f16", "bf16"};
}

/// More rows than the strips of a task, more keys than stay widened for them; few rows; odd widths.
constexpr const char* sizes[] = {"Tq=300 Tk=330 D=64",    "Tq=70 Tk=2300 D=17 Dv=40", "Tq=520 Tk=1100 D=100 Dv=3",
                                 "Tq=1 Tk=700 D=32",      "Tq=3 Tk=65 D=129 Dv=64",   "Tq=130 Tk=40 D=1",
                                 "Tq=65 Tk=90 D=16 Dv=80"};
constexpr const char* options[] = {"",
                                   "mask=causal(bottom_right)",
                                   "mask=window(70,5,bottom_right) layout=turned",
                                   "lengths=keys hidden=nan",
                                   "lengths=all layout=turned",
                                   "bias=alibi softcap=20 sinks=1",
                                   "mask=bool weights=full",
                                   "weights=head_average dropout=0.2",
                                   "bias=dense temperature=2"};

TEST(Half, IsF32RoundedOnce) {
  for (const std::string& dtype : widened_dtypes())
    for (const char* size : sizes)
      for (const char* option : options) {
        const std::string line = "attention " + dtype + " B=2 Hq=4 Hk=2 " + size + " " + option;
        SCOPED_TRACE(line);
        const cases::Inputs in = cases::make_inputs(cases::parse_case(line)), wide = cases::widened(in);
        const AttentionResult half = attention(in.q, in.k, in.v, in.options),
                              f32 = attention(wide.q, wide.k, wide.v, wide.options);
        const auto rounded = [&](const Tensor& x) { return add(x.to(in.q.dtype()), 0); };
        EXPECT_TRUE(same_bits(half.output, rounded(f32.output)));
        ASSERT_EQ(half.weights.defined(), f32.weights.defined());
        if (!half.weights.defined()) continue;
        EXPECT_TRUE(same_bits(half.weights, rounded(f32.weights)));
      }
}

TEST(Half, IsTheSameThroughATape) {
  for (const std::string& dtype : widened_dtypes()) {
    cases::Inputs in = cases::make_inputs(
        cases::parse_case("attention " + dtype + " Hq=2 Tq=150 Tk=170 D=24 mask=causal(bottom_right)"));
    const Tensor plain = attention(in.q, in.k, in.v, in.options).output;
    EXPECT_TRUE(same_bits(attention(in.q.clone().requires_grad_(), in.k, in.v, in.options).output.detach(), plain));
  }
}

/// On every target: the tape keeps the f32 output, and a projected q is not rounded.
TEST(Half, GradientsAndProjectionsAreThoseOfF32RoundedOnce) {
  for (const std::string& dtype : widened_dtypes())
    for (const char* score : {"dot", "general"}) {
      SCOPED_TRACE(dtype + " " + score);
      const cases::Inputs in = cases::make_inputs(
                              cases::parse_case("attention " + dtype + " Hq=2 Tq=20 Tk=70 D=24 score=" + score)),
                          wide = cases::widened(in);
      const Tensor dy = cases::integers({1, 2, 20, 24}, in.q.dtype(), 9);
      std::vector<Tensor> half = {in.q, in.k, in.v}, f32 = {wide.q, wide.k, wide.v};
      for (std::size_t n = 0; n < 3; ++n)
        half[n] = half[n].clone().requires_grad_(), f32[n] = f32[n].clone().requires_grad_();
      const Tensor ours = attention(half[0], half[1], half[2], in.options).output,
                   theirs = attention(f32[0], f32[1], f32[2], wide.options).output;
      EXPECT_TRUE(same_bits(ours.detach(), add(theirs.detach().to(in.q.dtype()), 0)));
      ours.backward(dy);
      theirs.backward(dy.to(Dtype::f32));
      for (std::size_t n = 0; n < 3; ++n) EXPECT_TRUE(same_bits(half[n].grad(), f32[n].grad().to(in.q.dtype()))) << n;
    }
}

// Half of the smallest number, of either sign, is a tie: to even, which is 0.
TEST(Half, ZeroIsPositive) {
  const Tensor q = zeros({1, 1, 70, 16}, Dtype::f16), v = full({1, 1, 2, 16}, -0x1p-24, Dtype::f16);
  v.narrow(2, 0, 1).zero_();
  EXPECT_TRUE(same_bits(attention(q, v, v).output, zeros({1, 1, 70, 16}, Dtype::f16)));
}

}  // namespace
}  // namespace attn::testing
