// src/model/encoder/gguf_tokenizer.cc: writes WordPiece and Unigram as keys of a GGUF file.
#include <attn/error.h>

#include "model/encoder/write_gguf.h"
#include "model/encoder_steps_json.h"
#include "model/tokenizer_state.h"

#include "runtime/format.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

namespace attn::gguf {
namespace {

using EncoderJson = nlohmann::ordered_json;

constexpr const char* blank_of_words = "\xE2\x96\x81";

[[noreturn]] void refuse_its_tokenizer(const std::string& what) { throw ValueError("convert: the tokenizer " + what); }

/// Spells a token of WordPiece as GGUF files do: a blank before a token that begins a word, nothing before one that
/// goes on inside of a word. Names in brackets stay.
std::string spelled(const std::string& token) {
  if (token.empty() || (token.starts_with('[') && token.ends_with(']'))) return token;
  return token.starts_with("##") ? token.substr(2) : blank_of_words + token;
}

/// Adds WordPiece, with the steps that every reader of GGUF files takes.
void add_words(Metadata& metadata, const EncoderJson& steps, const EncoderJson& model,
               std::vector<std::string>& tokens) {
  bool cased = false;  // as readers find it: no word of an uncased vocabulary has a capital letter
  for (const std::string& token : tokens)
    cased = cased || (!token.starts_with('[') &&
                      std::any_of(token.begin(), token.end(), [](char c) { return c >= 'A' && c <= 'Z'; }));
  const EncoderJson& normalizer = steps.at("normalizer");
  const auto flag = [&](const char* name, bool otherwise) {
    return normalizer.contains(name) && normalizer[name].is_boolean() ? normalizer[name].get<bool>() : otherwise;
  };
  const bool bert = normalizer.is_object() && normalizer.value("type", "") == "BertNormalizer" &&
                    flag("clean_text", true) && flag("handle_chinese_chars", true) &&
                    flag("lowercase", true) == !cased && flag("strip_accents", !cased) == !cased;
  if (!bert || !steps.at("pre_tokenizer").is_object() ||
      steps.at("pre_tokenizer").value("type", "") != "BertPreTokenizer" ||
      model.at("continuing_subword_prefix") != "##" || model.at("max_input_chars_per_word") != 100)
    refuse_its_tokenizer("normalizes or splits words in another way than BERT's, which GGUF files cannot say");
  for (std::string& token : tokens) token = spelled(token);
  std::set<std::string_view> met;
  for (const std::string& token : tokens)
    if (!token.empty() && !met.insert(token).second)
      refuse_its_tokenizer(runtime::format("has tokens that a GGUF file spells alike: {}", token));
  metadata.text("tokenizer.ggml.model", "bert");
  metadata.text("tokenizer.ggml.pre", "default");
}

/// Adds Unigram, with SentencePiece's spaces.
void add_pieces(Metadata& metadata, const EncoderJson& steps, const EncoderJson& model, std::int64_t vocab_size) {
  EncoderJson normalizer = steps.at("normalizer");
  if (normalizer.is_object() && normalizer.value("type", "") == "Sequence" && normalizer.at("normalizers").size() == 1)
    normalizer = EncoderJson(normalizer.at("normalizers")[0]);
  const EncoderJson& split = steps.at("pre_tokenizer");
  const EncoderJson& parts = split.contains("pretokenizers") ? split.at("pretokenizers") : EncoderJson::array();
  const bool known = parts.size() == 2 && parts[0].value("type", "") == "WhitespaceSplit" &&
                     parts[1].value("type", "") == "Metaspace" &&
                     parts[1].value("replacement", blank_of_words) == blank_of_words;
  const std::string scheme = known ? parts[1].value("prepend_scheme", "always") : "";
  const bool mapped = normalizer.is_object() && normalizer.value("type", "") == "Precompiled";
  if (!known || (scheme != "always" && scheme != "never") || !(mapped || normalizer.is_null()) ||
      model.at("byte_fallback").get<bool>())
    refuse_its_tokenizer("normalizes or splits texts in another way than XLM-R's, which GGUF files cannot say");
  metadata.text("tokenizer.ggml.model", "t5");
  metadata.text("tokenizer.ggml.pre", "default");
  metadata.boolean("tokenizer.ggml.add_space_prefix", scheme == "always");
  metadata.boolean("tokenizer.ggml.remove_extra_whitespaces", true);
  if (mapped) {
    const auto bytes = bytes_of_base64(normalizer.at("precompiled_charsmap").get<std::string>());
    if (bytes) metadata.bytes_of("tokenizer.ggml.precompiled_charsmap", *bytes);
  }
  std::vector<float> scores;
  for (const EncoderJson& entry : model.at("vocab")) scores.push_back(entry[1].get<float>());
  scores.resize(std::max(scores.size(), static_cast<std::size_t>(vocab_size)), 0);
  metadata.numbers("tokenizer.ggml.scores", scores);
}

/// Adds the tokens before and after a text: one before it, or none with Unigram, and one after it.
void add_tokens_around(Metadata& metadata, const Tokenizer::State& state) {
  const std::vector<std::int64_t> before = state.before(), after = state.after();
  const bool words = state.kind == Tokenizer::Kind::wordpiece;
  if (before.size() > 1 || after.size() != 1 || (words && before.empty()))
    refuse_its_tokenizer("adds other tokens around a text than one before and one after it");
  metadata.boolean("tokenizer.ggml.add_bos_token", !before.empty());
  metadata.boolean("tokenizer.ggml.add_eos_token", true);
  for (const char* key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.cls_token_id"})
    if (!before.empty()) metadata.number(key, before[0]);
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.seperator_token_id"})
    metadata.number(key, after[0]);
}

/// Returns the id of the token for unknown words; -1: there is none.
std::int64_t unknown_of(const EncoderJson& model, const Tokenizer& tokenizer) {
  if (model.contains("unk_token")) return tokenizer.find(model.at("unk_token").get<std::string>()).value_or(-1);
  return model.at("unk_id").is_null() ? -1 : model.at("unk_id").get<std::int64_t>();
}

}  // namespace

void add_encoder_tokenizer(Metadata& metadata, const Tokenizer& tokenizer, std::int64_t vocab_size) {
  const Tokenizer::State& state = state_of(tokenizer);
  if (!is_of_encoder(state.kind)) {
    add_tokenizer(metadata, tokenizer, vocab_size);  // RoBERTa's byte pairs
    for (const auto& [key, ids] :
         {std::pair("tokenizer.ggml.bos_token_id", state.before()), {"tokenizer.ggml.eos_token_id", state.after()}})
      if (!ids.empty()) metadata.number(key, ids[0]);
    return;
  }
  const EncoderJson steps = state.encoder->steps(), model = state.encoder->model();
  std::vector<std::string> tokens = state.names;
  if (state.kind == Tokenizer::Kind::wordpiece) add_words(metadata, steps, model, tokens);
  else add_pieces(metadata, steps, model, vocab_size);
  tokens.resize(std::max(tokens.size(), static_cast<std::size_t>(vocab_size)));
  std::vector<std::int32_t> types(tokens.size(), 1);
  for (const AddedToken& token : state.added) types[static_cast<std::size_t>(token.id)] = token.special ? 3 : 4;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].empty()) continue;
    tokens[id] = runtime::format("[PAD{}]", id);
    types[id] = 5;
  }
  add_tokens_around(metadata, state);
  const std::int64_t unknown = unknown_of(model, tokenizer);
  if (unknown >= 0) metadata.number("tokenizer.ggml.unknown_token_id", unknown);
  metadata.texts("tokenizer.ggml.tokens", tokens);
  metadata.integers("tokenizer.ggml.token_type", types);
}

}  // namespace attn::gguf
