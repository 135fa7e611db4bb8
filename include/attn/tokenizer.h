// include/attn/tokenizer.h: encodes text as the ids that a language model reads, and decodes it; reads Hugging Face's
// tokenizer.json.
#pragma once
#include <attn/export.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

/// One text, or a pair of texts, as an encoder reads it.
struct EncodedText {
  std::vector<std::int64_t> ids;       // with the special tokens that the file's post-processor adds
  std::vector<std::int64_t> type_ids;  // for each id its segment (token_type_ids), as the post-processor has it
};

/// Splits a text into tokens and maps each to an id. A handle: copies share one vocabulary.
///
///   characters   each code point; a text of 65 different characters has 65 ids
///   words        GPT-2's pattern: words with the space before them, numbers, signs, blanks; but each Chinese or
///                Japanese character, written without spaces, is a token. An unknown word is <unk>, id 0
///   bpe          the pieces of GPT-2's pattern as bytes, merged pair by pair (Sennrich 2016, 1508.07909; byte-level as
///                in GPT-2): a trained one encodes every text. Loaded from a file, it may also merge characters, with a
///                byte fallback for characters without a token (byte_fallback: SentencePiece, as in Llama 2)
///   wordpiece    each word as the longest tokens of the vocabulary, from left to right (BERT); only loaded from a file
///   unigram      the tokens whose scores have the greatest sum (Kudo 2018, 1804.10959; SentencePiece: XLM-R, T5); only
///                loaded from a file
///  decode(encode(text)) returns the text. For bpe this holds for any bytes, UTF-8 or not, unless the file's normalizer
/// or decoder changes them; for characters and words, if every token is known. WordPiece and Unigram lose what their
/// normalizers change. Thread safety: immutable.
class ATTN_API Tokenizer {
 public:
  enum class Kind { characters, words, bpe, wordpiece, unigram };

  /// An empty tokenizer: size 0.
  Tokenizer();
  // Moving copies, so that a moved-from tokenizer stays valid.
  Tokenizer(const Tokenizer&) = default;
  Tokenizer& operator=(const Tokenizer&) = default;

  /// Builds the vocabulary of a text.
  ///   characters   in the order of code points; `vocab_size` must be 0
  ///   words        the most frequent words, those of equal count ordered by bytes; `vocab_size` 0: all
  ///   bpe          the 256 bytes, then merges until there are `vocab_size` tokens or no pair occurs twice; 0: 1024.
  ///                The merges are those of Hugging Face's trainer (min_frequency 2, the bytes as initial alphabet)
  /// Errors   ValueError for a text without tokens, an invalid kind, a size too small (words 2, bpe 256), or, except
  ///          with bpe, a byte that is not UTF-8.
  static Tokenizer train(std::string_view text, Kind kind, std::int64_t vocab_size = 0);

  /// Reads a tokenizer.json, given by its path or by a model's folder: files that `save` wrote, and of Hugging Face's:
  /// byte-level BPE with the patterns of GPT-2, Llama 3 and Qwen 2, the normalizer NFC, added tokens, and merges in
  /// both spellings; character BPE with byte_fallback, the normalizers NFC, Prepend and Replace of a text, Metaspace or
  /// a Split by a text, and the decoders Replace, ByteFallback, Fuse, Strip of a space; and the tokenizers of encoders,
  /// WordPiece, Unigram and NLLB's BPE, with their normalizers, pre-tokenizers and decoders (docs/tokenizers.md).
  /// Post-processors are those of Hugging Face's library; a template for one text must contain the text once.
  /// Truncation and padding are kept, and not applied. An added token of a byte-level BPE decodes to its own text,
  /// whatever its letters, also if the file has no decoder; the bytes of the tokens are then joined. Or reads the
  /// tokenizer of a GGUF file, as Hugging Face's library has it: byte-level BPE with the pre-tokenizers llama-bpe,
  /// qwen2, gpt-2, smollm and default, SentencePiece's BPE by scores (tokenizer.ggml.model llama), WordPiece (bert; a
  /// vocabulary with capital letters is that of a cased model) or Unigram (t5).
  /// Errors   IoError; FormatError with the byte offset for JSON that is damaged, inconsistent or uses a feature that
  ///          is not supported; for a GGUF file also ValueError, which names the key of its metadata.
  static Tokenizer load(const std::string& path);
  static Tokenizer parse(std::string_view json);
  /// Writes tokenizer.json, whole or not at all, into a folder that is created if needed. Hugging Face's library reads
  /// it and gives the same ids. So does transformers, through tokenizer_config.json, which is written too unless it
  /// exists.
  void save(const std::string& folder) const;
  std::string to_json() const;

  Kind kind() const;
  /// Returns one more than the largest id.
  std::int64_t size() const;

  /// Returns the ids of the text; with `add_special` also the special tokens that the file's post-processor adds around
  /// one text, as Hugging Face's add_special_tokens (Llama 3's <|begin_of_text|>). Encode training text without them, a
  /// prompt with them. The time grows with the length of the text, whatever it contains (n log n in its longest piece;
  /// for wordpiece and unigram times the longest token, which has at most 1024 bytes).
  /// Errors   ValueError for a character or a byte for which there is no token, and, except with bpe, for bytes that
  ///          are not UTF-8.
  std::vector<std::int64_t> encode(std::string_view text, bool add_special = false) const;
  /// Return a text, or a pair of texts, with the special tokens and segments of the file's post-processor. What makes
  /// more than `max_length` ids, special tokens included, is cut off at the end of the text (of two texts, of the
  /// longer one, as Hugging Face's truncation "longest_first" does), or at the begin if the files say left; 0: nothing
  /// is cut off.
  /// Errors   those of encode; ValueError if max_length is negative or less than the special tokens alone, and for two
  ///          texts if the file's template is for one only.
  EncodedText encode_text(std::string_view text, std::int64_t max_length = 0) const;
  EncodedText encode_pair(std::string_view first, std::string_view second, std::int64_t max_length = 0) const;
  /// Returns the most ids that the files allow a text: model_max_length of the tokenizer_config.json in the same
  /// folder, else max_length of its truncation; 0 if neither names one. `encode` does not apply it.
  std::int64_t max_length() const;

  /// Returns the joined bytes of the ids; one bpe token may hold part of a character. `skip_special` leaves out special
  /// tokens. A leading space that the file's decoder strips is removed. An id that no token has decodes to nothing, as
  /// in Hugging Face's library: a model may have more ids than its tokenizer, and generate them.
  /// Errors   ValueError names a negative id.
  std::string decode(const std::vector<std::int64_t>& ids, bool skip_special = false) const;

  /// Returns the bytes of one token: " the"; for <0xE4> that byte. ValueError for an id that no token has.
  const std::string& bytes(std::int64_t id) const;
  /// Returns the id of a token by its bytes, or of an added token by its text.
  std::optional<std::int64_t> find(std::string_view bytes) const;

  struct State;  // src/model/tokenizer_state.h

 private:
  explicit Tokenizer(std::shared_ptr<const State> state);
  friend const State& state_of(const Tokenizer& tokenizer);
  std::shared_ptr<const State> state_;
};

}  // namespace attn
