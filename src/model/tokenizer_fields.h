// src/model/tokenizer_fields.h: reads the fields of a tokenizer.json, or of a document in its form; an error names the
// place in the file.
#pragma once
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/pre_tokenizer.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attn {

/// The long lists of a tokenizer whose file is not JSON: with 262,144 tokens a document of them takes seconds.
struct TokenizerLists {
  std::vector<std::string> tokens;  // by id; empty: no token has this id
  std::vector<double> scores;       // Unigram: by id
  std::vector<text::Merge> merges;  // BPE, unless the document has them
};

class TokenizerFields {
 public:
  using Json = nlohmann::json;
  /// Parses the file. `name` begins every error.
  TokenizerFields(std::string name, std::string_view text);
  /// A document without a file, whose vocabulary is in `lists`.
  TokenizerFields(std::string name, Json document, TokenizerLists lists)
      : name_(std::move(name)), document_(std::move(document)), lists_(std::move(lists)) {}

  const Json& document() const { return document_; }
  const std::optional<TokenizerLists>& lists() const { return lists_; }
  std::optional<TokenizerLists>& lists() { return lists_; }
  /// Returns a field of the document; null if there is none.
  const Json& at(const char* key) const;

  /// Throws a FormatError with the offset of the first place where `near` occurs in quotes; a ValueError if there is no
  /// text.
  [[noreturn]] void fail(const std::string& what, const std::string& near) const;
  const Json& member(const Json& of, const char* key, Json::value_t type) const;
  std::string text_of(const Json& of, const char* key) const;
  bool flag(const Json& of, const char* key, bool otherwise) const;
  /// Refuses an unsupported setting that would change the ids: the field must be absent, null, false, 0 or "".
  void refuse_unless_absent(const Json& of, const char* key) const;
  /// Returns an id below the greatest number of tokens.
  std::size_t id_of(const Json& given, const std::string& token, const char* near) const;
  /// Returns the tokens of a model by id; an id without a token is empty. A document has them as an object of tokens
  /// and ids.
  std::vector<std::string> vocabulary_of(const Json& model) const;

  /// Reads a merge: "a b", or ["a", "b"].
  std::pair<std::string, std::string> pair_of_merge(const Json& given) const;

  struct Metaspace {
    std::string space;
    text::Prefix prefix;
    bool split;
  };
  Metaspace metaspace_of(const Json& given) const;

  /// Returns the innermost step of nested Sequences of one step; `given` itself if it is not such a Sequence.
  static const Json& only_step(const Json& given, const char* steps);
  static bool is(const Json& step, const char* type);
  /// Returns the literal text that a step searches for; empty if it has none or uses a regular expression.
  static std::string sought(const Json& step);

 private:
  std::string name_;
  std::optional<std::string_view> text_;
  Json document_;
  std::optional<TokenizerLists> lists_;
};

/// Encodes bytes as Base64.
std::string to_base64(std::string_view bytes);

}  // namespace attn
