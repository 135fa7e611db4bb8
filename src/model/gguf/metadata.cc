// src/model/gguf/metadata.cc: writes keys of GGUF files, and the tokenizer as keys.
#include "model/gguf/metadata.h"

#include <attn/error.h>

#include "model/gguf/merges.h"
#include "model/tokenizer_state.h"

#include "runtime/format.h"
#include "text/tokenizer/trie.h"
#include <nlohmann/json.hpp>

#include <algorithm>

namespace attn::gguf {
namespace {

[[noreturn]] void refuse_tokenizer(const std::string& what) { throw ValueError("convert: the tokenizer " + what); }

using State = Tokenizer::State;

/// Returns llama.cpp's name of the pre-tokenizer with this split, merge and normalizer.
std::string pre_of(const State& state) {
  using enum text::Cut;
  const bool nfc = state.normalizer.size() == 1 && state.normalizer[0].kind == text::Change::Kind::nfc;
  if (!nfc && !state.normalizer.empty()) refuse_tokenizer("has a normalizer that GGUF files have no name for");
  if (state.cut == llama3 && state.whole_first && !nfc) return "llama-bpe";
  if (state.cut == tekken && state.whole_first && !nfc) return "tekken";
  if (state.cut == qwen2 && !state.whole_first && nfc) return "qwen2";
  if (!state.whole_first && !nfc) {
    if (state.cut == llama3) return "dbrx";
    if (state.cut == o200k) return "gpt-4o";
    if (state.cut == gpt2) return "gpt-2";
    if (state.cut == digits) return "smollm";
    if (state.cut == punctuation) return "default";
  }
  refuse_tokenizer("splits a text in a way that GGUF files have no name for");
}

/// Adds the tokens that go around a text, if there is at most one before and one after it.
void add_ends(Metadata& metadata, const State& state) {
  if (state.before().size() > 1 || state.after().size() > 1)
    refuse_tokenizer("adds more than one token before or after a text; a GGUF file can say one");
  metadata.boolean("tokenizer.ggml.add_bos_token", !state.before().empty());
  metadata.boolean("tokenizer.ggml.add_eos_token", !state.after().empty());
}

/// Returns the scores from which the merges follow; ValueError if none give them.
std::vector<float> scores_of(const State& state, const std::vector<std::string>& tokens,
                             const std::vector<std::int32_t>& types) {
  const std::vector<text::Merge>& merges = state.bpe.merges();
  if (std::any_of(tokens.begin(), tokens.end(),
                  [](const std::string& one) { return one.size() > text::longest_token; }))
    refuse_tokenizer(runtime::format("has a token of more than {} bytes, which no reader takes", text::longest_token));
  std::vector<float> scores(tokens.size(), 0);
  std::vector<bool> made(tokens.size(), false);
  float next = 0;  // whole numbers up to 2^22, which f32 holds
  for (const text::Merge& merge : merges) {
    const auto id = static_cast<std::size_t>(merge.result);
    if (!made[id]) scores[id] = --next;
    made[id] = true;
  }
  std::vector<bool> merged(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id) merged[id] = is_merged(types[id]);
  const std::vector<text::Merge> again = merges_of_scores({tokens.begin(), tokens.end()}, scores, merged);
  const auto same = [](const text::Merge& a, const text::Merge& b) { return a.left == b.left && a.right == b.right; };
  if (!std::equal(again.begin(), again.end(), merges.begin(), merges.end(), same))
    refuse_tokenizer("has merges that do not follow from scores of its tokens, as a GGUF file has them");
  return scores;
}

void add_characters(Metadata& metadata, const State& state, const std::vector<std::string>& tokens,
                    std::vector<std::int32_t>& types) {
  constexpr const char* blank = "\xE2\x96\x81";
  std::vector<text::Change> steps = state.normalizer;
  const bool prefix = !steps.empty() && steps[0].kind == text::Change::Kind::prepend && steps[0].to == blank;
  if (prefix) steps.erase(steps.begin());
  const bool spaces =
      steps.size() == 1 && steps[0].kind == text::Change::Kind::replace && steps[0].from == " " && steps[0].to == blank;
  if (!spaces || !state.space.empty() || state.cut != text::Cut::whole || state.decoded_space != blank ||
      state.strip_space != prefix || state.whole_first)
    refuse_tokenizer("is not of SentencePiece's form in Llama 2, the one of characters that a GGUF file can hold");
  for (std::size_t id = 0; id < state.names.size(); ++id)
    if (types[id] == 1 && state.lone_byte[id]) types[id] = 6;
  metadata.text("tokenizer.ggml.model", "llama");
  metadata.boolean("tokenizer.ggml.add_space_prefix", prefix);
  metadata.numbers("tokenizer.ggml.scores", scores_of(state, tokens, types));
  if (const auto found = state.ids.find(state.unknown)) types[static_cast<std::size_t>(*found)] = 2;
}

}  // namespace

void Metadata::begin(const std::string& key, std::uint32_t type) {
  append_text(bytes, key);
  append(bytes, type);
  ++count;
}
void Metadata::number(const std::string& key, std::int64_t value) {
  if (value < 0 || value > UINT32_MAX)
    throw ValueError(runtime::format("convert: {} is {}; a GGUF file has 32 bits for it", key, value));
  begin(key, 4);
  append(bytes, static_cast<std::uint32_t>(value));
}
void Metadata::real(const std::string& key, double value) {
  begin(key, 6);
  append(bytes, static_cast<float>(value));
}
void Metadata::boolean(const std::string& key, bool value) {
  begin(key, 7);
  bytes += value ? '\1' : '\0';
}
void Metadata::text(const std::string& key, const std::string& value) {
  begin(key, 8);
  append_text(bytes, value);
}
void Metadata::texts(const std::string& key, const std::vector<std::string>& values) {
  begin(key, 9);
  append(bytes, std::uint32_t{8});
  append(bytes, static_cast<std::uint64_t>(values.size()));
  for (const std::string& value : values) append_text(bytes, value);
}
void Metadata::integers(const std::string& key, const std::vector<std::int32_t>& values) {
  begin(key, 9);
  append(bytes, std::uint32_t{5});
  append(bytes, static_cast<std::uint64_t>(values.size()));
  for (const std::int32_t value : values) append(bytes, value);
}
void Metadata::numbers(const std::string& key, const std::vector<float>& values) {
  begin(key, 9);
  append(bytes, std::uint32_t{6});
  append(bytes, static_cast<std::uint64_t>(values.size()));
  for (const float value : values) append(bytes, value);
}

void Metadata::bytes_of(const std::string& key, const std::string& values) {
  begin(key, 9);
  append(bytes, std::uint32_t{0});
  append_text(bytes, values);
}

void add_tokenizer(Metadata& metadata, const Tokenizer& tokenizer, std::int64_t vocab_size) {
  const State& state = state_of(tokenizer);
  if (is_of_encoder(state.kind))
    refuse_tokenizer("is of an encoder, WordPiece or Unigram; a GGUF file can hold byte pairs");
  if (state.kind != Tokenizer::Kind::bpe || state.encoder)
    refuse_tokenizer("is of words or characters; a GGUF file can hold byte pairs");
  for (const AddedToken& token : state.added)
    if (token.single_word || token.lstrip || token.rstrip)
      refuse_tokenizer("has added tokens that look at what is beside them, which a GGUF file cannot say");
  std::vector<std::string> tokens = state.names;
  // llama.cpp takes the number of the model's ids from the list.
  tokens.resize(std::max(tokens.size(), static_cast<std::size_t>(vocab_size)));
  std::vector<std::int32_t> types(tokens.size(), 1);
  for (const AddedToken& token : state.added) types[static_cast<std::size_t>(token.id)] = token.special ? 3 : 4;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::string unused = runtime::format("[PAD{}]", id);  // an id that no token has, also if a file spells it so
    if (!tokens[id].empty() && (tokens[id] != unused || types[id] != 1)) continue;
    if (tokens[id].empty() && state.ids.contains(unused))
      refuse_tokenizer(runtime::format("has the token \"{}\", which stands for an id without a token", unused));
    tokens[id] = unused;
    types[id] = 5;
  }
  add_ends(metadata, state);
  if (state.byte_fallback) {
    add_characters(metadata, state, tokens, types);
  } else {
    metadata.text("tokenizer.ggml.model", "gpt2");
    metadata.text("tokenizer.ggml.pre", pre_of(state));
    metadata.boolean("tokenizer.ggml.add_space_prefix", state.prefix == Prefix::always);
    std::vector<std::string> merges;
    for (const text::Merge& merge : state.bpe.merges())
      merges.push_back(state.names[static_cast<std::size_t>(merge.left)] + " " +
                       state.names[static_cast<std::size_t>(merge.right)]);
    metadata.texts("tokenizer.ggml.merges", merges);
  }
  metadata.texts("tokenizer.ggml.tokens", tokens);
  metadata.integers("tokenizer.ggml.token_type", types);
}

}  // namespace attn::gguf
