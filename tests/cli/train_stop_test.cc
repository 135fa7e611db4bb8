// tests/cli/train_stop_test.cc: attn train that is stopped, killed or without room, and resumed to the bit.
#include <attn/safetensors.h>

#include "cli/running.h"
#include "cli/training.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include <chrono>
#include <random>
#include <set>
#include <sstream>
#include <thread>

namespace attn::testing {
namespace {

TEST(TrainStop, KilledAtAnyMomentItResumesToTheBit) {
  const Folder folder;
  ASSERT_NO_FATAL_FAILURE(train_whole(folder));
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 4; ++round) {
    const std::string out = folder.file("killed" + std::to_string(round));
    Running first({"train", folder.file("text"), "--out", out, "--context", "16", "--batch", "2", "--steps", "24",
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

TEST(TrainStop, ASignalSavesAndEndsWell) {
  const Folder folder;
  ASSERT_NO_FATAL_FAILURE(train_whole(folder));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string out = folder.file("stopped" + std::to_string(signal));
    // --save-every 1000: only the signal saves.
    Running run({"train", folder.file("text"), "--out", out, "--context", "16", "--batch", "2", "--steps", "24",
                 "--eval-every", "8", "--save-every", "1000", "--log", folder.file("log")});
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

TEST(TrainStop, AnIgnoredSignalStopsNothing) {  // as nohup starts it
  const Folder folder;
  folder.write("text", text());
  const auto before = ::signal(SIGHUP, SIG_IGN);
  Running run({"train", folder.file("text"), "--out", folder.file("out"), "--context", "16", "--batch", "2", "--steps",
               "24", "--eval-every", "8"},
              {.heard = {}});
  ::signal(SIGHUP, before);
  wait_for(folder.file("out/train_state.safetensors"));
  EXPECT_EQ(run.stop(SIGHUP), 0);
  EXPECT_EQ(attn_says("train " + folder.file("text") + " --resume --out " + folder.file("out")).err.find("step"),
            std::string::npos);
}

TEST(TrainStop, AFullDiskLeavesTheLastCheckpoint) {
  const Folder folder;
  ASSERT_NO_FATAL_FAILURE(train_whole(folder));
  const std::string out = folder.file("full");
  Running run({"train", folder.file("text"), "--out", out, "--context", "16", "--batch", "2", "--steps", "24",
               "--eval-every", "8", "--save-every", "3"});
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

TEST(TrainStop, StoppedBeforeItsFirstCheckpointItCanBeginAgain) {
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

TEST(TrainStop, AStepThatFitsAnotherMachineIsNotResumed) {
  const Folder folder;
  ASSERT_NO_FATAL_FAILURE(train_whole(folder));
  const std::string state = folder.file("whole/train_state.safetensors");
  Safetensors file = load_safetensors(state);
  std::string& facts = file.metadata.at("attn_train");
  facts.replace(facts.find("\"batch\":2"), 9, "\"batch\":2000000000");
  facts.replace(facts.find("\"parts\":0"), 9, "\"parts\":1");  // many parts would fit
  save_safetensors(state, file.tensors, file.metadata);
  const Said said = attn_says("train " + folder.file("text") + " --resume --out " + folder.file("whole"));
  EXPECT_EQ(said.code, 1);
  EXPECT_NE(said.err.find("a step of 2000000000 windows of 16 tokens needs more than"), std::string::npos) << said.err;
}

}  // namespace
}  // namespace attn::testing
