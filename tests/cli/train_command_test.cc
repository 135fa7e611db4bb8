// tests/cli/train_command_test.cc: attn train as a user runs it: mistakes, logs, kinds of tokens, what it learns.
#include "cli/training.h"
#include "support/sanitized.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

namespace attn::testing {
namespace {

TEST(TrainCommand, WhatCannotBeWrittenIsSaidBeforeTheFirstStep) {
  const Folder folder;
  folder.write("text", text());
  folder.write("file", "x");
  const Said said = attn_says("train " + folder.file("text") + " --out " + folder.file("file") + "/model" + small);
  EXPECT_EQ(said.code, 1);
  EXPECT_NE(said.err.find("/model: Not a directory"), std::string::npos) << said.err;
  EXPECT_EQ(said.err.find("step"), std::string::npos) << said.err;
  const Said full = shell("ulimit -f 100; " + attn_command + " train " + folder.file("text") + " --out " +
                          folder.file("model") + small);
  EXPECT_EQ(full.code, 1);
  EXPECT_NE(full.err.find("File too large"), std::string::npos) << full.err;
  EXPECT_FALSE(std::filesystem::exists(folder.file("model")));
}

TEST(TrainCommand, TheCurveIsXmlWhateverTheNameOfTheText) {
  const Folder folder;
  folder.write("a\xFF\x01<&\".txt", text());
  ASSERT_EQ(shell("cd '" + folder.file(".") + "' && " + attn_command +
                  " train *.txt --out model --context 16 --batch 2 --steps 2")
                .code,
            0);
  const std::string curve = content_of(folder.file("model/loss.svg"));
  EXPECT_NE(curve.find("attn train a\xEF\xBF\xBD\xEF\xBF\xBD&lt;&amp;&quot;.txt"), std::string::npos)
      << curve.substr(0, 300);
}

TEST(TrainCommand, AClosedStderrLeavesTheLogAlone) {
  const Folder folder;
  folder.write("text", text());
  const std::string command =
      attn_command + " train " + folder.file("text") + " --context 16 --batch 2 --steps 4 --out ";
  ASSERT_EQ(shell(command + folder.file("model") + " --log " + folder.file("log") + " 2>&-").code, 0);
  std::ifstream log(folder.file("log"));
  int steps = 0;
  for (std::string line; std::getline(log, line);)
    EXPECT_EQ(nlohmann::json::parse(line, nullptr, false).value("step", 0), ++steps) << line;
  EXPECT_EQ(steps, 4);
  EXPECT_EQ(shell(command + folder.file("other") + " >&-").code, 1);  // the result went nowhere
}

TEST(TrainCommand, MistakesAreOneLine) {
  const Folder folder;
  folder.write("text", text());
  folder.write("empty", "");
  folder.write("short", "abc");
  folder.write("bytes", "abc\xFF");
  const auto says = [&](const std::string& arguments, int code, const std::string& what) {
    const Said said = attn_says("train " + arguments);
    EXPECT_EQ(said.code, code) << arguments << ": " << said.err;
    EXPECT_NE(said.err.find(what), std::string::npos) << said.err;
    EXPECT_EQ(std::count(said.err.begin(), said.err.end(), '\n'), 1) << said.err;
    EXPECT_EQ(said.out, "");
  };
  const std::string to = " --out " + folder.file("model") + small, ok = folder.file("text") + to;
  says("", 2, "a text is missing, as in: attn train");
  says("/nowhere" + to, 1, "/nowhere: cannot be read: No such file or directory");
  says(folder.file("empty") + to, 1, "/empty: there is no text");
  says(folder.file("short") + to, 1, "the text has 3 tokens; windows of 16 need at least");
  says(folder.write("one", "a") + to, 1, "the text has 1 token; windows of 16 need at least");
  says(folder.file("bytes") + to, 1, "/bytes: the byte at offset 3 is not UTF-8; --tokens bpe takes any bytes");
  says(ok + "--size medium", 2, "--size has no \"medium\"; there are nano, baby, small");
  says(ok + "--size nanoo", 2, "did you mean nano?");
  says(ok + "--tokens letters", 2, "--tokens has no \"letters\"");
  says(ok + "--dtype f16", 2, "--dtype has no \"f16\"");
  says(ok + "--vocab 300", 2, "--vocab goes with --tokens words or bpe");
  says(ok + "--tokens bpe --vocab 3", 1, "vocab_size is 3; it must be from 256");
  says(ok + "--lr -1", 1, "lr is -1; it must be 0 or more");
  says(ok + "--lr fast", 2, "--lr: must be a number, not \"fast\"");
  says(folder.file("text") + " --out " + folder.file("model") + " --steps 0", 1, "steps is 0; it must be 1 or more");
  says(folder.file("text") + " --out " + folder.file("model") + " --save-every 0", 1,
       "save_every is 0; it must be 1 or more");
  says(ok + "--log /nowhere/log", 1, "--log: /nowhere/log: No such file");
  says(ok + "--log " + folder.file("."), 1, "Is a directory");
  says(ok + "--log " + folder.file("text"), 1, "/text holds something else than a training's lines; name another file");
  EXPECT_EQ(content_of(folder.file("text")), text());
  says(ok + "--resume", 1, "/model holds no training to resume");
  const std::string bare = folder.file("text") + " --out " + folder.file("model");
  says(bare + " --batch 1000000000000", 1, "batch is 1000000000000; it must be from 1 to 2147483647");
  says(folder.file("text") + " --out ''", 2, "--out is empty; it must name a folder");
  EXPECT_FALSE(std::filesystem::exists(folder.file("model"))) << "a mistake leaves no folder behind";
}

TEST(TrainCommand, AStepWithoutMemoryLeavesNoFolder) {
  const Folder folder;
  folder.write("text", text());
  const std::string arguments =
      " train " + folder.file("text") + " --context 16 --parts 1 --out " + folder.file("model") + " --batch ";
  const Said more = attn_says(arguments + "2000000000");  // than any machine has
  EXPECT_EQ(more.code, 1);
  EXPECT_NE(more.err.find("a step of 2000000000 windows of 16 tokens needs more than "), std::string::npos) << more.err;
  EXPECT_FALSE(std::filesystem::exists(folder.file("model")));
  if (sanitized) GTEST_SKIP() << "a sanitizer needs more addresses";
  const Said said = shell("ulimit -v 700000; " + attn_command + arguments + "5000");
  EXPECT_EQ(said.code, 1);
  EXPECT_NE(said.err.find("not enough memory for a step of 5000 windows of 16 tokens; a smaller --batch"),
            std::string::npos)
      << said.err;
  EXPECT_FALSE(std::filesystem::exists(folder.file("model")));
}

TEST(TrainCommand, EveryKindOfToken) {
  const Folder folder;
  folder.write("one", text());
  folder.write("two", text() + "人生苦短，先吃甜点。");
  for (const std::string kind : {"--tokens characters", "--tokens words", "--tokens bpe --vocab 300 --dtype bf16"}) {
    const std::string out = folder.file("model" + kind.substr(9, 3));
    const Said said = attn_says("train " + folder.file("one") + " " + folder.file("two") + " " + kind + " --out " +
                                out + " --context 8 --batch 2 --steps 2");
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_NE(said.out.find("best validation loss"), std::string::npos) << said.out;
    EXPECT_NE(content_of(out + "/loss.svg").find("</svg>"), std::string::npos);
  }
}

TEST(TrainCommand, ALogOnStdoutStandsThereAlone) {
  const Folder folder;
  const std::string command = "train " + folder.write("text", text()) + small;
  const Said said = attn_says(command + "--log - --out " + folder.file("model"));
  ASSERT_EQ(said.code, 0) << said.err;
  ASSERT_EQ(attn_says(command + "--log " + folder.file("log") + " --out " + folder.file("other")).code, 0);
  const auto losses = [](const std::string& log) {
    std::vector<double> all;
    std::istringstream lines(log);
    for (std::string line; std::getline(lines, line);) all.push_back(nlohmann::json::parse(line).at("loss"));
    return all;
  };
  EXPECT_EQ(losses(said.out), losses(content_of(folder.file("log"))));
  EXPECT_NE(said.err.find("best validation loss"), std::string::npos) << said.err;
  const Said gone = shell("(" + attn_command + " " + command + "--log - --out " + folder.file("third") + "; echo $? >" +
                          folder.file("code") + ") | :");
  EXPECT_EQ(content_of(folder.file("code")), "1\n");
  EXPECT_NE(gone.err.find("--log: stdout: Broken pipe; the checkpoint of step"), std::string::npos) << gone.err;
}

// In ./check: the loss falls by more than a nat in a minute at most.
TEST(TrainCommand, LearnsAText) {
  const std::string license = "/usr/share/common-licenses/GPL-3";
  if (!std::filesystem::exists(license)) GTEST_SKIP() << "this system has no " << license;
  const Folder folder;
  const Said said = attn_says("train " + license + " --steps 120 --eval-every 60 --context 32 --batch 8 --log " +
                              folder.file("log") + " --out " + folder.file("model"));
  ASSERT_EQ(said.code, 0) << said.err;
  std::istringstream lines(content_of(folder.file("log")));
  std::vector<double> losses, validations;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    losses.push_back(json.at("loss"));
    if (json.contains("validation")) validations.push_back(json.at("validation"));
  }
  ASSERT_EQ(losses.size(), 120u);
  EXPECT_NEAR(losses[0], std::log(76.0), 0.3) << "76 characters, nothing learnt";
  EXPECT_LT(losses.back(), losses[0] - 1);
  ASSERT_EQ(validations.size(), 2u);
  EXPECT_LT(validations[1], validations[0]);
}

}  // namespace
}  // namespace attn::testing
