// tests/cli/train_numerics_test.cc: a training of bf16 that another numerics version saved says so when it goes on.
#include <attn/runtime.h>
#include <attn/safetensors.h>
#include <attn/train.h>

#include "cli/command.h"

#include <gtest/gtest.h>

#include "runtime/format.h"
#include <nlohmann/json.hpp>

namespace attn::testing {
namespace {

/// As a file of before has it: without its version and without a checksum.
void take_version_away(const std::string& file) {
  Safetensors state = load_safetensors(file);
  nlohmann::json facts = nlohmann::json::parse(state.metadata.at("attn_train"));
  EXPECT_EQ(facts.at("numerics"), numerics_version);
  facts.erase("numerics");
  save_safetensors(file, state.tensors, {{"attn_train", facts.dump()}});
}

TEST(TrainNumerics, BitsThatWillDifferAreSaidOnce) {
  for (const std::string dtype : {"bf16", "f32"}) {
    const Folder folder;
    std::string text;
    for (int i = 0; i < 40; ++i) text += "how much wood would a woodchuck chuck. ";
    const std::string arguments = "train " + folder.write("text", text) + " --out " + folder.file("out");
    ASSERT_EQ(attn_says(arguments + " --context 8 --batch 2 --steps 4 --eval-every 2 --dtype " + dtype).code, 0);
    const std::string said = runtime::format(
        "{} was saved under numerics version 1; this is version {}: its bits will differ from those it would have "
        "had\n",
        folder.file("out"), numerics_version);
    const Said same = attn_says(arguments + " --resume");
    EXPECT_EQ(same.code, 0) << same.err;
    EXPECT_EQ(same.err.find("numerics"), std::string::npos) << same.err;

    take_version_away(folder.file("out/train_state.safetensors"));
    const Said other = attn_says(arguments + " --resume");
    EXPECT_EQ(other.code, 0) << other.err;
    EXPECT_EQ(other.out.find("numerics"), std::string::npos);
    const std::size_t at = other.err.find(said);
    EXPECT_EQ(at != std::string::npos, dtype == "bf16") << other.err;
    if (at != std::string::npos) {
      EXPECT_EQ(other.err.find("numerics", at + said.size()), std::string::npos) << other.err;
    }
  }
}

}  // namespace
}  // namespace attn::testing
