// tests/cli/bounds_command_test.cc: metadata that is no option, cases without a size, and whatever is given: one short
// line, safe to print.
#include "cli/command.h"

#include <attn/ops.h>
#include <attn/safetensors.h>
#include <attn/text.h>

#include <gtest/gtest.h>

#include <algorithm>

namespace attn::testing {
namespace {

/// One line of at most 1100 bytes, none of which steers a terminal.
void expect_a_line(const Said& said, int code) {
  EXPECT_EQ(said.code, code) << said.err;
  EXPECT_EQ(said.out, "");
  EXPECT_TRUE(said.err.starts_with("attn") && said.err.ends_with("\n")) << said.err;
  EXPECT_LE(said.err.size(), 1100u);
  EXPECT_FALSE(text::invalid_utf8(said.err));
  EXPECT_EQ(std::count_if(said.err.begin(), said.err.end(),
                          [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }),
            1)
      << said.err;
}

TEST(Metadata, AnOptionThatThereIsNotIsNamedAsInJson) {
  const Folder folder;
  const Tensor x = ones({2, 2});
  const auto run_with = [&](const std::string& name, const std::string& value) {
    save_safetensors(folder.file("in.safetensors"), {{"q", x}, {"k", x}, {"v", x}}, {{name, value}});
    return attn_says("run " + folder.file("in.safetensors"));
  };
  for (const auto& [name, meant] :
       {std::pair{"casual", "causal"}, std::pair{"temprature", "temperature"}, std::pair{"score-mod", "score_mod"},
        std::pair{"Mask", "mask"}, std::pair{"weight", "weights"}, std::pair{"soft_cap", "softcap"}}) {
    const Said said = run_with(name, "1");
    expect_a_line(said, 1);
    EXPECT_NE(said.err.find(std::string("there is no \"") + name + "\"; did you mean " + meant + "?"),
              std::string::npos)
        << said.err;
    const Said json = attn_says("run " + folder.write("call.json", R"({"q": [[1]], "k": [[1]], "v": [[1]], ")" +
                                                                       std::string(name) + "\": \"1\"}"));
    EXPECT_EQ(json.err.substr(json.err.find("there is no")), said.err.substr(said.err.find("there is no")));
  }
  const Said other = run_with("window", "3");
  expect_a_line(other, 1);
  EXPECT_NE(other.err.find("there is no \"window\"; there are q, k, v"), std::string::npos) << other.err;
  for (const char* foreign : {"format", "modelspec.title", "author:name"})
    EXPECT_EQ(run_with(foreign, "pt").code, 0) << foreign;
  EXPECT_EQ(run_with("causal", "true").code, 0);
}

TEST(Cases, WithoutASizeAreOneLine) {
  for (const std::string verb : {"verify", "bench --seconds 0"})
    for (const char* line : {"attention f32 Hq=0",
                             "attention f32 B=0",
                             "attention f32 Tq=0",
                             "attention f32 Tk=0",
                             "attention f32 Hq=3 Hk=2",
                             "attention_decode bf16 Hk=0",
                             "attention_backward f32 Dv=0",
                             "matmul f32 M=0",
                             "matmul f32 N=0",
                             "softmax f32 rows=0",
                             "sum f32 N=0",
                             "attention f32 Hq=-1",
                             "attention f32 Hq=1e9",
                             "attention f32 Hq=",
                             "matmul f32 M=16777216 N=16777216",
                             "attention f32 Tq=16777216",
                             "attention f32 dropout=2",
                             "attention f32 temperature=0",
                             "attention f32 softcap=-1",
                             "attention f32 score=additive A=0",
                             "attention f32 cache=block Tq=3 Tk=2 weights=rowz"}) {
      const Said said = attn_says(verb + " '" + line + "'");
      SCOPED_TRACE(verb + " " + line);
      EXPECT_EQ(said.code, 1);
      EXPECT_EQ(std::count(said.err.begin(), said.err.end(), '\n'),
                verb == "verify" ? 1 : std::count(said.err.begin(), said.err.end(), '\n'))
          << said.err;
      EXPECT_EQ(said.err.find("undefined"), std::string::npos) << said.err;
    }
  EXPECT_EQ(attn_says("bench --seconds 0 'matmul f32 M=0'").err,
            "attn: case: M=0 is not understood; it must be a number from 1 to 16777216\n");
  EXPECT_TRUE(attn_says("bench --seconds 0 'matmul f32 M=2 N=2 K=0'")
                  .err.ends_with("\nattn: bench: K is 0; there is nothing to measure\n"));
  EXPECT_TRUE(attn_says("bench --seconds 0 'attention f32 D=0'")
                  .err.ends_with("\nattn: bench: D is 0; there is nothing to measure\n"));
}

TEST(Lines, AreShortAndSafeWhateverIsGiven) {
  const Folder folder;
  const std::string endless = "\"$(printf 'x%.0s' $(seq 100000))\"", steering = "$'a\\x1b[31m\\x7f\\xff\\nb\\u202e'";
  for (const std::string& given : {endless, steering}) {
    SCOPED_TRACE(given);
    for (const std::string words :
         {"explain hi --mask ", "explain hi --score-mod ", "explain hi --score ", "explain hi --heads ",
          "explain hi --lang ", "explain hi --weights ", "run x --dtype ", "run x --mask ", "verify ", "bench ",
          "bench --only ", "completion ", "", "info ", "run ", "explain hi --", "train ", "generate ",
          "generate x --stop "}) {
      SCOPED_TRACE(words);
      const Said said =
          shell("bash '" + folder.write("line.sh", attn_command + " " + words + given + " </dev/null") + "'");
      EXPECT_TRUE(said.code == 1 || said.code == 2) << said.code;
      expect_a_line(said, said.code);
    }
  }
  const std::string name(50000, 'n');
  for (const std::string& json :
       {"{\"" + name + "\": 1}", "{\"" + std::string("\\u001b[31m\\u0000\\n\\u202e") + "\": \"1\"}",
        R"({"q": [[1]], "k": [[1]], "v": [[1]], "mask": ")" + name + "\"}",
        R"({"q": {"dtype": ")" + name + R"(", "values": [[1]]}, "k": [[1]], "v": [[1]]})",
        R"({"q": {")" + name + R"(": 1}, "k": [[1]], "v": [[1]]})"})
    expect_a_line(attn_says("run " + folder.write("call.json", json)), 1);
}

}  // namespace
}  // namespace attn::testing
