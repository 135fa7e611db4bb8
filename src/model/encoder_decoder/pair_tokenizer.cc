// src/model/encoder_decoder/pair_tokenizer.cc: learns a tokenizer from pairs of texts, and encodes pairs with it.
#include <attn/error.h>
#include <attn/train.h>

#include "runtime/format.h"
#include <nlohmann/json.hpp>

namespace attn {
namespace {

constexpr const char *end_of_text = "</s>", *padding_token = "<pad>";

std::vector<std::int64_t> encode_one(const Tokenizer& tokenizer, const std::string& text, const char* name,
                                     std::size_t number) {
  try {
    return tokenizer.encode(text, true);
  } catch (const ValueError& error) {
    throw ValueError(runtime::format("the {} of pair {}: {}", name, number, error.what()));
  }
}

}  // namespace

Tokenizer train_pair_tokenizer(const std::vector<TextPair>& pairs, Tokenizer::Kind kind, std::int64_t vocab_size) {
  std::string text;
  for (const TextPair& pair : pairs) text += pair.source + "\n" + pair.target + "\n";
  if (!text.empty()) text.pop_back();
  auto json = nlohmann::ordered_json::parse(Tokenizer::train(text, kind, vocab_size).to_json());
  auto& vocabulary = json["model"]["vocab"];
  std::int64_t id = static_cast<std::int64_t>(vocabulary.size());
  const std::int64_t end = id;
  for (const char* token : {end_of_text, padding_token})
    json["added_tokens"].push_back({{"id", id++},
                                    {"content", token},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  const nlohmann::ordered_json text_itself{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
      second{{"Sequence", {{"id", "B"}, {"type_id", 0}}}},
      ending{{"SpecialToken", {{"id", end_of_text}, {"type_id", 0}}}};
  json["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {text_itself, ending}},
      {"pair", {text_itself, second, ending}},
      {"special_tokens", {{end_of_text, {{"id", end_of_text}, {"ids", {end}}, {"tokens", {end_of_text}}}}}}};
  return Tokenizer::parse(json.dump());
}

std::vector<IdPair> encode_pairs(const Tokenizer& tokenizer, const std::vector<TextPair>& pairs) {
  std::vector<IdPair> ids;
  for (std::size_t i = 0; i < pairs.size(); ++i)
    ids.push_back({encode_one(tokenizer, pairs[i].source, "source", i + 1),
                   encode_one(tokenizer, pairs[i].target, "target", i + 1)});
  return ids;
}

}  // namespace attn
