// src/model/encoder_tokenizer.cc: the tokenizers of encoders: steps of a normalizer and a pre-tokenizer, WordPiece,
// Unigram or a BPE of characters, steps of a decoder.
#include "model/encoder_tokenizer.h"

#include "model/encoder_steps_json.h"
#include "text/error_text.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/character_bpe.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/wordpiece.h"

#include "runtime/format.h"

#include <algorithm>
#include <variant>

namespace attn {
namespace {

using Json = TokenizerFields::Json;
using Ordered = nlohmann::ordered_json;
using Model = std::variant<text::WordPiece, text::Unigram, text::CharacterBpe>;

class StepsInTurn final : public EncoderTokenizer {
 public:
  StepsInTurn(const TokenizerFields& file, std::vector<std::string> tokens, Model model)
      : normalizer_(read_normalizer(file)), pre_tokenizer_(read_pre_tokenizer(file)), decoder_(read_decoder(file)),
        tokens_(std::move(tokens)), model_(std::move(model)) {
    for (const char* field : {"normalizer", "pre_tokenizer", "decoder"}) given_.push_back(file.at(field).dump());
  }

  text::Rewritten normalized(std::string_view text, bool first) const override {
    const std::size_t of_first = first && !text.empty() ? text::code_point_at(text, 0).bytes : 0;
    return text::normalized(normalizer_, {std::string(text), of_first});
  }

  void encode(const text::Rewritten& part, std::vector<std::int64_t>& ids) const override {
    text::pre_tokenized(pre_tokenizer_, part, [&](std::string_view piece) {
      std::visit([&](const auto& model) { model.encode(piece, ids); }, model_);
    });
  }

  std::string decoded(std::vector<std::string> tokens) const override {
    if (decoder_) return text::decoded(*decoder_, std::move(tokens));
    std::string result;
    for (const std::string& token : tokens) result += (&token == tokens.data() ? "" : " ") + token;
    return result;
  }

  std::string bytes_of(const std::string& token) const override {
    const int byte = has(text::DecoderStep::Kind::byte_fallback) ? text::byte_of_name(token) : -1;
    return byte < 0 ? decoded({"", token}) : std::string(1, static_cast<char>(byte));
  }

  bool strips_space() const override {
    return !decoder_ || has(text::DecoderStep::Kind::word_piece) || has(text::DecoderStep::Kind::metaspace);
  }

  Ordered steps() const override {
    return {{"normalizer", Ordered::parse(given_[0])},
            {"pre_tokenizer", Ordered::parse(given_[1])},
            {"decoder", Ordered::parse(given_[2])}};
  }

  Ordered model() const override {
    if (const auto* const words = std::get_if<text::WordPiece>(&model_)) {
      return {{"type", "WordPiece"},
              {"unk_token", tokens_[static_cast<std::size_t>(words->options().unknown)]},
              {"continuing_subword_prefix", words->options().prefix},
              {"max_input_chars_per_word", words->options().longest},
              {"vocab", ids_by_token()}};
    }
    if (const auto* const pairs = std::get_if<text::CharacterBpe>(&model_)) return bpe_model(*pairs);
    const auto& unigram = std::get<text::Unigram>(model_);
    Ordered vocab = Ordered::array();
    for (std::size_t id = 0; id < tokens_.size(); ++id)
      vocab.push_back(Ordered::array({tokens_[id], unigram.scores()[id]}));
    const auto& unknown = unigram.options().unknown;
    return {{"type", "Unigram"},
            {"unk_id", unknown ? Ordered(*unknown) : Ordered()},
            {"vocab", std::move(vocab)},
            {"byte_fallback", unigram.options().byte_fallback}};
  }

 private:
  Ordered ids_by_token() const {
    Ordered vocab = Ordered::object();
    auto& entries = vocab.get_ref<Ordered::object_t&>();
    for (std::size_t id = 0; id < tokens_.size(); ++id)
      if (!tokens_[id].empty()) entries.Ordered::object_t::Container::emplace_back(tokens_[id], id);
    return vocab;
  }
  Ordered bpe_model(const text::CharacterBpe& pairs) const {
    Ordered merges = Ordered::array();
    const auto& unknown = pairs.options().unknown;
    for (const text::Merge& merge : pairs.merges().merges())
      merges.push_back(Ordered::array(
          {tokens_[static_cast<std::size_t>(merge.left)], tokens_[static_cast<std::size_t>(merge.right)]}));
    return {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", unknown ? Ordered(tokens_[static_cast<std::size_t>(*unknown)]) : Ordered()},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", pairs.options().fuse_unknown},
            {"byte_fallback", false},
            {"ignore_merges", pairs.options().whole_first},
            {"vocab", ids_by_token()},
            {"merges", std::move(merges)}};
  }
  bool has(text::DecoderStep::Kind kind) const {
    return decoder_ && std::any_of(decoder_->begin(), decoder_->end(),
                                   [&](const text::DecoderStep& step) { return step.kind == kind; });
  }

  std::vector<text::NormalizerStep> normalizer_;
  std::vector<text::PreTokenizerStep> pre_tokenizer_;
  std::optional<std::vector<text::DecoderStep>> decoder_;
  std::vector<std::string> tokens_, given_;
  Model model_;
};

void check_length(const TokenizerFields& file, const std::string& token) {
  if (token.size() > text::longest_token)
    file.fail(runtime::format("the token \"{}\" has {} bytes; at most {} are read", text::beginning(token, 40),
                              token.size(), text::longest_token),
              "vocab");
}

Model read_word_piece(const TokenizerFields& file, const Json& model, std::vector<std::string>& names) {
  names = file.vocabulary_of(model);
  for (const std::string& name : names) check_length(file, name);
  text::WordPiece::Options options;
  if (model.contains("continuing_subword_prefix")) options.prefix = file.text_of(model, "continuing_subword_prefix");
  const std::string unknown = model.contains("unk_token") ? file.text_of(model, "unk_token") : "[UNK]";
  const auto found = std::find(names.begin(), names.end(), unknown);
  if (found == names.end() || unknown.empty())
    file.fail(runtime::format("the vocabulary has no {}", text::beginning(unknown, 40)), "unk_token");
  options.unknown = found - names.begin();
  const Json longest = model.value("max_input_chars_per_word", Json(options.longest));
  if (!longest.is_number_unsigned())
    file.fail(runtime::format("max_input_chars_per_word is {}; it must be a whole number",
                              text::beginning(longest.dump(), 40)),
              "max_input_chars_per_word");
  options.longest = longest.get<std::size_t>();
  return text::WordPiece(names, options);
}

/// Reads the tokens with their scores.
void read_scores(const TokenizerFields& file, const Json& model, TokenizerLists& to) {
  const Json& vocab = file.member(model, "vocab", Json::value_t::array);
  if (vocab.empty()) file.fail("the vocabulary is empty", "vocab");
  if (vocab.size() >= static_cast<std::size_t>(text::most_tokens))
    file.fail(runtime::format("the vocabulary has {} tokens; fewer than {} are read", vocab.size(), text::most_tokens),
              "vocab");
  for (const Json& entry : vocab) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
      file.fail(runtime::format("the entry {} of the vocabulary is not a token and its score",
                                text::beginning(entry.dump(), 60)),
                "vocab");
    to.tokens.push_back(entry[0].get<std::string>());
    check_length(file, to.tokens.back());
    to.scores.push_back(entry[1].get<double>());
  }
}

Model read_unigram(const TokenizerFields& file, const Json& model, std::vector<std::string>& names) {
  TokenizerLists lists;
  if (file.lists()) lists = *file.lists();
  else read_scores(file, model, lists);
  names = std::move(lists.tokens);
  text::Unigram::Options options{.unknown = {}, .byte_fallback = file.flag(model, "byte_fallback", false)};
  if (const Json unknown = model.value("unk_id", Json()); !unknown.is_null()) {
    if (!unknown.is_number_unsigned() || unknown.get<std::uint64_t>() >= names.size())
      file.fail(runtime::format("unk_id is {}; the vocabulary has {} tokens", text::beginning(unknown.dump(), 40),
                                names.size()),
                "unk_id");
    options.unknown = unknown.get<std::int64_t>();
  }
  return text::Unigram(names, std::move(lists.scores), options);
}

Model read_character_bpe(const TokenizerFields& file, const Json& model, std::vector<std::string>& names) {
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    file.refuse_unless_absent(model, key);
  names = file.vocabulary_of(model);
  text::TextIndex known(names.size());
  for (std::size_t id = 0; id < names.size(); ++id)
    if (!names[id].empty()) known.put(names[id], static_cast<std::int64_t>(id));
  const auto id_of = [&](const std::string& name, const char* field) {
    const auto found = known.find(name);
    if (!found)
      file.fail(
          runtime::format("{} speaks of \"{}\", which is not in the vocabulary", field, text::beginning(name, 60)),
          field);
    return *found;
  };
  text::CharacterBpe::Options options{.unknown = {},
                                      .fuse_unknown = file.flag(model, "fuse_unk", false),
                                      .whole_first = file.flag(model, "ignore_merges", false)};
  if (model.contains("unk_token") && !model["unk_token"].is_null())
    options.unknown = id_of(file.text_of(model, "unk_token"), "unk_token");
  std::vector<text::Merge> merges;
  for (const Json& given : file.member(model, "merges", Json::value_t::array)) {
    const auto [left, right] = file.pair_of_merge(given);
    merges.push_back({static_cast<std::int32_t>(id_of(left, "merges")),
                      static_cast<std::int32_t>(id_of(right, "merges")),
                      static_cast<std::int32_t>(id_of(left + right, "merges"))});
  }
  return text::CharacterBpe(names, std::move(merges), options);
}

}  // namespace

std::shared_ptr<const EncoderTokenizer> read_encoder_tokenizer(const TokenizerFields& file,
                                                               std::vector<std::string>& names) {
  const Json& model = file.member(file.document(), "model", Json::value_t::object);
  Model read = TokenizerFields::is(model, "WordPiece") ? read_word_piece(file, model, names)
               : TokenizerFields::is(model, "Unigram") ? read_unigram(file, model, names)
                                                       : read_character_bpe(file, model, names);
  return std::make_shared<StepsInTurn>(file, names, std::move(read));
}

}  // namespace attn
