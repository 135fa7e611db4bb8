// tests/cli/train_command_test.cc: attn train as a user runs, stops, kills and resumes it.
#include <attn/safetensors.h>

#include "cli/command.h"
#include "cli/running.h"
#include "support/sanitized.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>
#include <random>
#include <set>
#include <thread>

namespace attn::testing {
namespace {

/// A text of 3,000 characters that is the same everywhere.
std::string text() {
  std::mt19937 random(5);
  std::string result;
  while (result.size() < 3000)
    result += std::vector<std::string>{"attention ", "is ", "all ", "you ", "need", ".\n", ", ", "the "}[random() % 8];
  return result;
}

/// Small enough for sanitizers: 16 windows of 16 characters a step are the work.
const std::string small = " --context 16 --batch 2 --steps 24 --eval-every 8 --save-every 3 ";

void wait_for(const std::string& path) {
  for (int i = 0; i < 60000 && !std::filesystem::exists(path); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

const std::vector<std::string> kFiles = {"config.json", "model.safetensors", "tokenizer.json",
                                         "train_state.safetensors"};

void expect_same_files(const std::string& a, const std::string& b) {
  for (const std::string& file : kFiles) EXPECT_TRUE(content_of(a + "/" + file) == content_of(b + "/" + file)) << file;
}

/// A training that nothing disturbs, in folder/whole.
void train_whole(const Folder& folder) {
  folder.write("text", text());
  const Said said = attn_says("train " + folder.file("text") + " --out " + folder.file("whole") + small);
  ASSERT_EQ(said.code, 0) << said.err;
  for (const std::string& file : kFiles) ASSERT_TRUE(std::filesystem::exists(folder.file("whole/" + file))) << file;
}

TEST(TrainCommand, KilledAtAnyMomentItResumesToTheBit) {
  const Folder folder;
  ASSERT_NO_FATAL_FAILURE(train_whole(folder));
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 4; ++round) {
    const std::string out = folder.file("killed" + std::to_string(round));
    Running first({folder.file("text"), "--out", out, "--context", "16", "--batch", "2", "--steps", "24",
                   "--eval-every", "8", "--save-every", "3"});
    wait_for(out + "/train_state.safetensors");
    const auto moment = std::chrono::microseconds(random() % 300000);
    std::this_thread::sleep_for(moment);
    SCOPED_TRACE(std::to_string(moment.count()) + " us after its first checkpoint");
    EXPECT_TRUE(std::set<int>({0, -SIGKILL}).contains(first.stop(SIGKILL)));
    const Said said = attn_says("train " + folder.file("text") + " --resume --out " + out);
    EXPECT_EQ(said.code, 0) << said.err;
    expect_same_files(out, folder.file("whole"));
    for (const auto& entry : std::filesystem::directory_iterator(out))
      EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
  }
}

TEST(TrainCommand, ASignalSavesAndEndsWell) {
  const Folder folder;
  ASSERT_NO_FATAL_FAILURE(train_whole(folder));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string out = folder.file("stopped" + std::to_string(signal));
    // --save-every 1000: only the signal saves.
    Running run({folder.file("text"), "--out", out, "--context", "16", "--batch", "2", "--steps", "24", "--eval-every",
                 "8", "--save-every", "1000", "--log", folder.file("log")});
    std::filesystem::remove(folder.file("log"));
    wait_for(out + "/train_state.safetensors");
    for (int i = 0; i < 60000 && content_of(folder.file("log")).find('\n') == std::string::npos; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(run.stop(signal), 0);
    const Said said =
        attn_says("train " + folder.file("text") + " --resume --out " + out + " --log " + folder.file("log"));
    EXPECT_EQ(said.code, 0) << said.err;
    expect_same_files(out, folder.file("whole"));
    // The log goes on where it was: every step once.
    std::istringstream lines(content_of(folder.file("log")));
    std::int64_t step = 0;
    for (std::string line; std::getline(lines, line);) EXPECT_EQ(nlohmann::json::parse(line).at("step"), ++step);
    EXPECT_EQ(step, 24);
  }
}

TEST(TrainCommand, AnIgnoredSignalStopsNothing) {  // as nohup starts it
  const Folder folder;
  folder.write("text", text());
  const auto before = ::signal(SIGHUP, SIG_IGN);
  Running run({folder.file("text"), "--out", folder.file("out"), "--context", "16", "--batch", "2", "--steps", "24",
               "--eval-every", "8"},
              {});
  ::signal(SIGHUP, before);
  wait_for(folder.file("out/train_state.safetensors"));
  EXPECT_EQ(run.stop(SIGHUP), 0);
  EXPECT_EQ(attn_says("train " + folder.file("text") + " --resume --out " + folder.file("out")).err.find("step"),
            std::string::npos);
}

TEST(TrainCommand, AFullDiskLeavesTheLastCheckpoint) {
  const Folder folder;
  ASSERT_NO_FATAL_FAILURE(train_whole(folder));
  const std::string out = folder.file("full");
  Running run({folder.file("text"), "--out", out, "--context", "16", "--batch", "2", "--steps", "24", "--eval-every",
               "8", "--save-every", "3"});
  wait_for(out + "/model.safetensors");
  wait_for(out + "/train_state.safetensors");
  run.stop(SIGKILL);
  const std::string before = content_of(out + "/train_state.safetensors");
  // A limit on the size of files stands for the disk: 1,024 bytes times 512.
  const Said said =
      shell("ulimit -f 512; " + attn_command + " train " + folder.file("text") + " --resume --out " + out);
  if (said.code != 0) {  // else it had been killed after its last step
    EXPECT_EQ(said.code, 1) << said.err;
    EXPECT_NE(said.err.find("File too large; the checkpoint of step"), std::string::npos) << said.err;
    EXPECT_NE(said.err.find("is whole, --resume goes on from it"), std::string::npos) << said.err;
    EXPECT_TRUE(content_of(out + "/train_state.safetensors") == before);
  }
  const Said again = attn_says("train " + folder.file("text") + " --resume --out " + out);
  EXPECT_EQ(again.code, 0) << again.err;
  expect_same_files(out, folder.file("whole"));
}

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

TEST(TrainCommand, StoppedBeforeItsFirstCheckpointItCanBeginAgain) {
  const Folder folder;
  ASSERT_NO_FATAL_FAILURE(train_whole(folder));
  const std::string command = "train " + folder.file("text") + " --out " + folder.file("model") + small;
  // Room for the weights, not for the first state, which is a little larger.
  const std::string fit = std::to_string(std::filesystem::file_size(folder.file("whole/model.safetensors")) / 1024 + 1);
  EXPECT_EQ(shell("ulimit -f " + fit + "; " + attn_command + " " + command).code, 1);
  const Said again = attn_says(command);
  EXPECT_EQ(again.code, 0) << again.err;
  expect_same_files(folder.file("model"), folder.file("whole"));
  // Between the first state and the first weights.
  const std::string state = folder.file("between");
  // before its second step
  ASSERT_EQ(attn_says("train " + folder.file("text") + " --out " + state + small + " --log /dev/full").code, 1);
  for (const char* file : {"/config.json", "/model.safetensors"}) std::filesystem::remove(state + file);
  EXPECT_EQ(attn_says("train " + folder.file("text") + " --out " + state + " --resume").code, 0);
  expect_same_files(state, folder.file("whole"));
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
      " train " + folder.file("text") + " --context 16 --out " + folder.file("model") + " --batch ";
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

TEST(TrainCommand, AStepThatFitsAnotherMachineIsNotResumed) {
  const Folder folder;
  ASSERT_NO_FATAL_FAILURE(train_whole(folder));
  const std::string state = folder.file("whole/train_state.safetensors");
  Safetensors file = load_safetensors(state);
  std::string& facts = file.metadata.at("attn_train");
  facts.replace(facts.find("\"batch\":2"), 9, "\"batch\":2000000000");
  save_safetensors(state, file.tensors, file.metadata);
  const Said said = attn_says("train " + folder.file("text") + " --resume --out " + folder.file("whole"));
  EXPECT_EQ(said.code, 1);
  EXPECT_NE(said.err.find("a step of 2000000000 windows of 16 tokens needs more than"), std::string::npos) << said.err;
}

TEST(TrainCommand, TwoDoNotWriteIntoOneFolder) {
  const Folder folder;
  const std::string out = folder.file("model"), arguments = "train " + folder.write("text", text()) + " --out " + out;
  Running first({folder.file("text"), "--out", out, "--context", "16", "--batch", "2", "--steps", "100000000",
                 "--save-every", "100000000"});
  wait_for(out + "/config.json");
  const Said resumed = attn_says(arguments + " --resume"), begun = attn_says(arguments);
  EXPECT_EQ(resumed.code, 1);
  EXPECT_NE(resumed.err.find("/model: another attn train is at work there"), std::string::npos) << resumed.err;
  EXPECT_NE(begun.err.find("/model holds a training (step 0 of 100000000)"), std::string::npos) << begun.err;
  EXPECT_EQ(first.stop(SIGTERM), 0);
  EXPECT_NE(attn_says(arguments + " --resume --steps 1").err.find("--steps is 1"), std::string::npos) << "free again";
}

TEST(TrainCommand, AnotherModelsFolderIsLeftAlone) {
  const Folder folder;
  std::filesystem::create_directory(folder.file("model"));
  for (const char* file : {"config.json", "model.safetensors.index.json", "model.safetensors"}) {
    folder.write(std::string("model/") + file, "{}");
    const Said said = attn_says("train " + folder.write("text", text()) + " --out " + folder.file("model") + small);
    EXPECT_EQ(said.code, 1);
    EXPECT_NE(said.err.find(std::string("a model that was not trained here (") + file + "); another --out"),
              std::string::npos)
        << said.err;
    std::filesystem::remove(folder.file("model/") + file);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.file("model")));
  const std::string picture = folder.write("model/loss.svg", "<svg/>");
  const Said drawn = attn_says("train " + folder.file("text") + " --out " + folder.file("model") + small);
  EXPECT_EQ(drawn.code, 1);
  EXPECT_NE(
      drawn.err.find("/model holds a picture that no training there has drawn (loss.svg); another --out begins anew\n"),
      std::string::npos)
      << drawn.err;
  EXPECT_EQ(content_of(picture), "<svg/>");
  std::filesystem::remove(picture);
  EXPECT_TRUE(std::filesystem::is_empty(folder.file("model")));
  // A tokenizer alone, too, unless it is the one that would be written.
  const std::string arguments =
      "train " + folder.file("text") + " --out " + folder.file("model") + " --context 16 --batch 2 --steps 2";
  const std::string another = folder.write("model/tokenizer.json", "{}");
  const Said said = attn_says(arguments);
  EXPECT_EQ(said.code, 1);
  EXPECT_NE(said.err.find("/model holds a tokenizer that is not that of this text and these options (tokenizer.json); "
                          "another --out begins anew\n"),
            std::string::npos)
      << said.err;
  EXPECT_EQ(content_of(another), "{}");
  std::filesystem::remove(another);
  ASSERT_EQ(attn_says(arguments).code, 0);
  for (const auto& entry : std::filesystem::directory_iterator(folder.file("model")))
    if (entry.path().filename() != "tokenizer.json") std::filesystem::remove(entry);
  EXPECT_EQ(attn_says(arguments).code, 0);
}

TEST(TrainCommand, TheLogMayLieInTheFolderThatIsMade) {
  const Folder folder;
  const std::string log = folder.file("model") + "/log";
  const Said said =
      attn_says("train " + folder.write("text", text()) + small + "--out " + folder.file("model") + " --log " + log);
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_NE(content_of(log).find("{\"step\":"), std::string::npos);
  std::filesystem::create_symlink(folder.file("later"), folder.file("link"));  // what it names does not exist yet
  EXPECT_EQ(
      attn_says("train " + folder.file("text") + " --out /proc/nowhere --log " + folder.file("link") + small).code, 1);
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
}

TEST(TrainCommand, AFolderKeepsItsSettings) {
  const Folder folder;
  ASSERT_NO_FATAL_FAILURE(train_whole(folder));
  const std::string to = folder.file("text") + " --out " + folder.file("whole");
  const auto says = [&](const std::string& arguments, int code, const std::string& what) {
    const Said said = attn_says("train " + arguments);
    EXPECT_EQ(said.code, code) << said.err;
    EXPECT_NE(said.err.find(what), std::string::npos) << said.err;
  };
  says(to, 1, "holds a training (step 24 of 24): --resume goes on with it, another --out begins anew");
  says(to + " --resume --steps 20", 2, "--steps is 20, the training in " + folder.file("whole") + " has 24");
  says(to + " --resume --size baby", 2, "--size baby is not that of the training");
  says(to + " --resume --tokens bpe", 2, "--tokens bpe are not those of the training");
  says(to + " --resume --steps 24 --context 16", 0, "");
  const std::string notes = folder.write("notes", "mine\nand not a log\n");
  says(to + " --resume --log " + notes, 1, "notes holds something else than a training's lines");
  EXPECT_EQ(content_of(notes), "mine\nand not a log\n");
  says(to + " --resume --log " + folder.write("line", "{\"mine\": 1}"), 1,
       "line holds something else than a training's lines");
  says(to + " --resume --vocab 300", 2, "--vocab 300 gives another vocabulary");
  const std::string pairs = folder.file("text") + " --out " + folder.file("pairs") + " --tokens bpe";
  says(pairs + small + "--vocab 270", 0, "");
  says(pairs + " --resume --vocab 280", 2,
       "--vocab 280 gives another vocabulary than that of the training in " + folder.file("pairs") + " (270)");
  says(pairs + " --resume --vocab 270", 0, "");
  folder.write("other", text() + "need");
  says(folder.file("other") + " --out " + folder.file("whole") + " --resume", 1, "was begun with another text");
  folder.write("newer", text() + "#");  // a character that the vocabulary does not have
  says(folder.file("newer") + " --out " + folder.file("whole") + " --resume", 1,
       "/whole was begun with another text: \"#\" is not among the");
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
