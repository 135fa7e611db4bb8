// tests/cli/small_encoder.h: folders of small encoders with a tokenizer, and lines for them.
#pragma once
#include "model/encoders.h"
#include "support/places.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace attn::testing {

inline const std::vector<std::string> encoder_words = {"the", "cat",  "dog", "sat", "ran", "on",  "in",   "mat", "rain",
                                                       "red", "blue", "a",   "is",  "of",  "sun", "moon", "sea"};

/// Writes a tokenizer of 31 tokens: special ones, words, and the pieces of other words.
inline void write_tokenizer(const std::string& folder) {
  nlohmann::json vocabulary = {{"[PAD]", 0}, {"[CLS]", 1}, {"[SEP]", 2}, {"[UNK]", 3}};
  for (const std::string& word : encoder_words) vocabulary[word] = vocabulary.size();
  for (const char* piece : {"s", "t", "##s", "##t", "##ed", "##ing"}) vocabulary[piece] = vocabulary.size();
  const auto part = [](const char* kind, const char* id, int type) {
    return nlohmann::json{{kind, {{"id", id}, {"type_id", type}}}};
  };
  const nlohmann::json cls = part("SpecialToken", "[CLS]", 0), sep = part("SpecialToken", "[SEP]", 0),
                       first = part("Sequence", "A", 0);
  const auto special = [](const char* name, int id) {
    return nlohmann::json{{"id", name}, {"ids", {id}}, {"tokens", {name}}};
  };
  nlohmann::json added = nlohmann::json::array();
  for (const auto& [name, id] : {std::pair("[PAD]", 0), {"[CLS]", 1}, {"[SEP]", 2}, {"[UNK]", 3}})
    added.push_back({{"id", id},
                     {"content", name},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const nlohmann::json tokenizer = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer",
       {{"type", "BertNormalizer"},
        {"clean_text", true},
        {"handle_chinese_chars", true},
        {"strip_accents", nullptr},
        {"lowercase", true}}},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", {cls, first, sep}},
        {"pair", {cls, first, sep, part("Sequence", "B", 1), part("SpecialToken", "[SEP]", 1)}},
        {"special_tokens", {{"[CLS]", special("[CLS]", 1)}, {"[SEP]", special("[SEP]", 2)}}}}},
      {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
      {"model",
       {{"type", "WordPiece"},
        {"unk_token", "[UNK]"},
        {"continuing_subword_prefix", "##"},
        {"max_input_chars_per_word", 100},
        {"vocab", vocabulary}}}};
  write_text(folder + "/tokenizer.json", tokenizer.dump());
}

/// Writes a model that gives vectors (mpnet) or a score (bert), with a tokenizer and prompts.
inline void write_model(const std::string& family, const std::string& folder) {
  std::filesystem::create_directories(folder);
  write_sentence_folder(golden_path("model/encoders/" + family), folder, R"({"pooling_mode_mean_tokens": true})", true);
  write_tokenizer(folder);
}

/// Random lines of words, some empty, with what the vocabulary does not have.
inline std::string random_lines(int count, std::uint32_t seed = 3) {
  std::mt19937 random(seed);
  std::string text;
  for (int line = 0; line < count; ++line) {
    for (auto left = random() % 20; left > 0; --left)
      text += encoder_words[random() % encoder_words.size()] +
              (random() % 4 == 0   ? "s"
               : random() % 9 == 0 ? "\xE4\xB8\xAD"
                                   : "") +
              " ";
    text += "\n";
  }
  return text;
}

}  // namespace attn::testing
