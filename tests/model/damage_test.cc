// tests/model/damage_test.cc: a bit of a checkpoint or of a model's weights is wrong: it is said, and nothing goes on
// from it.
#include "io/files.h"
#include "model/tiny_models.h"
#include "support/errors.h"
#include "support/golden.h"

#include <attn/safetensors.h>
#include <attn/train.h>

#include <cstring>
#include <functional>
#include <optional>
#include <random>

namespace attn {
namespace {

using testing::Bytes;
using testing::error_of;
using testing::Folder;

std::vector<std::int64_t> ids() {
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 200; ++i) ids.push_back(i * i % 13);
  return ids;
}

TrainOptions options() { return {.model = testing::tiny_gpt2(), .steps = 6, .batch = 2, .eval_every = 2}; }

std::size_t header_end(const Bytes& file) {
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  return sizeof length + static_cast<std::size_t>(length);
}

/// Bytes all over the header and the data, each with one bit changed: read() says FormatError, or gives what the whole
/// file gives, which same() compares (where the checksum's own name is another). Returns how often the latter.
int flip(const std::string& path, const std::function<void()>& read, const std::function<void()>& same) {
  const Bytes whole = testing::read_file(path);
  const std::size_t header = header_end(whole);
  std::mt19937 random(11);
  int survived = 0;
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at < header; at += 1 + header / 300) places.push_back(at);
  for (int n = 0; n < 200; ++n) places.push_back(header + random() % (whole.size() - header));
  for (const std::size_t at : places) {
    Bytes damaged = whole;
    damaged[at] ^= static_cast<std::byte>(1 << random() % 8);
    testing::write_file(path, damaged);
    try {
      read();
      same();
      ++survived;
      EXPECT_LT(at, header) << "data";
    } catch (const FormatError&) {
    } catch (const std::exception& error) {
      ADD_FAILURE() << "byte " << at << " of " << whole.size() << ": " << error.what();
    }
  }
  testing::write_file(path, whole);
  return survived;
}

TEST(Damage, NoTrainingGoesOnFromIt) {
  const Folder folder;
  Trainer trainer(ids(), options());
  for (int i = 0; i < 3; ++i) trainer.advance();
  trainer.save(folder.path());
  const std::string path = folder / "train_state.safetensors";
  const std::string whole = testing::content_of(path);
  std::optional<Trainer> resumed;
  const int survived = flip(
      path, [&] { resumed.emplace(Trainer::resume(folder.path(), ids())); },
      [&] {
        resumed->save(folder / "again");
        EXPECT_TRUE(testing::content_of(folder / "again/train_state.safetensors") == whole);
      });
  EXPECT_LE(survived, 8) << "blanks that fill the header up";
}

TEST(Damage, TensorsOfATrainingAreNamedDamaged) {
  const Folder folder;
  Trainer(ids(), options()).save(folder.path());
  const std::string path = folder / "train_state.safetensors";
  Bytes damaged = testing::read_file(path);
  damaged[damaged.size() / 2] ^= std::byte{64};
  testing::write_file(path, damaged);
  const std::string text = error_of<FormatError>([&] { Trainer::resume(folder.path(), ids()); });
  EXPECT_NE(text.find("/train_state.safetensors: damaged: its checksum is "), std::string::npos) << text;
}

/// As those that were saved before there was a checksum.
TEST(Damage, ATrainingWithoutAChecksumIsResumed) {
  const Folder folder;
  Trainer trainer(ids(), options());
  trainer.advance();
  trainer.save(folder.path());
  const std::string path = folder / "train_state.safetensors";
  const Safetensors file = load_safetensors(path);
  save_safetensors(path, file.tensors, file.metadata);
  EXPECT_EQ(testing::content_of(path).find("attn_checksum"), std::string::npos);
  Trainer resumed = Trainer::resume(folder.path(), ids());
  while (!resumed.done()) resumed.advance();
  Trainer whole(ids(), options());
  while (!whole.done()) whole.advance();
  EXPECT_TRUE(testing::bits_equal(resumed.losses(), whole.losses()));
}

TEST(Damage, NoModelIsLoadedFromIt) {
  for (const ModelConfig& config : {testing::tiny_llama(), testing::tiny_mixture()}) {
    const Folder folder;
    const LanguageModel model(config);
    model.save(folder.path());
    std::optional<LanguageModel> loaded;
    const auto expected = model.state_dict();
    flip(
        folder / "model.safetensors", [&] { loaded.emplace(LanguageModel::load(folder.path())); },
        [&] {
          const auto found = loaded->state_dict();
          for (std::size_t i = 0; i < expected.size(); ++i)
            EXPECT_TRUE(testing::bits_equal(found[i].second, expected[i].second)) << expected[i].first;
        });
  }
}

}  // namespace
}  // namespace attn
