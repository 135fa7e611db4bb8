// tests/model/paths_test.cc: a path with a zero byte is refused by everything that takes one, and nothing is made under
// the name before it.
#include "model/tiny_models.h"
#include "support/errors.h"

#include <attn/npy.h>
#include <attn/ops.h>
#include <attn/safetensors.h>
#include <attn/train.h>

#include <gtest/gtest.h>

#include <functional>

namespace attn {
namespace {

TEST(Paths, WithAZeroByte) {
  const testing::Folder folder;
  const LanguageModel model(testing::tiny_gpt2());
  const Tokenizer tokenizer = Tokenizer::train("ab", Tokenizer::Kind::characters);
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 200; ++i) ids.push_back(i % 13);
  const Trainer trainer(ids, {.model = testing::tiny_gpt2(), .steps = 2, .batch = 1});
  // What stands under the name before the byte.
  const std::string there = folder / "there", path = there + std::string("\0.x", 3);
  model.save(there);
  tokenizer.save(there);
  trainer.save(there);
  const std::vector<std::pair<const char*, std::function<void()>>> calls = {
      {"LanguageModel::load", [&] { LanguageModel::load(path); }},
      {"LanguageModel::save", [&] { model.save(path); }},
      {"LanguageModel::save", [&] { trainer.save_model(path); }},
      {"Tokenizer::load", [&] { Tokenizer::load(path); }},
      {"Tokenizer::save", [&] { tokenizer.save(path); }},
      {"Trainer::save", [&] { trainer.save(path); }},
      {"Trainer::find", [&] { Trainer::find(path); }},
      {"Trainer::resume", [&] { Trainer::resume(path, ids); }},
      {"load_safetensors", [&] { load_safetensors(path); }},
      {"save_safetensors", [&] { save_safetensors(path, {}); }},
      {"load_npy", [&] { load_npy(path); }},
      {"save_npy", [&] { save_npy(path, ones({2})); }},
  };
  for (const auto& [function, call] : calls)
    EXPECT_EQ(testing::error_of<ValueError>(call), std::string(function) + ": the path " + there +
                                                       "\\x00.x has a zero byte at " + std::to_string(there.size()) +
                                                       "; no file has such a name");
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_EQ(entry.path().filename(), "there");
}

}  // namespace
}  // namespace attn
