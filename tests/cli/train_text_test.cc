// tests/cli/train_text_test.cc: attn train over texts with a mark, texts in Chinese, more steps, and a folder that goes
// away.
#include "cli/command.h"
#include "cli/running.h"

#include <attn/tokenizer.h>
#include <attn/train.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <thread>

namespace attn::testing {
namespace {

std::string repeated(const std::string& sentence, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += sentence;
  return text;
}

const std::string small = " --context 8 --batch 2 --steps 12 --eval-every 4 ";

TEST(TrainText, AByteOrderMarkIsNoCharacter) {
  const Folder folder;
  const std::string mark = "\xEF\xBB\xBF", plain = repeated("life is short. ", 40);
  folder.write("plain", plain);
  folder.write("marked", mark + plain);
  for (const std::string kind : {"characters", "words", "bpe --vocab 260"}) {
    SCOPED_TRACE(kind);
    const std::string a = folder.file("a" + kind.substr(0, 1)), b = folder.file("b" + kind.substr(0, 1));
    ASSERT_EQ(attn_says("train " + folder.file("plain") + " " + folder.file("plain") + small + "--tokens " + kind +
                        " --out " + a)
                  .code,
              0);
    ASSERT_EQ(attn_says("train " + folder.file("marked") + " - <" + folder.file("marked") + small + "--tokens " + kind +
                        " --out " + b)
                  .code,
              0);
    for (const char* file : {"/tokenizer.json", "/model.safetensors", "/train_state.safetensors"})
      EXPECT_TRUE(content_of(a + file) == content_of(b + file)) << file;
    EXPECT_EQ(attn_says("train " + folder.file("marked") + " " + folder.file("plain") + " --resume --out " + a).code, 0)
        << "the same text";
  }
  const Said nothing = attn_says("train " + folder.write("nothing", mark) + small + "--out " + folder.file("none"));
  EXPECT_EQ(nothing.code, 1);
  EXPECT_NE(nothing.err.find("/nothing: there is no text"), std::string::npos) << nothing.err;
  const Said wrong =
      attn_says("train " + folder.write("wrong", mark + "ab\xFF") + small + "--out " + folder.file("none"));
  EXPECT_NE(wrong.err.find("/wrong: the byte at offset 5 is not UTF-8"), std::string::npos) << wrong.err;
}

TEST(TrainText, WordsOfChineseAreItsCharacters) {
  const Folder folder;
  folder.write("text", repeated("人生苦短，先吃甜点。life is short. かな カナ\n", 30));
  const std::string out = folder.file("model");
  const Said said = attn_says("train " + folder.file("text") + small + "--tokens words --out " + out);
  ASSERT_EQ(said.code, 0) << said.err;
  const Tokenizer tokenizer = Tokenizer::load(out);
  EXPECT_EQ(tokenizer.kind(), Tokenizer::Kind::words);
  for (const char* word :
       {"人", "生", "苦", "短", "先", "吃", "甜", "点", "か", "な", "カ", "ナ", "，", "。", "life", " is", " short"})
    EXPECT_TRUE(tokenizer.find(word)) << word;
  for (const char* run : {"人生苦短", "先吃甜点", "かな", " カナ", "人生", "短，"})
    EXPECT_FALSE(tokenizer.find(run)) << run;
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("甜点，life is 人生")), "甜点，life is 人生");
}

TEST(TrainText, MoreStepsGoOn) {
  const Folder folder;
  const std::string command = "train " + folder.write("text", repeated("life is short, eat dessert first. ", 30)),
                    to = " --out " + folder.file("model");
  ASSERT_EQ(attn_says(command + small + to).code, 0);
  const Said said = attn_says(command + to + " --resume --steps 20 --log " + folder.file("log"));
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_NE(said.err.find(
                "12 steps become 20: from step 13 on the learning rate is that of 20, 4.72e-04 instead of 1.00e-04\n"),
            std::string::npos)
      << said.err;
  EXPECT_NE(said.out.find("best validation loss"), std::string::npos);
  EXPECT_EQ(Trainer::find(folder.file("model"))->second, 20);
  EXPECT_EQ(Trainer::find(folder.file("model"))->first.steps, 20);
  std::istringstream lines(content_of(folder.file("log")));
  std::int64_t step = 12;
  for (std::string line; std::getline(lines, line);) EXPECT_EQ(nlohmann::json::parse(line).at("step"), ++step);
  EXPECT_EQ(step, 20);
  const Said same = attn_says(command + to + " --resume --steps 20"),
             fewer = attn_says(command + to + " --resume --steps 19");
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_EQ(same.err.find("become"), std::string::npos);
  EXPECT_EQ(fewer.code, 2);
  EXPECT_NE(
      fewer.err.find("--steps is 19, the training in " + folder.file("model") + " has 20; leave it out, or begin anew"),
      std::string::npos)
      << fewer.err;
}

/// Stopped anywhere, what was extended goes on to the bit without being told again.
TEST(TrainText, MoreStepsResumeToTheBit) {
  const Folder folder;
  const std::string command = "train " + folder.write("text", repeated("life is short, eat dessert first. ", 30));
  ASSERT_EQ(attn_says(command + small + "--out " + folder.file("a")).code, 0);
  std::filesystem::copy(folder.file("a"), folder.file("b"));
  ASSERT_EQ(attn_says(command + " --resume --steps 40 --out " + folder.file("a")).code, 0);
  Running first(
      {"train", folder.file("text"), "--out", folder.file("b"), "--resume", "--steps", "40", "--save-every", "3"});
  while (Trainer::find(folder.file("b"))->first.steps != 40) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  first.stop(SIGKILL);
  ASSERT_EQ(attn_says(command + " --resume --out " + folder.file("b")).code, 0);
  for (const char* file : {"/model.safetensors", "/train_state.safetensors"})
    EXPECT_TRUE(content_of(folder.file("a") + file) == content_of(folder.file("b") + file)) << file;
}

TEST(TrainText, AFolderThatGoesAwayIsAnError) {
  for (const bool replaced : {false, true}) {
    const Folder folder;
    const std::string out = folder.file("model"), err = folder.file("err"),
                      text = folder.write("text", repeated("life is short. ", 40));
    // Stays within the shell, so that its exit code and its line are seen.
    const std::string change = replaced ? "mv " + out + " " + out + ".old; mkdir " + out : "rm -rf " + out;
    const Said said = shell(attn_command + " train " + text +
                            " --context 8 --batch 2 --steps 100000000 --save-every 1000 --eval-every 1000 --out " +
                            out + " & train=$!; while [ ! -e " + out +
                            "/config.json ]; do sleep 0.01; done; sleep 0.1; " + change + "; wait $train");
    EXPECT_EQ(said.code, 1) << said.err;
    EXPECT_NE(
        said.err.find("/model: the folder was removed, renamed or replaced while the training ran; it ends here\n"),
        std::string::npos)
        << said.err;
    EXPECT_TRUE(replaced ? std::filesystem::is_empty(out) : !std::filesystem::exists(out));
  }
}

TEST(TrainText, ADamagedCheckpointIsNotResumed) {
  const Folder folder;
  const std::string command = "train " + folder.write("text", repeated("life is short. ", 40)),
                    out = folder.file("model");
  ASSERT_EQ(attn_says(command + small + "--out " + out).code, 0);
  std::string state = content_of(out + "/train_state.safetensors");
  state[state.size() / 2] ^= 1;
  folder.write("model/train_state.safetensors", state);
  const Said said = attn_says(command + " --resume --out " + out);
  EXPECT_EQ(said.code, 1);
  EXPECT_NE(said.err.find("/train_state.safetensors: damaged: its checksum is "), std::string::npos) << said.err;
  std::string model = content_of(out + "/model.safetensors");
  model[model.size() - 3] ^= 16;
  folder.write("model/model.safetensors", model);
  const Said text = attn_says("generate " + out + " --prompt life");
  EXPECT_EQ(text.code, 1);
  EXPECT_NE(text.err.find("/model.safetensors: damaged: its checksum is "), std::string::npos) << text.err;
  EXPECT_EQ(text.out, "");
}

/// A limit on the size of files is an error of a write for every verb, not a death by SIGXFSZ.
TEST(TrainText, AFileThatMayNotGrowIsAnErrorOfEveryVerb) {
  const Folder folder;
  const std::string limit = "ulimit -f 1; " + attn_command, words = repeated("w ", 60);
  for (const std::string& arguments :
       {" explain '" + words + "' >" + folder.file("a"), " explain --svg " + folder.file("b") + " '" + words + "'",
        " verify 'attention f32' --json >" + folder.file("c"),
        " train " + folder.write("text", words + words) + " --context 8 --steps 1 --out " + folder.file("model"),
        std::string(" completion bash >") + folder.file("d")}) {
    const Said said = shell(limit + arguments);
    EXPECT_EQ(said.code, 1) << arguments << said.err;
    EXPECT_NE(said.err.find("File too large"), std::string::npos) << arguments << said.err;
  }
}

}  // namespace
}  // namespace attn::testing
