// tests/cli/train_folder_test.cc: attn train leaves other work in its folder alone; the settings of a training stay
// those that it began with.
#include "cli/running.h"
#include "cli/training.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

namespace attn::testing {
namespace {

TEST(TrainFolder, TwoDoNotWriteIntoOneFolder) {
  const Folder folder;
  const std::string out = folder.file("model"), arguments = "train " + folder.write("text", text()) + " --out " + out;
  Running first({"train", folder.file("text"), "--out", out, "--context", "16", "--batch", "2", "--steps", "100000000",
                 "--save-every", "100000000"});
  wait_for(out + "/config.json");
  const Said resumed = attn_says(arguments + " --resume"), begun = attn_says(arguments);
  EXPECT_EQ(resumed.code, 1);
  EXPECT_NE(resumed.err.find("/model: another attn train is at work there"), std::string::npos) << resumed.err;
  EXPECT_NE(begun.err.find("/model holds a training (step 0 of 100000000)"), std::string::npos) << begun.err;
  EXPECT_EQ(first.stop(SIGTERM), 0);
  EXPECT_NE(attn_says(arguments + " --resume --steps 1").err.find("--steps is 1"), std::string::npos) << "free again";
}

TEST(TrainFolder, AnotherModelsFolderIsLeftAlone) {
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

TEST(TrainFolder, TheLogMayLieInTheFolderThatIsMade) {
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

TEST(TrainFolder, AFolderKeepsItsSettings) {
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

}  // namespace
}  // namespace attn::testing
