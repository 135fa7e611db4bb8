// tests/bench/bench_test.cc: attn bench and attn verify as a user runs them; a wrong answer is not measured.
#include <attn/attention.h>
#include <attn/ops.h>
#include <attn/runtime.h>

#include "bench/work.h"
#include "cli/command.h"
#include "runtime/cpu.h"
#include "verify/spot.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace attn::testing {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(BenchCommand, ListsTheTableAndWhatIsChosen) {
  const auto all = lines_of(attn_says("bench --list").out);
  EXPECT_EQ(all, cases::case_lines(cases::bench));
  for (const std::string& line : lines_of(attn_says("bench --list --only causal --only bf16").out)) {
    EXPECT_NE(line.find("causal"), std::string::npos);
    EXPECT_NE(line.find("bf16"), std::string::npos);
  }
  const Said none = attn_says("bench --only frobnicate");
  EXPECT_EQ(none.code, 2);
  EXPECT_EQ(none.err, "attn bench: no row has \"frobnicate\" in its line (attn bench --list shows them)\n");
}

TEST(BenchCommand, JsonHasARowForEachCaseAndOneForTheMachine) {
  const Said said = attn_says(
      "bench --seconds 0 --json 'attention bf16 B=2 Hq=4 Hk=2 Tq=16 Tk=32 D=8 Dv=4 mask=causal(bottom_right)' "
      "'attention_decode f32 Tk=64 D=8' "
      "'matmul f32 M=8 N=16 K=32 layout=tn' 'softmax f32 rows=4 N=64'");
  ASSERT_EQ(said.code, 0) << said.err;
  const auto rows = nlohmann::json::parse(said.out);
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[0]["op"], "environment");
  for (const char* field : {"fma_f32_gflops", "read_gbs", "hand_over_ns"})
    EXPECT_GT(rows[0][field].get<double>(), 0) << field;
  const auto& attention = rows[1];
  const nlohmann::json expected{
      {"op", "attention"}, {"dtype", "bf16"}, {"B", 2}, {"Hq", 4}, {"Hk", 2},
      {"Tq", 16},          {"Tk", 32},        {"D", 8}, {"Dv", 4}, {"mask", "causal(bottom_right)"}};
  for (const auto& [field, value] : expected.items()) EXPECT_EQ(attention[field], value) << field;
  EXPECT_EQ(attention["target"], info().target);
  for (const char* field : {"threads", "median_us", "gflops", "peak_gflops", "fraction"})
    EXPECT_GT(attention[field].get<double>(), 0) << field;
  // 16 rows see 17 ... 32 keys: 392 pairs, of 8 heads, 12 products and sums a pair and direction
  EXPECT_NEAR(attention["gflops"].get<double>() * attention["median_us"].get<double>() * 1e3, 2.0 * 392 * 8 * 12,
              2.0 * 392 * 8 * 12 * 2e-3);
  EXPECT_NEAR(attention["fraction"].get<double>(),
              attention["gflops"].get<double>() / attention["peak_gflops"].get<double>(),
              1e-2 * attention["fraction"].get<double>());
  EXPECT_EQ(rows[2]["op"], "attention_decode");
  EXPECT_NEAR(rows[2]["gbs"].get<double>() * rows[2]["median_us"].get<double>() * 1e3, 64 * 8 * 2 * 4,
              64 * 8 * 2 * 4 * 2e-3);
  EXPECT_EQ(rows[3]["layout"], "tn");
  EXPECT_EQ(rows[4]["rows"], 4);
}

TEST(BenchCommand, TableOnStdoutProgressOnStderr) {
  const Said said = attn_says("bench --seconds 0 'gelu f32 rows=4 N=64' 'layer_norm f32 rows=4 N=64'");
  ASSERT_EQ(said.code, 0) << said.err;
  const auto lines = lines_of(said.out);
  ASSERT_EQ(lines.size(), 6u) << said.out;
  EXPECT_TRUE(lines[4].starts_with("gelu "));
  EXPECT_TRUE(lines[5].starts_with("layer_norm "));
  EXPECT_EQ(said.err, "1/2 gelu f32 rows=4 N=64\n2/2 layer_norm f32 rows=4 N=64\n");
}

TEST(BenchCommand, ServesLines) {
  const Said said = shell(
      "printf 'attention f32 Tq=8 D=8\\nattention f32 Tq=8 D=8\\npeak fma_f32\\nattention f32 T=8\\nforget\\npeak "
      "hope\\n' | " +
      attn_command + " bench --serve");
  EXPECT_EQ(said.code, 0);
  const auto lines = lines_of(said.out);
  ASSERT_EQ(lines.size(), 6u) << said.out;
  for (const int n : {0, 1, 2}) EXPECT_GT(std::stod(lines[static_cast<std::size_t>(n)]), 0);
  EXPECT_TRUE(lines[3].starts_with("error: case: there is no field \"T\"; there are B, Hq, ")) << lines[3];
  EXPECT_EQ(lines[4], "ok");
  EXPECT_EQ(lines[5], "error: bench: there is no limit \"hope\"; there are fma_f32, fma_f64, dot_bf16, read");
}

TEST(BenchCommand, MeasuresEveryOp) {
  for (const char* op : {"log_softmax", "rms_norm", "sum", "exp", "log", "tanh", "sin", "cos", "sigmoid", "silu"}) {
    const Said said = attn_says(std::string("bench --seconds 0 --json '") + op + " f32 rows=3 N=50'");
    ASSERT_EQ(said.code, 0) << said.err;
    const auto row = nlohmann::json::parse(said.out)[1];
    EXPECT_EQ(row["op"], op);
    EXPECT_NEAR(row["gbs"].get<double>() * row["median_us"].get<double>() * 1e3,
                op == std::string("sum") ? 153 * 4 : 300 * 4, 3)
        << op;
  }
}

TEST(BenchCommand, MeasuresLinearAttention) {
  const Said said = attn_says(
      "bench --seconds 0 --json 'linear_attention f32 B=2 Hq=2 Hv=4 Tq=70 D=8 Dv=6 delta=1 gate=channel' "
      "'linear_attention_backward bf16 Hv=3 Tq=70 D=8 gate=head layout=turned' "
      "'causal_conv f32 B=2 Tq=70 N=9 K=4 layout=turned'");
  ASSERT_EQ(said.code, 0) << said.err;
  const auto rows = nlohmann::json::parse(said.out);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[1]["gate"], "channel");
  EXPECT_EQ(rows[1]["Hv"], 4);
  EXPECT_NEAR(rows[1]["gflops"].get<double>() * rows[1]["median_us"].get<double>() * 1e3, 7.0 * 2 * 4 * 70 * 8 * 6,
              7.0 * 2 * 4 * 70 * 8 * 6 * 2e-3);
  EXPECT_NEAR(rows[3]["gbs"].get<double>() * rows[3]["median_us"].get<double>() * 1e3, 2 * 2 * 70 * 9 * 4,
              2 * 2 * 70 * 9 * 4 * 2e-3);
  const std::string table = attn_says("bench --seconds 0 'linear_attention f32 Hv=2 Tq=70 D=8 delta=1'").out;
  EXPECT_NE(table.find("linear_attention          f32   1,1/2,70,8                 delta"), std::string::npos) << table;
}

TEST(Bench, AWrongHeadIsNoticed) {
  for (const char* line : {"linear_attention f32 Hv=2 Tq=70 D=8 gate=head", "linear_attention bf16 Tq=70 D=8 delta=1",
                           "linear_attention_backward f64 Hv=2 Tq=70 D=8 delta=1", "causal_conv f32 Tq=70 N=3 K=4"}) {
    const cases::Case c = cases::parse_case(line);
    const cases::Inputs in = cases::make_inputs(c);
    const Tensor result = cases::library_way(1).run(c, in)[0].values.clone();
    EXPECT_EQ(cases::wrong_rows(c, in, result), "") << line;
    result.reshape({-1}).select(0, result.numel() - 1).fill_(3);
    EXPECT_NE(cases::wrong_rows(c, in, result), "") << line;
  }
}

TEST(Bench, AWrongRowIsNoticed) {
  for (const char* line : {"attention f32 Hq=2 Tq=70 D=8 mask=causal", "attention bf16 Hq=2 Tq=70 D=8",
                           "attention f32 Hq=2 Tq=70 D=8 bias=conformer",
                           "attention f64 B=2 Hq=2 Tq=70 D=8 bias=relative_keys normalizer=sparsemax lengths=keys",
                           "attention f32 Hq=2 Tq=70 D=8 normalizer=entmax15 mask=causal",
                           "attention bf16 Hq=2 Tq=70 D=8 normalizer=sigmoid", "matmul f32 M=9 N=5 K=7",
                           "matmul bf16 M=9 N=5 K=7", "softmax f32 rows=5 N=9"}) {
    const cases::Case c = cases::parse_case(line);
    const cases::Inputs in = cases::make_inputs(c);
    const Tensor result = cases::library_way(1).run(c, in)[0].values;
    EXPECT_EQ(cases::wrong_rows(c, in, result), "") << line;
    for (const bool last : {false, true}) {
      const Tensor wrong = result.clone();
      const Tensor flat = wrong.reshape({-1});
      flat.select(0, last ? flat.numel() - 1 : 0).fill_(3);
      EXPECT_NE(cases::wrong_rows(c, in, wrong), "") << line;
    }
  }
}

TEST(Bench, CountsThePairsThatMaskAndLengthsLeave) {
  const auto causal = [](std::int64_t row, std::int64_t key) { return key <= row; };
  const auto window = [](std::int64_t row, std::int64_t key) { return row - 5 <= key && key <= row + 2; };
  const auto all = [](std::int64_t, std::int64_t) { return true; };
  const std::tuple<const char*, bool (*)(std::int64_t, std::int64_t), bool> masks[] = {
      {"none", all, false},
      {"causal", causal, false},
      {"causal(bottom_right)", causal, true},
      {"window(5,2)", window, false},
      {"window(5,2,bottom_right)", window, true}};
  for (const auto& [mask, sees, bottom_right] : masks)
    for (const char* lengths : {"none", "keys", "rows", "starts", "all", "keys cache=pages16", "none cache=pages16"})
      for (const char* op : {"attention", "attention_decode", "attention_backward"}) {
        const std::string line =
            op + std::string(" f32 B=3 Hq=2 Tq=40 Tk=40 D=8 Dv=4 mask=") + mask + " lengths=" + lengths;
        const bool cached = line.find("cache") != std::string::npos;
        if (op == std::string("attention_backward") && cached) continue;
        SCOPED_TRACE(line);
        const cases::Case c = cases::parse_case(line);
        const AttentionOptions options = cases::make_inputs(c).options;
        const auto number = [](const Tensor& x, std::size_t b, std::int64_t otherwise) {
          return x.defined() ? x.to_int_vector()[b] : otherwise;
        };
        double pairs = 0;
        for (std::size_t b = 0; b < 3; ++b) {
          const std::int64_t rows = number(options.query_lengths, b, 40), keys = number(options.key_lengths, b, 40),
                             first = number(options.key_start, b, 0);
          const std::int64_t offset = number(options.query_start, b, bottom_right ? keys - first - rows : 0);
          for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t j = first; j < keys; ++j) pairs += sees(i + offset, j - first);
        }
        const double products = op == std::string("attention_backward") ? 3 * 8 + 2 * 4 : 8 + 4;
        EXPECT_EQ(bench::Work(c).flops(), 2 * 2 * products * pairs);
      }
}

TEST(VerifyCommand, EndsWithTheDigestWhateverTheTargetAndThreads) {
  const std::string last = lines_of(attn_says("verify --quick").out).back();
  EXPECT_TRUE(last.starts_with("numerics " + std::to_string(numerics_version) + ", digest ")) << last;
  for (const std::string& target : runtime::targets())
    for (const char* threads : {"1", "3"}) {
      const Said said = attn_says("verify --quick", "ATTN_TARGET=" + target + " ATTN_NUM_THREADS=" + threads);
      EXPECT_EQ(said.code, 0) << said.err;
      EXPECT_EQ(lines_of(said.out).back(), last) << target << " " << threads;
    }
}

TEST(VerifyCommand, TakesOneLineAndSpeaksJson) {
  const Said said = attn_says("verify --json 'attention f32 Tq=5 D=8 mask=causal'");
  ASSERT_EQ(said.code, 0) << said.err;
  const auto report = nlohmann::json::parse(said.out);
  EXPECT_EQ(report["cases"], 1);
  EXPECT_EQ(report["passed"], true);
  EXPECT_EQ(report["digest"], report["ways"][0]["digest"]);
  const Said wrong = attn_says("verify 'attention f32 Tq=5 mask=casual'");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_EQ(std::count(wrong.err.begin(), wrong.err.end(), '\n'), 1) << wrong.err;
}

TEST(Target, OneThatTheProcessorLacksIsALineOfError) {
  for (const char* verb : {"verify --quick", "bench 'attention f32'", "info", "explain hi"}) {
    const Said said = attn_says(verb, "ATTN_TARGET=sparc");
    EXPECT_EQ(said.code, 1) << verb;
    EXPECT_EQ(said.out, "") << verb;
    std::string known;
    for (const std::string& name : runtime::targets()) known += (known.empty() ? "" : ", ") + name;
    EXPECT_EQ(said.err, "attn: ATTN_TARGET is \"sparc\"; kernels that can run here: " + known + "\n") << verb;
  }
}

TEST(Target, TheOneAskedForRuns) {
  for (const std::string& target : runtime::targets()) {
    const Said said = attn_says("explain hi there", "ATTN_TRACE=1 ATTN_TARGET=" + target);
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_NE(said.err.find("kernel="), std::string::npos) << said.err;
    EXPECT_EQ(nlohmann::json::parse(attn_says("info --json", "ATTN_TARGET=" + target).out)["target"], target);
  }
}

}  // namespace
}  // namespace attn::testing
