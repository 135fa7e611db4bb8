// tests/cli/mistakes_test.cc: every mistake is one clear line on stderr and the right exit code.
#include "cli/command.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace attn::testing {
namespace {

struct Mistake {
  const char* arguments;
  int code;
  const char* says;
};

// bench/peers/compare.py, of which this is the part that needs Python alone.
TEST(PeerMistakes, WordsThatNoRowHasAreOneLine) {
  const std::string program = "import attn_case; attn_case.table('" + command_path() + "', ['causal', 'nosuch'])";
  const Said said = shell("cd '" + golden_path("../../bench/peers") + "' && python3 -B -c \"" + program + "\"");
  EXPECT_EQ(said.code, 2);
  EXPECT_EQ(said.err, "attn bench: no row has \"causal\" and \"nosuch\" in its line (attn bench --list shows them)\n");
}

class Mistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreOneLine) {
  const Said said = attn_says(GetParam().arguments);
  EXPECT_EQ(said.code, GetParam().code) << said.err;
  EXPECT_EQ(said.out, "");
  EXPECT_NE(said.err.find(GetParam().says), std::string::npos) << said.err;
  EXPECT_TRUE(said.err.starts_with("attn")) << said.err;
  EXPECT_EQ(std::count(said.err.begin(), said.err.end(), '\n'), 1) << said.err;
}

INSTANTIATE_TEST_SUITE_P(
    All, Mistakes,
    ::testing::Values(
        Mistake{"help explian", 2, "did you mean explain?"}, Mistake{"help frobnicate", 2, "there are explain, run"},
        Mistake{"explian hello", 2, "did you mean explain?"},
        Mistake{"frobnicate", 2,
                "there are explain, run, info, verify, bench, train, generate, chat, embed, rank, perplexity, convert, "
                "completion"},
        Mistake{"explain", 2, "a text is missing"}, Mistake{"explain ''", 1, "no token"},
        Mistake{"explain '  '", 1, "no token"},
        Mistake{"explain hi --cuasal", 2, "there is no option --cuasal; did you mean --causal?"},
        Mistake{"explain hi --frobnicate", 2, "there is no option --frobnicate"},
        Mistake{"explain hi --score adative", 2, "did you mean additive?"},
        Mistake{"explain hi --score x", 2, "there are scaled_dot, dot, general, additive"},
        Mistake{"explain hi --positions sine", 2, "--positions has no \"sine\""},
        Mistake{"explain hi --lang fr", 2, "there are en, zh"}, Mistake{"explain hi --heads two", 2, "--heads"},
        Mistake{"explain hi --heads 0", 1, "heads is 0"}, Mistake{"explain hi --heads -1", 1, "heads is -1"},
        Mistake{"explain hi --dim 100000", 1, "dim is 100000"},
        Mistake{"explain hi --heads", 2, "--heads needs a value"},
        Mistake{"explain hi --heads 2 --heads 3", 2, "--heads is given more than once"},
        Mistake{"explain hi --query 1", 1, "query 1 is not there; the tokens are 0 to 0"},
        Mistake{"explain hi --mask 'causal &'", 2, "--mask \"causal &\": column 9"},
        Mistake{"explain hi --mask 'casual'", 2, "a mask was expected"},
        Mistake{"explain hi --score-mod 's +'", 2, "attn explain: --score-mod \"s +\": column 4"},
        Mistake{"explain 'a b c' --to 'd e' --mask causal", 1, "attn: explain: causal does not say how 3 rows"},
        Mistake{"explain 'a b c' --to 'd e' --mask 'window(1, 0)'", 1, "attn: explain: window does not say how 3 rows"},
        Mistake{"explain - --to - </dev/null", 2, "stdin can be read once"},
        Mistake{"explain - </dev/null", 1, "no token"}, Mistake{"explain - <&-", 1, "attn: stdin: cannot be read"},
        Mistake{"explain hi --weights /nowhere", 1, "/nowhere"},
        Mistake{"explain hi --sink 1e39", 1, "attn: explain: sink: the value 1e+39 cannot be kept in f32"},
        Mistake{"bench attention", 1, "attn: case: behind attention stands nothing; it must be f32, f64, bf16 or f16"},
        Mistake{"explain hi --positions rotary --dk 3", 1, "it must be even"},
        Mistake{"explain \"$(yes w | head -3000)\"", 1, "3000 tokens; at most 2048"},
        Mistake{"explain \"$(printf 'a\\377b')\"", 1, "UTF-8"}, Mistake{"run", 2, "a file is missing"},
        Mistake{"run x --mask caus", 2, "--mask"},
        Mistake{"run x --scale wide", 2, "--scale: must be a number, not \"wide\""},
        Mistake{"run x --out - --json", 2, "attn run: --out - and --json do not go together: both write to stdout"},
        Mistake{"explain hi --svg - --json", 2, "attn explain: --svg - and --json do not go together"},
        Mistake{"run x --out ''", 2, "--out: must name a file, or be - for stdout, not \"\""},
        Mistake{"explain hi --svg ''", 2, "--svg: must name a file"},
        Mistake{"train x --log ''", 2, "--log: must name a file"},
        Mistake{"train x --out -", 2, "attn train: --out is -, which is no folder; a model needs one"},
        Mistake{"run /nowhere.json", 1, "/nowhere.json: cannot be read"}, Mistake{"run /dev/null", 1, "is empty"},
        Mistake{"run /", 1, "cannot be read"},
        Mistake{"explain hi --seed 99999999999999999999", 2, "at most 18 digits"},
        Mistake{"explain hi --query x", 2, "--query: must be a whole number, not \"x\""},
        Mistake{"info -- what", 2, "one argument too many"}, Mistake{"info a what", 2, "one argument too many"},
        Mistake{"info what", 1, "GgufFile: what: No such file or directory"},
        Mistake{"convert a", 2, "a model and a new folder or GGUF file are needed"},
        Mistake{"bench --seconds -1", 2, "attn bench: --seconds: must be from 0 to 600, not -1"},
        Mistake{"bench --seconds x", 2, "must be a number, not \"x\""},
        Mistake{"bench --seconds nan", 2, "must be from 0 to 600, not nan"},
        Mistake{"info --jsn", 2, "did you mean --json?"}, Mistake{"completion", 2, "which shell?"},
        Mistake{"completion fihs", 2, "did you mean fish?"}));

TEST(Dashes, WhatFollowsThemIsText) {
  const Said said = attn_says("explain 'a b' -- --life");
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_NE(said.out.find("--life"), std::string::npos);
  EXPECT_EQ(attn_says("explain -- '-1 degrees'").code, 0);
}

TEST(Help, IsEverywhereAndOnStdout) {
  for (const char* verb : {"", "explain ", "run ", "info ", "verify ", "bench ", "train ", "completion "}) {
    const Said said = attn_says(std::string(verb) + "--help");
    EXPECT_EQ(said.code, 0);
    EXPECT_EQ(said.err, "");
    EXPECT_NE(said.out.find("--help"), std::string::npos) << verb;
  }
  EXPECT_NE(attn_says("explain --help").out.find("--query"), std::string::npos);
  EXPECT_TRUE(attn_says("--version").out.starts_with("attn "));
}

TEST(Help, IsAVerbToo) {
  EXPECT_EQ(attn_says("help").out, attn_says("--help").out);
  for (const char* verb : {"explain", "run", "info", "verify", "bench", "train", "generate", "chat", "perplexity",
                           "convert", "completion"}) {
    const Said said = attn_says(std::string("help ") + verb);
    EXPECT_EQ(said.code, 0);
    EXPECT_EQ(said.out, attn_says(std::string(verb) + " --help").out);
    EXPECT_EQ(said.out.find("attn VERB"), std::string::npos) << verb;  // a verb's help ends with the verb's own example
  }
}

TEST(Help, IsTheAnswerToNothing) {
  const Said said = attn_says("");
  EXPECT_EQ(said.code, 2);
  EXPECT_EQ(said.out, "");
  EXPECT_EQ(said.err, attn_says("--help").out);
}

}  // namespace
}  // namespace attn::testing
