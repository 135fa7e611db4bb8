// include/attn/tokenizer.h: a text as the ids a language model reads, and back; Hugging Face's tokenizer.json.
#pragma once
#include <attn/export.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

/// Cuts a text into pieces and knows an id for each. A handle: copies share one vocabulary.
///
///   characters   each code point                                        a text of 65 different ones: 65 ids
///   words        words with the space before them, numbers, signs, blanks, by GPT-2's pattern, but each character of
///                Chinese and Japanese, which have no spaces, by itself; what is not known is <unk>, id 0
///   bpe          the pieces of GPT-2's pattern as bytes, merged pair by pair (Sennrich 2016, 1508.07909; byte-level as
///                in GPT-2): knows every text; from a file also as characters, and the bytes of those that have no
///                token (byte_fallback: SentencePiece, as in Llama 2)
///  decode(encode(text)) is the text: for bpe any bytes, UTF-8 or not, as far as a file's normalizer and decoder keep
/// it; for characters and words as long as all is known. Thread safety: constant once made.
class ATTN_API Tokenizer {
 public:
  enum class Kind { characters, words, bpe };

  /// Knows nothing: size 0.
  Tokenizer();
  // No moves: what was moved from would know less than nothing.
  Tokenizer(const Tokenizer&) = default;
  Tokenizer& operator=(const Tokenizer&) = default;

  /// The vocabulary of a text.
  ///   characters   in the order of code points; `vocab_size` must be 0
  ///   words        the most frequent, of equals by bytes; 0: all
  ///   bpe          the 256 bytes, then merges until there are `vocab_size` tokens or no pair occurs twice; 0: 1024.
  ///                The merges are those of Hugging Face's trainer (min_frequency 2, the bytes as initial alphabet)
  /// Errors   ValueError for a text without tokens, a kind that is none, a size too small (words 2, bpe 256), or, but
  ///          for bpe, a byte that is not UTF-8.
  static Tokenizer train(std::string_view text, Kind kind, std::int64_t vocab_size = 0);

  /// Reads a tokenizer.json, or the one of a model's folder: what `save` writes, and Hugging Face's byte-level BPE with
  /// the patterns of GPT-2, Llama 3 and Qwen 2, the normalizer NFC, added tokens, merges in both spellings; its BPE of
  /// characters with byte_fallback, the normalizers NFC, Prepend and Replace of a text, Metaspace or a Split by a text,
  /// and the decoder Replace, ByteFallback, Fuse, Strip of a space. Post-processors are those of Hugging Face's
  /// library; a template for one text must hold it once. Truncation and padding are not applied. An added token of a
  /// byte-level BPE is decoded as its own text, whatever its letters; without a decoder its bytes are joined too.
  /// Errors   IoError; FormatError with the byte offset for JSON that is damaged, inconsistent or asks for what is not
  ///          known here.
  static Tokenizer load(const std::string& path);
  static Tokenizer parse(std::string_view json);
  /// tokenizer.json in a folder that is made when it is not there, whole or not at all; Hugging Face's library reads it
  /// and gives the same ids. So does transformers, which a tokenizer_config.json tells to; one that is there stays.
  void save(const std::string& folder) const;
  std::string to_json() const;

  Kind kind() const;
  /// One more than the largest id.
  std::int64_t size() const;

  /// The text's own ids; with `add_special` also what the post-processor of its file puts around one text, as Hugging
  /// Face's add_special_tokens: Llama 3's <|begin_of_text|>. A text to learn from is encoded without, a prompt with.
  /// Time grows with the text alone, whatever it holds (n log n in its longest piece).
  /// Errors   ValueError for a character that is not in the vocabulary; for bytes that are not UTF-8, but for bpe,
  ///          which keeps them.
  std::vector<std::int64_t> encode(std::string_view text, bool add_special = false) const;
  /// The bytes that the ids stand for, joined; a token of bpe may hold part of a character. Special tokens may be left
  /// out. The space that a file's decoder strips from the begin is left out.
  /// Errors   ValueError names an id that is not there.
  std::string decode(const std::vector<std::int64_t>& ids, bool skip_special = false) const;

  /// The bytes of one token: " the", or of <0xE4> the byte. ValueError as decode.
  const std::string& bytes(std::int64_t id) const;
  /// The id of a token by its bytes, or of an added token by its text.
  std::optional<std::int64_t> find(std::string_view bytes) const;

  struct State;  // src/model/tokenizer_state.h

 private:
  explicit Tokenizer(std::shared_ptr<const State> state);
  friend const State& state_of(const Tokenizer& tokenizer);
  std::shared_ptr<const State> state_;
};

}  // namespace attn
