// tests/cli/train_pairs_test.cc: attn train --pairs trains, stops and resumes to the bit, and names mistakes.
#include "cli/running.h"
#include "cli/training.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

namespace attn::testing {
namespace {

std::string pairs_text() {
  const std::vector<std::string> words = {"one", "two", "six", "ten"}, others = {"yi", "er", "liu", "shi"};
  std::string text;
  for (std::size_t i = 0; i < 40; ++i)
    text += words[i % 4] + " " + words[i / 4 % 4] + "\t" + others[i % 4] + " " + others[i / 4 % 4] + "\n";
  return text;
}

const std::string small_pairs = " --tokens words --batch 4 --steps 24 --eval-every 8 --save-every 3 ";

TEST(TrainPairsCommand, StoppedAndResumedIsAsWhole) {
  const Folder folder;
  const std::string pairs = folder.write("pairs.tsv", pairs_text()), arguments = "train --pairs " + pairs + " --out ";
  const Said whole = attn_says(arguments + folder.file("whole") + small_pairs);
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_NE(whole.err.find("2 + 2 layers, 4 heads, width 128; 20 words; batch 4; f32"), std::string::npos) << whole.err;
  EXPECT_NE(whole.out.find("best validation loss"), std::string::npos) << whole.out;
  EXPECT_TRUE(std::filesystem::exists(folder.file("whole/loss.svg")));
  Running first({"train", "--pairs", pairs, "--out", folder.file("parts"), "--tokens", "words", "--batch", "4",
                 "--steps", "24", "--eval-every", "8", "--save-every", "3"});
  wait_for(folder.file("parts/config.json"));
  EXPECT_EQ(first.stop(SIGINT), 0);
  const Said resumed = attn_says(arguments + folder.file("parts") + " --resume", "ATTN_NUM_THREADS=1");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  expect_same_files(folder.file("whole"), folder.file("parts"));
}

TEST(TrainPairsCommand, Mistakes) {
  const Folder folder;
  const auto error = [&](const std::string& content, const std::string& more = "") {
    const Said said =
        attn_says("train --pairs " + folder.write("p.tsv", content) + " --out " + folder.file("m") + more);
    EXPECT_NE(said.code, 0);
    EXPECT_FALSE(std::filesystem::exists(folder.file("m")));
    return said.err;
  };
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(error("one\tyi\ntwo er\n"), "p.tsv: line 2 has no tab; a line is a source, one tab and a target");
  expect(error("one\tyi\ntwo\ter\tsan\n"), "p.tsv: line 2 has more than one tab; ");
  expect(error("one\tyi\n\nsix\t\n"), "p.tsv: line 3 has no target; ");
  expect(error("\tyi\n"), "p.tsv: line 1 has no source; ");
  expect(error("one\tyi\n"), "p.tsv: one pair is there; at least 2 are needed, one of them for validation");
  expect(error("one\tyi\none\ter\n", " --context 3"), "the source of pair 1 has 4 tokens; the model reads at most 3");
  expect(error("one\tyi\n", " " + folder.file("p.tsv")), "alone; leave out ");
  expect(attn_says("train " + folder.file("p.tsv") + " --label-smoothing 0.1").err,
         "--label-smoothing goes with --pairs");
  expect(error("one\tyi\ntwo\ter\n", " --parts 65"),
         "Trainer: parts is 65; it must be from 1 to the 64 pairs of a batch, or 0, which is 1");
  const std::string pairs = folder.write("pairs.tsv", pairs_text());
  ASSERT_EQ(
      attn_says("train --pairs " + pairs + " --out " + folder.file("m") + " --tokens words --batch 4 --steps 2").code,
      0);
  expect(attn_says("train " + folder.write("text", text()) + " --resume --out " + folder.file("m")).err,
         "is of pairs (--pairs); --resume needs them again");
  expect(attn_says("train --pairs " + pairs + " --resume --label-smoothing 0.2 --out " + folder.file("m")).err,
         "--label-smoothing is 0.2, the training in");
}

}  // namespace
}  // namespace attn::testing
