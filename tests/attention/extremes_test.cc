// tests/attention/extremes_test.cc: huge, infinite, NaN and denormal numbers, hidden garbage and long rows, on every
// kernel there is.
#include "attention/truth.h"
#include "runtime/memory.h"
#include "support/resident.h"
#include "support/sanitized.h"
#include "verify/same.h"

#include <gtest/gtest.h>

#include <string>

namespace attn::testing {
namespace {

using cases::Case;
using cases::Inputs;
using cases::Way;

/// Whether each NaN is the one that results may hold: docs/numerics.md, section 2.
bool nans_are_canonical(const Tensor& x) {
  if (!x.defined() || !is_floating(x.dtype()) || x.numel() == 0) return true;
  const Tensor canonical = full(x.sizes(), std::numeric_limits<double>::quiet_NaN(), x.dtype());
  return same_bits(where(isnan(x), canonical, x), x);
}

/// Every way that takes the case gives the bits of the specification.
void expect_bits(const Case& c, const Inputs& in) {
  const auto expected = cases::by_specification(c, in);
  for (const auto& result : expected) EXPECT_TRUE(nans_are_canonical(result.values)) << cases::to_line(c);
  for (const Way& way : cases::all_ways()) {
    const auto ours = way.run(c, in);
    for (std::size_t n = 0; n < ours.size(); ++n)
      EXPECT_EQ(cases::bits_differ(ours[n], expected[n]), "") << way.name << ": " << cases::to_line(c);
  }
}

TEST(Extremes, HugeInfiniteNanAndDenormalNumbers) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const char* line :
       {"attention f32 Hq=2 Tq=19 Tk=70 D=9", "attention f64 Hq=2 Tq=19 Tk=70 D=9 mask=causal(bottom_right)",
        "attention f32 Tq=3 Tk=1100 D=8"}) {
    const Case c = cases::parse_case(line);
    for (const double value : {1e30, -1e30, 1e38, infinity, -infinity, std::nan(""), 1e-40, 0.0, -0.0})
      for (Tensor Inputs::* where : {&Inputs::q, &Inputs::k, &Inputs::v}) {
        const Inputs in = cases::make_inputs(c);
        (in.*where).select(2, (in.*where).size(2) / 2).fill_(value);
        SCOPED_TRACE(::testing::Message() << value);
        expect_bits(c, in);
      }
    Inputs in = cases::make_inputs(c);
    for (Tensor Inputs::* x : {&Inputs::q, &Inputs::k, &Inputs::v})
      in.*x = mul(in.*x, c.dtype == Dtype::f64 ? 1e-310 : 1e-40);
    expect_bits(c, in);
  }
}

/// Without columns in the values the scores alone tell that something is no number.
TEST(Extremes, GradientsOfNumbersThatAreNoneHaveTheBitsOfTheSpecification) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const char* dtype : {"f32", "f64"})
    for (const char* rest :
         {"Hq=2 Tq=19 Tk=70 D=9", "Tq=3 Tk=5 D=1", "Tq=1 Tk=1 D=1 sinks=1", "Hq=2 Tq=70 Tk=70 D=16 bias=dense",
          "Hq=4 Hk=2 Tq=9 Tk=20 D=8 mask=causal(bottom_right)",
          "Tq=70 Tk=130 D=16 softcap=2 temperature=0.5 bias=relative", "Tq=5 Tk=9 D=8 bias=alibi sinks=1",
          "Tq=19 Tk=70 D=9 Dv=3", "Tq=19 Tk=70 D=9 Dv=1 bias=dense sinks=1", "Tq=9 Tk=20 D=4",
          "Tq=9 Tk=20 D=3 bias=pairs", "Hq=2 Tq=8 Tk=8 D=1 mask=causal softcap=3",
          "Tq=40 Tk=40 D=4 mask=window(2,2) softcap=3", "Tq=9 Tk=9 D=2 mask=causal score_mod=where(s>1,1,s)",
          "Tq=9 Tk=20 D=4 score_mod=s*slope[h]+table[j%32,h]"})
      for (const double value : {std::nan(""), -std::nan(""), infinity, -infinity, 1e38}) {
        const Case c = cases::parse_case(std::string("attention_backward ") + dtype + " " + rest);
        for (Tensor Inputs::* where : {&Inputs::q, &Inputs::k, &Inputs::v, &Inputs::doutput}) {
          Inputs in = cases::make_inputs(c);
          (in.*where).select(2, (in.*where).size(2) / 2).fill_(value);
          SCOPED_TRACE(::testing::Message() << value);
          expect_bits(c, in);
          in.v = in.v.narrow(3, 0, 0);
          in.doutput = in.doutput.narrow(3, 0, 0);
          expect_bits(c, in);
        }
      }
}

TEST(Extremes, HiddenNanChangesNoBitOnAnyKernel) {
  for (const char* dtype : {"f32", "f64", "bf16", "f16"})
    for (const char* hides : {"B=3 Hq=2 Tq=20 Tk=75 D=17 lengths=all", "Hq=2 Tq=20 Tk=75 D=17 mask=bool",
                              "Hq=4 Hk=2 Tq=1 Tk=1100 D=8 mask=bool"}) {
      Case c = cases::parse_case(std::string("attention ") + dtype + " " + hides);
      const Inputs clean = cases::make_inputs(c);
      c.hidden = "nan";
      const Inputs poisoned = cases::make_inputs(c);
      for (const Way& way : cases::all_ways()) {
        const auto expected = way.run(c, clean), ours = way.run(c, poisoned);
        for (std::size_t n = 0; n < ours.size(); ++n)
          EXPECT_EQ(cases::bits_differ(ours[n], expected[n]), "") << way.name << ": " << cases::to_line(c);
      }
    }
}

TEST(Extremes, LongRowsAreWithinTheErrorRule) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
    SCOPED_TRACE(name_of(dtype));
    const Tensor q = normal({1, 1, 3, 16}, 1, dtype), k = normal({1, 1, 16384, 16}, 2, dtype),
                 v = normal({1, 1, 16384, 4}, 3, dtype);
    const Around around{.scale = 0.25};
    const Plainly truth = attend_plainly<long double>(q, k, v, around);
    const Plainly naive =
        dtype == Dtype::f64 ? attend_plainly<double>(q, k, v, around) : attend_plainly<float>(q, k, v, around);
    const double eps = dtype == Dtype::f64   ? 0x1p-52
                       : dtype == Dtype::f32 ? 0x1p-23
                       : dtype == Dtype::f16 ? 0x1p-10
                                             : 0x1p-7;
    const AttentionResult r = attention(q, k, v);
    expect_within(r.output, naive.output, truth.output, eps);
    expect_within(r.logsumexp, naive.logsumexp, truth.logsumexp, eps);
  }
}

TEST(Extremes, LongSequencesNeedNoMoreThanTheirResult) {
  const std::int64_t T = sanitized ? 2048 : 16384;
  const Tensor q = cases::integers({1, 8, T, 64}, Dtype::f32, 1), k = cases::integers({1, 8, T, 64}, Dtype::f32, 2);
  // the pairs: 128 MiB, 8 GiB
  const std::size_t result = static_cast<std::size_t>(q.numel() + 8 * T) * sizeof(float), more = 4u << 20;
  attention(q.narrow(2, 0, 64), k.narrow(2, 0, 64), k.narrow(2, 0, 64));  // scratch that threads keep is there
  for (const Mask& mask : {Mask(), Mask::causal(), Mask::causal() & Mask::window(70, 0)}) {
    const std::size_t before = runtime::allocated_bytes(), resident = Resident::now();
    runtime::reset_peak();
    Resident::reset();
    attention(q, k, k, {.mask = mask});
    EXPECT_LT(runtime::peak_bytes() - before, result + more) << mask.to_string();
    if (!sanitized) { EXPECT_LT(Resident::most(), resident + result + more) << mask.to_string(); }
  }
}

}  // namespace
}  // namespace attn::testing
