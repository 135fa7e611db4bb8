// tests/cli/training.h: a small training by the command, and the files that it must leave.
#pragma once
#include "cli/command.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace attn::testing {

/// A text of 3,000 characters that is the same everywhere.
inline std::string text() {
  std::mt19937 random(5);
  std::string result;
  while (result.size() < 3000)
    result += std::vector<std::string>{"attention ", "is ", "all ", "you ", "need", ".\n", ", ", "the "}[random() % 8];
  return result;
}

/// Small enough for sanitizers: 16 windows of 16 characters a step are the work.
inline const std::string small = " --context 16 --batch 2 --steps 24 --eval-every 8 --save-every 3 ";

inline void wait_for(const std::string& path) {
  for (int i = 0; i < 60000 && !std::filesystem::exists(path); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

inline const std::vector<std::string> model_files = {"config.json", "model.safetensors", "tokenizer.json",
                                                     "train_state.safetensors"};

inline void expect_same_files(const std::string& a, const std::string& b) {
  for (const std::string& file : model_files)
    EXPECT_TRUE(content_of(a + "/" + file) == content_of(b + "/" + file)) << file;
}

/// A training that nothing disturbs, in folder/whole.
inline void train_whole(const Folder& folder) {
  folder.write("text", text());
  const Said said = attn_says("train " + folder.file("text") + " --out " + folder.file("whole") + small);
  ASSERT_EQ(said.code, 0) << said.err;
  for (const std::string& file : model_files)
    ASSERT_TRUE(std::filesystem::exists(folder.file("whole/" + file))) << file;
}

}  // namespace attn::testing
