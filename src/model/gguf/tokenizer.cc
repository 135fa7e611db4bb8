// src/model/gguf/tokenizer.cc: describes the tokenizer of a GGUF file's metadata as a tokenizer.json does.
#include "model/gguf/tokenizer.h"

#include "model/gguf/merges.h"

#include <attn/error.h>
#include <attn/text.h>

#include "io/source.h"
#include "runtime/format.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/cut.h"
#include "text/tokenizer/text_index.h"
#include "text/tokenizer/trie.h"
#include "text/error_text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <deque>

namespace attn::gguf {
namespace {

using Json = TokenizerFields::Json;
using text::Cut;

constexpr const char* kind_key = "tokenizer.ggml.model";
constexpr const char* cut_key = "tokenizer.ggml.pre";
constexpr const char* tokens_key = "tokenizer.ggml.tokens";
constexpr const char* types_key = "tokenizer.ggml.token_type";
constexpr const char* scores_key = "tokenizer.ggml.scores";

enum TokenType { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

/// How a pre-tokenizer splits, and what else its name implies, as in the tokenizers of these families.
struct PreTokenizer {
  const char* name;
  Cut cut;
  bool whole_first = false;  // a piece that is a token is not merged
  bool begins = false;       // with the begin token, unless the file says otherwise
  bool nfc = false;
};
constexpr const char* roberta_name = "roberta-bpe";
constexpr PreTokenizer pre_tokenizers[] = {
    {"llama-bpe", Cut::llama3, true, true},
    {"llama3", Cut::llama3, true, true},
    {"llama-v3", Cut::llama3, true, true},
    {"smaug-bpe", Cut::llama3, true},
    {"dbrx", Cut::llama3},
    {"gpt-4o", Cut::o200k},
    {"tekken", Cut::tekken, true, true},
    {"qwen2", Cut::qwen2, false, false, true},
    {"deepseek-r1-qwen", Cut::qwen2, false, false, true},
    {"gpt-2", Cut::gpt2},
    {"phi-2", Cut::gpt2},
    {roberta_name, Cut::gpt2},
    {"smollm", Cut::digits},
    {"starcoder", Cut::digits},
    {"refact", Cut::digits},
    {"default", Cut::punctuation},
};

class Description {
 public:
  explicit Description(const GgufFile& file)
      : file_(file), tokens_(file.texts(tokens_key)), types_(file.integers(types_key)) {}

  TokenizerFields make() {
    const std::string kind = file_.text(kind_key);
    if (kind != "gpt2" && kind != "llama" && kind != "bert" && kind != "t5")
      file_.refuse(kind_key,
                   "attn reads gpt2 (byte-level BPE), llama (SentencePiece's BPE), bert (WordPiece) and t5 (Unigram)");
    if (kind == "bert") spell_words();
    check_tokens();
    if (kind == "gpt2") write_bytes();
    if (kind == "llama") write_characters();
    if (kind == "bert") write_word_piece();
    if (kind == "t5") write_unigram();
    if (!document_.contains("post_processor")) document_["post_processor"] = ends();
    document_["added_tokens"] = added();
    lists_.tokens.assign(tokens_.begin(), tokens_.end());
    return {file_.name() + ": the tokenizer", std::move(document_), std::move(lists_)};
  }

 private:
  void check_tokens() {
    if (tokens_.empty()) file_.refuse(tokens_key, "it must be the tokens");
    if (tokens_.size() >= static_cast<std::size_t>(text::most_tokens))
      file_.refuse(tokens_key, runtime::format("attn reads fewer than {}", text::most_tokens));
    if (types_.empty()) types_.assign(tokens_.size(), normal);
    if (types_.size() != tokens_.size())
      file_.refuse(types_key, runtime::format("there are {} tokens", tokens_.size()));
    ids_ = text::TextIndex(tokens_.size());
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      const std::string_view token = tokens_[id];
      const auto fail = [&](const std::string& what) {
        throw ValueError(runtime::format("{}: {}: token {}, \"{}\", {}", file_.name(), tokens_key, id,
                                         io::one_line(text::beginning(token, 60)), what));
      };
      if (types_[id] < normal || types_[id] > byte) fail(runtime::format("has the type {}", types_[id]));
      if (token.size() > text::longest_token)
        fail(runtime::format("has {} bytes; at most {} are read", token.size(), text::longest_token));
      if (text::invalid_utf8(token)) fail("is not UTF-8");
      if (token.empty()) continue;  // nothing is encoded to it
      if (const auto known = ids_.find(token)) fail(runtime::format("is token {} too", *known));
      ids_.put(token, static_cast<std::int64_t>(id));
    }
  }

  /// Byte-level BPE.
  void write_bytes() {
    const std::string name =
        file_.text(cut_key, file_.text("general.architecture", "") == "gpt2" ? "gpt-2" : "default");
    const auto found = std::find_if(std::begin(pre_tokenizers), std::end(pre_tokenizers),
                                    [&](const PreTokenizer& one) { return name == one.name; });
    if (found == std::end(pre_tokenizers)) {
      std::string all;
      for (const PreTokenizer& one : pre_tokenizers) all += (all.empty() ? "" : ", ") + std::string(one.name);
      file_.refuse(cut_key, "attn reads " + all);
    }
    begins_ = found->begins;
    document_["normalizer"] = found->nfc ? Json{{"type", "NFC"}} : Json();
    const bool spaced = file_.boolean("tokenizer.ggml.add_space_prefix", false);
    if (spaced && found->cut != Cut::gpt2) file_.refuse("tokenizer.ggml.add_space_prefix", "it must be false");
    Json steps = Json::array();
    if (found->cut != Cut::gpt2)
      for (const std::string_view pattern : text::patterns_of(found->cut))
        steps.push_back(
            {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
    steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", spaced}, {"use_regex", found->cut == Cut::gpt2}});
    document_["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
    document_["decoder"] = {{"type", "ByteLevel"}};
    Json merges = Json::array();
    for (const std::string_view merge : file_.texts("tokenizer.ggml.merges")) {
      if (text::invalid_utf8(merge)) file_.refuse("tokenizer.ggml.merges", "one of them is not UTF-8");
      merges.push_back(merge);
    }
    document_["model"] = {{"type", "BPE"}, {"ignore_merges", found->whole_first}, {"merges", std::move(merges)}};
    if (name == roberta_name) add_ends_of_roberta();
  }

  /// A token before a text and one after it, unless the file says otherwise.
  void add_ends_of_roberta() {
    for (const char* key : {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token"})
      if (!file_.boolean(key, true)) return;
    document_["post_processor"] = {
        {"type", "RobertaProcessing"},
        {"cls", special_of("tokenizer.ggml.bos_token_id", "tokenizer.ggml.cls_token_id")},
        {"sep", special_of("tokenizer.ggml.eos_token_id", "tokenizer.ggml.seperator_token_id")}};
  }

  /// SentencePiece's BPE of characters, whose merges follow from the scores.
  void write_characters() {
    const std::vector<float> scores = scores_of_tokens();
    begins_ = true;
    const Json space{{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", blank}};
    Json decoders = Json::array({{{"type", "Replace"}, {"pattern", {{"String", blank}}}, {"content", " "}},
                                 {{"type", "ByteFallback"}},
                                 {{"type", "Fuse"}}});
    document_["normalizer"] = space;
    if (file_.boolean("tokenizer.ggml.add_space_prefix", true)) {
      document_["normalizer"] = {{"type", "Sequence"},
                                 {"normalizers", Json::array({{{"type", "Prepend"}, {"prepend", blank}}, space})}};
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    document_["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
    std::vector<bool> merged(tokens_.size());
    for (std::size_t id = 0; id < tokens_.size(); ++id) merged[id] = is_merged(types_[id]);
    lists_.merges = merges_of_scores(tokens_, scores, merged);
    document_["model"] = {{"type", "BPE"}, {"byte_fallback", true}, {"fuse_unk", true}, {"unk_token", unknown_token()}};
  }

  // --- tokenizers of encoders --------------------------------------------------------------------------------------

  /// Spells tokens as WordPiece does. In the file a token that begins a word has a blank before it, and one that goes
  /// on inside of a word has nothing.
  void spell_words() {
    for (std::string_view& token : tokens_) {
      if (token.empty() || (token.starts_with('[') && token.ends_with(']'))) continue;
      const bool begins = token.starts_with(blank);
      token = spelled_.emplace_back(begins ? token.substr(std::string_view(blank).size()) : "##" + std::string(token));
    }
  }

  void write_word_piece() {
    // The file does not state it: in the vocabulary of an uncased model no word has a capital letter.
    bool cased = false;
    for (const std::string_view token : tokens_)
      cased = cased || (!token.starts_with('[') &&
                        std::any_of(token.begin(), token.end(), [](char c) { return c >= 'A' && c <= 'Z'; }));
    document_["normalizer"] = {{"type", "BertNormalizer"},
                               {"clean_text", true},
                               {"handle_chinese_chars", true},
                               {"strip_accents", nullptr},
                               {"lowercase", !cased}};
    document_["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
    document_["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
    document_["model"] = {{"type", "WordPiece"},
                          {"unk_token", unknown_token()},
                          {"continuing_subword_prefix", "##"},
                          {"max_input_chars_per_word", 100U}};
    const Json begin = special_of("tokenizer.ggml.cls_token_id", "tokenizer.ggml.bos_token_id"),
               end = special_of("tokenizer.ggml.seperator_token_id", "tokenizer.ggml.eos_token_id");
    document_["post_processor"] = {{"type", "BertProcessing"}, {"sep", end}, {"cls", begin}};
  }

  void write_unigram() {
    const std::vector<float> scores = scores_of_tokens();
    if (!std::all_of(scores.begin(), scores.end(), [](float score) { return std::isfinite(score); }))
      file_.refuse(scores_key, "one of them is not a finite number");
    lists_.scores.assign(scores.begin(), scores.end());
    const Json unknown = unknown_token();
    document_["model"] = {{"type", "Unigram"}, {"unk_id", nullptr}};
    if (!unknown.is_null())
      document_["model"]["unk_id"] = static_cast<std::size_t>(ids_.find(unknown.get_ref<const std::string&>()).value());
    std::string table;
    for (const std::int64_t byte : file_.integers(charsmap_key)) table += static_cast<char>(byte & 0xFF);
    document_["normalizer"] = nullptr;
    if (!table.empty()) document_["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", to_base64(table)}};
    const Json space{{"type", "Metaspace"},
                     {"replacement", blank},
                     {"prepend_scheme", file_.boolean("tokenizer.ggml.add_space_prefix", true) ? "always" : "never"},
                     {"split", true}};
    document_["pre_tokenizer"] = {{"type", "Sequence"},
                                  {"pretokenizers", Json::array({{{"type", "WhitespaceSplit"}}, space})}};
    document_["decoder"] = space;
    if (!file_.boolean("tokenizer.ggml.add_eos_token", true)) return;
    const Json end = special_of("tokenizer.ggml.eos_token_id", "tokenizer.ggml.seperator_token_id");
    if (file_.boolean("tokenizer.ggml.add_bos_token", false)) {  // XLM-R
      const Json begin = special_of("tokenizer.ggml.bos_token_id", "tokenizer.ggml.cls_token_id");
      document_["post_processor"] = {{"type", "RobertaProcessing"}, {"sep", end}, {"cls", begin}};
      return;
    }
    const auto piece = [](const char* kind, const Json& id) { return Json{{kind, {{"id", id}, {"type_id", 0U}}}}; };
    const Json first = piece("Sequence", "A"), last = piece("SpecialToken", end[0]);
    document_["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", Json::array({first, last})},
        {"pair", Json::array({first, last, piece("Sequence", "B"), last})},
        {"special_tokens",
         {{end[0].get<std::string>(),
           {{"id", end[0]}, {"ids", Json::array({end[1]})}, {"tokens", Json::array({end[0]})}}}}}};
  }

  /// Returns a special token and its id, by the first of two keys that the file has.
  Json special_of(const char* key, const char* otherwise) const {
    if (!file_.has(key)) key = otherwise;
    const std::int64_t id = file_.integer(key);
    return Json::array({token_of(key, id), static_cast<std::uint64_t>(id)});
  }

  std::vector<float> scores_of_tokens() const {
    std::vector<float> scores = file_.numbers(scores_key);
    if (scores.size() != tokens_.size())
      file_.refuse(scores_key, runtime::format("there are {} tokens", tokens_.size()));
    return scores;
  }

  Json unknown_token() const {
    const auto found = std::find(types_.begin(), types_.end(), static_cast<std::int64_t>(unknown));
    const std::int64_t first = found == types_.end() ? -1 : found - types_.begin();
    const std::int64_t id = file_.integer("tokenizer.ggml.unknown_token_id", first);
    return id < 0 ? Json() : Json(token_of("tokenizer.ggml.unknown_token_id", id));
  }

  std::string_view token_of(const char* key, std::int64_t id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= tokens_.size() || tokens_[static_cast<std::size_t>(id)].empty())
      file_.refuse(key, runtime::format("there are {} tokens", tokens_.size()));
    return tokens_[static_cast<std::size_t>(id)];
  }

  /// The tokens that the file adds before and after a text.
  Json ends() const {
    Json single = Json::array(), special = Json::object();
    const auto add = [&](bool added, const char* key) {
      if (!added || !file_.has(key)) return;
      const std::int64_t id = file_.integer(key);
      const std::string_view token = token_of(key, id);
      single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0U}}}});
      special[std::string(token)] = {{"id", token}, {"ids", {static_cast<std::uint64_t>(id)}}, {"tokens", {token}}};
    };
    add(file_.boolean("tokenizer.ggml.add_bos_token", begins_), "tokenizer.ggml.bos_token_id");
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0U}}}});
    add(file_.boolean("tokenizer.ggml.add_eos_token", false), "tokenizer.ggml.eos_token_id");
    if (special.empty()) return nullptr;
    Json pair = single;  // the same around each of two texts
    for (Json piece : single) {
      Json& inner = piece.begin().value();
      if (piece.contains("Sequence")) inner["id"] = "B";
      inner["type_id"] = 1U;
      pair.push_back(std::move(piece));
    }
    return {{"type", "TemplateProcessing"},
            {"single", single},
            {"pair", std::move(pair)},
            {"special_tokens", std::move(special)}};
  }

  /// The tokens that are searched for in a text before it is cut.
  Json added() const {
    Json list = Json::array();
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      if (tokens_[id].empty() || (types_[id] != unknown && types_[id] != control && types_[id] != user_defined))
        continue;
      list.push_back(
          {{"id", id}, {"content", tokens_[id]}, {"normalized", false}, {"special", types_[id] != user_defined}});
    }
    return list;
  }

  static constexpr const char* charsmap_key = "tokenizer.ggml.precompiled_charsmap";
  static constexpr const char* blank = "\xE2\x96\x81";  // SentencePiece's space
  const GgufFile& file_;
  std::vector<std::string_view> tokens_;
  std::vector<std::int64_t> types_;
  text::TextIndex ids_;
  bool begins_ = false;
  std::deque<std::string> spelled_;  // tokens that the file spells otherwise
  Json document_;
  TokenizerLists lists_;
};

}  // namespace

TokenizerFields tokenizer_of(const GgufFile& file) { return Description(file).make(); }

}  // namespace attn::gguf
