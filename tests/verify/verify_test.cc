// tests/verify/verify_test.cc: the case tables, the digest of each case, and that a wrong bit is found and named.
#include <attn/ops.h>
#include <attn/runtime.h>
#include <attn/verify.h>

#include "kernels/attention/dispatch.h"
#include "runtime/cpu.h"
#include "support/errors.h"
#include "support/guarded.h"
#include "verify/compare.h"
#include "verify/same.h"

#include "runtime/format.h"
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace attn::cases {
namespace {

using attn::testing::error_of;

// Another order of operations gives another digest, and needs another numerics version. Version 2 changed bf16 alone:
// these are version 1's.
const std::map<std::string, std::string> digests = {
#include "cases/digests.inc"
};

TEST(Verify, EveryCaseHasTheDigestOfNumericsVersion1) {
  ASSERT_EQ(numerics_version, 2);
  for (const auto& [line, digest] : digests) EXPECT_EQ(compare({line}, {library_way(2)}).digest, digest) << line;
  for (const std::string& line : case_lines(smoke | full)) {
    const Dtype dtype = parse_case(line).dtype;
    if (dtype == Dtype::f32 || dtype == Dtype::f64) {
      EXPECT_EQ(digests.count(line), 1u) << "a case without its line in tests/cases/digests.inc: " << line;
    }
  }
}

TEST(Verify, LinesAndCasesAreTheSame) {
  std::set<std::string> seen;
  for (const std::string& line : case_lines(smoke | full | bench)) {
    const Case c = parse_case(line);
    EXPECT_EQ(to_line(parse_case(to_line(c))), to_line(c)) << line;
    EXPECT_TRUE(seen.insert(to_line(c)).second) << "twice: " << line;
  }
  EXPECT_EQ(to_line(parse_case("attention f64 mask=causal Tq=5 Tk=5 Hq=1 Hk=1 D=64 Dv=64")),
            "attention f64 Tq=5 mask=causal");
}

TEST(Verify, LinesThatAreNoCasesSaySo) {
  EXPECT_EQ(error_of<ValueError>([] { parse_case("attention f32 Tq=x"); }),
            "case: Tq=x is not understood; it must be a number from 1 to 16777216");
  EXPECT_EQ(error_of<ValueError>([] { parse_case("attention f32 causal"); }),
            "case: \"causal\" is not understood; a field reads name=value");
  EXPECT_EQ(error_of<ValueError>([] { parse_case("attention f32 lengths=some"); }),
            "case: lengths=some is not understood; there are none, keys, rows, starts, all, packed");
  EXPECT_EQ(error_of<ValueError>([] { parse_case("matmul f32 blocks=Q9"); }),
            "case: blocks=Q9 is not understood; there are none, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K");
  EXPECT_EQ(error_of<ValueError>([] { make_inputs(parse_case("matmul f32 K=33 layout=nt blocks=Q4_1")); }),
            "case: K=33 is no multiple of 32, the weights of a block of Q4_1");
  EXPECT_EQ(error_of<ValueError>([] { make_inputs(parse_case("matmul bf16 K=32 layout=nt blocks=Q4_1")); }),
            "case: blocks need f32 and layout=nt, as a linear layer has it, and are not packed");
  EXPECT_EQ(error_of<ValueError>([] { make_inputs(parse_case("attention f32 Tq=8 mask=blocks(4,4)")); }),
            "case: mask=blocks(4,4) is not understood; it must begin as blocks(64,64,16)");
  EXPECT_EQ(error_of<ValueError>([] { make_inputs(parse_case("attention f32 Tq=8 mask=blocks(4,4,1)|causal")); }),
            "case: mask=blocks(4,4,1)|causal is not understood; & joins blocks with more");
  EXPECT_EQ(
      error_of<ValueError>([] { make_inputs(parse_case("attention f32 Tq=99999 Tk=3 D=1 mask=blocks(1,1,99999)")); }),
      "case: mask=blocks(1,1,99999) makes more than 2^30 indices");
  EXPECT_EQ(error_of<ValueError>([] { parse_case("attention i64"); }),
            "case: behind attention stands \"i64\"; it must be f32, f64, bf16 or f16");
  EXPECT_EQ(error_of<ValueError>([] { parse_case("attention"); }),
            "case: behind attention stands nothing; it must be f32, f64, bf16 or f16");
  EXPECT_EQ(error_of<ValueError>([] { parse_case("attention B=1"); }),
            "case: behind attention stands \"B=1\"; it must be f32, f64, bf16 or f16");
  EXPECT_NE(error_of<ValueError>([] { parse_case("conv f32"); }).find("there is no op \"conv\"; there are attention, "),
            std::string::npos);
  EXPECT_NE(
      error_of<ValueError>([] { parse_case("attention f32 T=5"); }).find("there is no field \"T\"; there are B, Hq, "),
      std::string::npos);
  EXPECT_EQ(error_of<ValueError>([] { make_inputs(parse_case("attention_backward bf16 Tq=8 score=additive")); }),
            "case: the gradient of additive scores is of f32 or f64; 16 bits are widened before it");
  EXPECT_EQ(error_of<ValueError>([] { make_inputs(parse_case("matmul f32 M=2 N=2 K=2 addend=1")); }),
            "case: addend=1 needs layout=nt, as a linear layer has it");
}

TEST(Verify, SizesThatNoCaseHasSaySo) {
  for (const std::string op : {"attention f32", "attention_decode bf16", "attention_backward f64", "matmul f32",
                               "softmax f32", "layer_norm f32"})
    for (const char* field :
         {"B", "Hq", "Hk",     "Hv",     "Tq",   "Tk",    "D",       "Dv",      "A",           "M",
          "N", "K",  "addend", "packed", "rows", "sinks", "idle_us", "softcap", "temperature", "dropout"})
      for (const char* value :
           {"0", "-1", "99999999999", "9223372036854775808", "1e400", "nan", "inf", "x", "", "1.5", "0x10"}) {
        const std::string line = runtime::format("{} {}={}", op, field, value);
        SCOPED_TRACE(line);
        try {
          const VerifyReport report = verify({.line = line});
          EXPECT_TRUE(report.passed()) << report.difference;
        } catch (const Error& error) { EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos); }
      }
  EXPECT_EQ(error_of<ValueError>([] { parse_case("attention f32 Hq=0"); }),
            "case: Hq=0 is not understood; it must be a number from 1 to 16777216");
  EXPECT_EQ(error_of<ValueError>([] { parse_case("attention f32 Hq=6 Hk=4"); }), "case: Hk=4 does not divide Hq=6");
  EXPECT_EQ(error_of<ValueError>([] { parse_case("attention f32 Hq=4 Hk=2 Hv=3"); }),
            "case: Hv=3 does not divide Hq=4");
  EXPECT_EQ(error_of<ValueError>([] { parse_case("matmul f32 M=16777216 N=16777216 K=16777216"); }),
            "case: the sizes make 8.4e+14 elements and 4.7e+21 products; at most 4.3e+09 and 4.4e+12 are possible");
}

struct OwnCase {
  const char *line, *digest;
};
constexpr OwnCase forward_mode_cases[] = {
#include "cases/jvp.inc"
};
constexpr OwnCase normalizer_cases[] = {
#include "cases/normalizer.inc"
};

/// The quick cases; of ways that have none of these, those of their own table.
std::vector<std::string> lines_of(const Way& way) {
  const auto lines = [](const auto& table) {
    std::vector<std::string> result;
    for (const OwnCase& c : table) result.push_back(c.line);
    return result;
  };
  if (way.name.ends_with(" forward mode")) return lines(forward_mode_cases);
  if (way.name.ends_with(" normalizer")) return lines(normalizer_cases);
  return case_lines(smoke);
}

/// Every way this machine has, each on its own so that a failure names it.
class EveryWay : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryWay, HasTheBitsOfTheSpecification) {
  for (const Way& way : all_ways()) {
    if (way.name != GetParam()) continue;
    const VerifyReport report = compare(lines_of(way), {way});
    EXPECT_TRUE(report.passed()) << report.difference << "\nattn verify '" << report.line << "'";
    EXPECT_GT(report.rows[0].cases, 0);
    EXPECT_EQ(report.rows[0].digest, report.digest);
  }
}

/// Every operand ends where the readable memory ends: a read beyond it ends the program.
TEST_P(EveryWay, ReadsNothingBeyondItsOperands) {
  for (const Way& way : all_ways()) {
    if (way.name != GetParam()) continue;
    for (const std::string& line : lines_of(way)) {
      const Case c = parse_case(line);
      const Inputs in = make_inputs(c);
      Inputs at_the_end = in;
      for (Tensor Inputs::* x : {&Inputs::q, &Inputs::k, &Inputs::v, &Inputs::a, &Inputs::b, &Inputs::addend,
                                 &Inputs::x, &Inputs::weight, &Inputs::bias})
        at_the_end.*x = attn::testing::guarded(in.*x);
      const Results expected = way.run(c, in), ours = way.run(c, at_the_end);
      ASSERT_EQ(ours.size(), expected.size());
      for (std::size_t n = 0; n < ours.size(); ++n) EXPECT_EQ(bits_differ(ours[n], expected[n]), "") << line;
    }
  }
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const Way& way : all_ways()) result.push_back(way.name);
  return result;
}
INSTANTIATE_TEST_SUITE_P(Ways, EveryWay, ::testing::ValuesIn(names()), [](const auto& info) {
  std::string name;
  for (const char c : info.param)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
  return name;
});

TEST(Verify, EveryTargetOfTheProcessorIsAmongTheWays) {
  std::set<std::string> ways;
  for (const Way& way : all_ways()) ways.insert(way.name);
  for (const std::string& target : runtime::targets()) {
    if (target == "scalar") continue;
    for (const char* how :
         {" query tiles", " heads together", " key splits", " backward", " products", " packed products", " rows"})
      EXPECT_EQ(ways.count(target + how), 1u) << target << how;
  }
  for (const char* name : {"reference generic", "library, 1 thread", "library, 2 threads", "library, 3 threads"})
    EXPECT_EQ(ways.count(name), 1u) << name;
}

TEST(Verify, NamesTheFirstWrongBit) {
  const Way wrong{"wrong", "wrong", [](const Case& c, const Inputs& in) {
                    Results results = by_specification(c, in);
                    if (c.q_rows == 3) reinterpret_cast<std::uint32_t*>(results[0].values.data<float>())[7] ^= 1u;
                    return results;
                  }};
  const std::vector<std::string> lines{"attention f32 Tq=2 D=4", "attention f32 Tq=3 D=4", "attention f32 Tq=3 D=8"};
  const VerifyReport report = compare(lines, {library_way(1), wrong});
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(report.line, "attention f32 Tq=3 D=4");
  EXPECT_EQ(report.difference.substr(0, 29), "wrong: output[0, 0, 1, 3] is ");
  EXPECT_EQ(report.rows[0].different, 0);
  EXPECT_EQ(report.rows[1].different, 2);
  EXPECT_NE(report.rows[1].digest, report.rows[0].digest);
  EXPECT_EQ(report.rows[0].digest, report.digest);
}

TEST(Verify, SixteenBitsMustBeNear) {
  const Way wrong{"wrong", "wrong", [](const Case& c, const Inputs& in) {
                    Results results = library_way(1).run(c, in);
                    results[0].values.select(0, 0).fill_(3);
                    return results;
                  }};
  const VerifyReport report = compare({"attention bf16 Tq=3 D=4"}, {wrong});
  EXPECT_NE(report.difference.find(" within "), std::string::npos) << report.difference;
}

/// The query tiles of bf16 compute these as well, though only the library returns the weights.
TEST(Verify, SixteenBitsWithWeightsRunOnEveryTarget) {
  const std::vector<std::string> lines{
      "attention bf16 Hq=2 Tq=40 Tk=300 D=32 weights=head_average mask=causal(bottom_right)",
      "attention bf16 B=2 Hq=4 Hk=2 Tq=7 Tk=900 D=64 weights=top_k mask=window(300,2,bottom_right) sinks=1",
      "attention bf16 B=3 Hq=2 Tq=130 D=32 weights=column_sums lengths=packed mask=causal bias=alibi",
      "attention bf16 Hq=8 Hk=2 Tq=3 Tk=1500 D=64 weights=rows dropout=0.1", "attention bf16 Tq=9 D=16 weights=full"};
  const VerifyReport report = compare(lines, all_ways());
  EXPECT_TRUE(report.passed()) << report.difference << "\nattn verify '" << report.line << "'";
  std::map<std::string, std::int64_t> cases;
  for (const VerifyRow& row : report.rows) cases[row.name] = row.cases;
  const std::int64_t all = runtime::cpu().avx512_bf16 ? 5 : 0;
  for (const char* how : {"query tiles", "heads together", "key splits"}) {
    if (kernels::attention_target("avx512") != nullptr) { EXPECT_EQ(cases[std::string("avx512 ") + how], all) << how; }
  }
  // a way without weights before those that have them hides none of their differences
  const auto way = [](bool weights, float added) {
    return Way{"way", "one", [=](const Case& c, const Inputs& in) {
                 Results results = library_way(1).run(c, in);
                 if (!weights) results.resize(2);
                 else results[2].values = add(results[2].values, added);
                 return results;
               }};
  };
  EXPECT_TRUE(compare({lines[4]}, {way(false, 0), way(true, 0), way(true, 0)}).passed());
  const VerifyReport wrong = compare({lines[4]}, {way(false, 0), way(true, 0), way(true, 0x1p-10f)});
  EXPECT_EQ(wrong.rows[2].different, 1);
  EXPECT_TRUE(wrong.difference.starts_with("way: weights[0, 0, 0, 0] is ")) << wrong.difference;
}

/// Small heads and sequences: gradients are differences of numbers much larger than they are, and every output is
/// rounded before delta is made of it.
TEST(Verify, SixteenBitsOfSmallCallsAreOrdinary) {
  std::vector<std::string> lines;
  for (const char* dtype : {"bf16 ", "f16 "})
    for (const char* sizes :
         {"Tq=1 Tk=1 D=1", "Tq=1 Tk=2 D=1", "Tq=2 D=1", "Tq=3 D=1", "Tq=2 Tk=5 D=2", "Hq=2 Tq=4 D=3 mask=causal",
          "Hq=4 Hk=2 Tq=9 D=4", "B=2 Tq=7 D=5 sinks=1", "Tq=3 D=1 bias=alibi"})
      for (const char* op : {"attention ", "attention_backward "})
        for (const char* score : {"", " score=general"}) lines.push_back(op + std::string(dtype) + sizes + score);
  for (const std::string& line : lines) {
    const VerifyReport report = compare({line}, {library_way(1)});
    EXPECT_TRUE(report.passed()) << line << ": " << report.difference;
  }
}

TEST(Verify, SixteenBitsOfGradientsMustBeNearToo) {
  for (const char* line : {"attention_backward f16 Tq=2 D=1", "attention_backward f16 Tq=20 D=16",
                           "attention_backward bf16 Tq=20 D=16 mask=causal"})
    for (const std::size_t which : {0u, 1u, 2u}) {
      const Way wrong{"wrong", "wrong", [&](const Case& c, const Inputs& in) {
                        Results results = library_way(1).run(c, in);
                        results[which].values = mul(results[which].values, 1.25);
                        return results;
                      }};
      EXPECT_FALSE(compare({line}, {wrong}).passed()) << line << " " << which;
    }
}

TEST(Verify, LinearAttentionOnEveryWay) {
  for (const char* op : {"linear_attention", "linear_attention_backward"})
    for (const char* dtype : {"f32", "f64", "bf16"})
      for (const char* kind : {"", " delta=1", " gate=head", " delta=1 gate=channel"}) {
        const std::string line = std::string(op) + " " + dtype + " B=2 Hq=2 Hv=4 Tq=70 D=9 Dv=17" + kind;
        const VerifyReport report = attn::verify({.quick = false, .line = line});
        EXPECT_TRUE(report.passed()) << line << ": " << report.difference;
      }
  for (const char* layout : {"", " layout=turned"})
    EXPECT_TRUE(
        attn::verify({.quick = false, .line = std::string("causal_conv f32 B=2 N=9 Tq=70 K=4") + layout}).passed());
  EXPECT_EQ(error_of<ValueError>([] { parse_case("linear_attention f32 Hq=2 Hv=3"); }),
            "case: Hk=2 must be Hq=2, and divide Hv=3");
  EXPECT_EQ(error_of<ValueError>([] { parse_case("causal_conv f32 K=0"); }),
            "case: K=0 is not possible for causal_conv");
}

TEST(Verify, SixteenBitsOfTinyResultsAreOrdinary) {  // all of them below the smallest number of f16
  for (const char* line : {"gelu f16 rows=1 N=1", "gelu_tanh f16 rows=1 N=1", "gelu f16 rows=2 N=3",
                           "exp f16 rows=1 N=1", "gelu bf16 rows=1 N=1"})
    EXPECT_TRUE(attn::verify({.quick = false, .line = line}).passed()) << line;
}

TEST(Verify, OneLineAndTheThreadsAfterwards) {
  set_num_threads(2);
  std::int64_t last = 0;
  const VerifyReport report =
      attn::verify({.quick = false, .line = "softmax f32 rows=2 N=9", .progress = [&](std::int64_t done, std::int64_t) {
                      last = done;
                    }});
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(report.cases, 1);
  EXPECT_EQ(last, 1);
  EXPECT_EQ(report.digest.size(), 16u);
  EXPECT_EQ(num_threads(), 2);
}

}  // namespace
}  // namespace attn::cases
