// src/model/tokenizer_train.cc: builds the vocabulary of a text: its characters, its words, or bytes with merges (BPE).
#include <attn/error.h>
#include <attn/tokenizer.h>

#include "model/tokenizer_state.h"
#include "text/tokenizer/byte_level.h"
#include "text/unicode.h"

#include "runtime/format.h"

#include <algorithm>

namespace attn {
namespace {

using State = Tokenizer::State;
using Counted = std::vector<std::pair<std::string_view, std::int64_t>>;
constexpr std::int64_t kBytes = 256, kDefaultPairs = 1024;

/// Counts the distinct pieces of a text, sorted by their bytes (for UTF-8: by code points).
Counted count_pieces(text::Cut cut, std::string_view text) {
  std::unordered_map<std::string_view, std::int64_t> counts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text::piece_end(cut, text, at);
    ++counts[text.substr(at, end - at)];
    at = end;
  }
  Counted pieces(counts.begin(), counts.end());
  std::sort(pieces.begin(), pieces.end());
  return pieces;
}

void learn_characters(State& state, std::string_view text) {
  for (const auto& [piece, count] : count_pieces(state.cut, text)) state.names.emplace_back(piece);
}

void learn_words(State& state, std::string_view text, std::int64_t vocab_size) {
  Counted words = count_pieces(state.cut, text);
  std::stable_sort(words.begin(), words.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (vocab_size != 0) words.resize(std::min(words.size(), static_cast<std::size_t>(vocab_size - 1)));
  state.names.emplace_back(unknown_word);
  for (const auto& [word, count] : words) state.names.emplace_back(word);
}

void learn_pairs(State& state, std::string_view text, std::int64_t vocab_size) {
  std::array<std::int32_t, kBytes> ids{};
  for (std::int32_t id = 0; id < kBytes; ++id) {
    const std::uint8_t byte = text::bytes_in_order()[static_cast<std::size_t>(id)];
    ids[byte] = id;
    state.names.push_back(text::byte_characters()[byte]);
  }
  std::vector<text::Word> words;
  for (const auto& [piece, count] : count_pieces(state.cut, text)) {
    text::Word& word = words.emplace_back();
    word.count = count;
    for (const char c : piece) word.symbols.push_back(ids[static_cast<unsigned char>(c)]);
  }
  state.bpe =
      text::Bpe(text::learn_merges(std::move(words), state.names, vocab_size == 0 ? kDefaultPairs : vocab_size));
}

void check(std::string_view text, Tokenizer::Kind kind, std::int64_t vocab_size) {
  if (is_of_encoder(kind)) throw ValueError("Tokenizer::train: WordPiece and Unigram are read from files only");
  if (kind < Tokenizer::Kind::characters || kind > Tokenizer::Kind::bpe)
    throw ValueError(
        runtime::format("Tokenizer::train: kind is {}; the enumeration has no such value", static_cast<int>(kind)));
  if (text.empty()) throw ValueError("Tokenizer::train: the text is empty");
  if (kind != Tokenizer::Kind::bpe) text::check_utf8("Tokenizer::train", text);
  if (kind == Tokenizer::Kind::characters && vocab_size != 0)
    throw ValueError(
        runtime::format("Tokenizer::train: vocab_size is {}; characters take all there are: 0", vocab_size));
  const std::int64_t least = kind == Tokenizer::Kind::bpe ? kBytes : 2;
  if (vocab_size != 0 && (vocab_size < least || vocab_size > text::most_tokens))
    throw ValueError(runtime::format("Tokenizer::train: vocab_size is {}; it must be from {} to {}, or 0", vocab_size,
                                     least, text::most_tokens));
}

}  // namespace

Tokenizer Tokenizer::train(std::string_view text, Kind kind, std::int64_t vocab_size) {
  check(text, kind, vocab_size);
  const auto state = std::make_shared<State>();
  state->kind = kind;
  state->cut = kind == Kind::characters ? text::Cut::characters
               : kind == Kind::words    ? text::Cut::words
                                        : text::Cut::gpt2;
  switch (kind) {
    case Kind::characters: learn_characters(*state, text); break;
    case Kind::words: learn_words(*state, text, vocab_size); break;
    case Kind::bpe: learn_pairs(*state, text, vocab_size); break;
    case Kind::wordpiece:
    case Kind::unigram: break;  // refused
  }
  if (!state->index()) throw ValueError("Tokenizer::train: two tokens stand for the same bytes");
  return Tokenizer(state);
}

}  // namespace attn
