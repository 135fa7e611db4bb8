// src/model/encoder_decoder/tokenizers.cc: reads the tokenizer of an encoder-decoder's folder: tokenizer.json, or of T5
// the SentencePiece model alone; with the languages of NLLB and mBART.
#include "model/encoder_decoder/tokenizers.h"

#include "io/is_file.h"
#include "model/json_fields.h"
#include "model/tokenizer_fields.h"
#include "model/tokenizer_state.h"
#include "model/weights_files.h"
#include "text/tokenizer/sentence_piece.h"

#include "runtime/format.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>

namespace attn {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* tokenizer_load_name = "Translator::load";

/// Returns the language that a special token stands for: "eng_Latn", "en_XX"; "en" of "__en__". Empty: none.
std::string language_of(const std::string& token) {
  const auto letters = [&](std::size_t begin, std::size_t end) {
    return end > begin && std::all_of(token.begin() + static_cast<std::ptrdiff_t>(begin),
                                      token.begin() + static_cast<std::ptrdiff_t>(end),
                                      [](unsigned char c) { return std::isalpha(c) != 0; });
  };
  if (token.size() > 4 && token.starts_with("__") && token.ends_with("__") && letters(2, token.size() - 2))
    return token.substr(2, token.size() - 4);
  const std::size_t at = token.find('_');
  const bool both = at != token.npos && letters(0, at) && letters(at + 1, token.size());
  return both && (at == 2 || at == 3) && (token.size() - at == 3 || token.size() - at == 5) ? token : "";
}

class FilePairTokenizer final : public PairTokenizer {
 public:
  FilePairTokenizer(Tokenizer tokenizer, bool of_mbart) : tokenizer_(std::move(tokenizer)) {
    const Tokenizer::State& state = state_of(tokenizer_);
    for (std::size_t id = 0; id < state.names.size(); ++id) {
      if (!state.special[id]) continue;
      const std::string language = language_of(state.names[id]);
      if (!language.empty()) languages_.emplace(language, static_cast<std::int64_t>(id));
    }
    before_ = state.before();
    after_ = state.after();
    // mBART's first models have the language after the text, and begin with that of the target
    begins_with_language_ = of_mbart && has_language(after_);
  }

  Ids encode(const std::string& text, const std::string& language) const override {
    return around(text, language, after_);
  }
  Ids encode_target(const std::string& text, const std::string& language) const override {
    Ids after;  // empty: neither the end token nor what follows it
    return around(text, language, after);
  }
  std::string decode(const Ids& ids) const override { return tokenizer_.decode(ids, /*skip_special=*/true); }
  std::string shown(std::int64_t id, bool) const override {
    return state_of(tokenizer_).has(id) ? tokenizer_.bytes(id) : "";
  }
  std::vector<std::string> languages() const override {
    std::vector<std::string> result;
    if (has_language(before_) || has_language(after_))
      for (const auto& [language, id] : languages_) result.push_back(language);
    return result;
  }
  void begin_with(const std::string& language, TranslateOptions& options) const override {
    (begins_with_language_ ? options.start : options.forced_begin) = languages_.at(language);
  }

 private:
  bool is_language(std::int64_t id) const {
    return std::any_of(languages_.begin(), languages_.end(), [&](const auto& one) { return one.second == id; });
  }
  bool has_language(const Ids& ids) const {
    return std::any_of(ids.begin(), ids.end(), [&](std::int64_t id) { return is_language(id); });
  }
  Ids around(const std::string& text, const std::string& language, const Ids& after) const {
    Ids result = before_;
    const Ids ids = tokenizer_.encode(text);
    result.insert(result.end(), ids.begin(), ids.end());
    result.insert(result.end(), after.begin(), after.end());
    if (language.empty()) return result;
    const auto replace = [&](std::int64_t& id) {
      if (is_language(id)) id = languages_.at(language);
    };
    const auto begin = static_cast<std::ptrdiff_t>(before_.size());
    std::for_each(result.begin(), result.begin() + begin, replace);
    std::for_each(result.begin() + begin + std::ssize(ids), result.end(), replace);
    return result;
  }

  const Tokenizer tokenizer_;
  std::map<std::string, std::int64_t> languages_;
  Ids before_, after_;
  bool begins_with_language_ = false;
};

/// Returns the tokenizer.json that transformers makes of T5's SentencePiece model.
std::string json_of_t5(const text::SentencePieceFile& file, std::int64_t extra_ids, const std::string& path) {
  if (file.model_type != 1)
    throw ValueError(runtime::format("{}: its model_type is {}; it must be 1, Unigram", path, file.model_type));
  using Type = text::SentencePieceFile::Type;
  Json vocab = Json::array(), added = Json::array();
  std::uint64_t unknown = 0;
  const auto add = [&](const std::string& token, bool special) {
    const auto id = static_cast<std::uint64_t>(vocab.size() - 1);
    if (special) added.push_back({{"id", id}, {"content", token}, {"normalized", false}, {"special", true}});
  };
  std::optional<std::uint64_t> end;
  for (const auto& piece : file.pieces) {
    vocab.push_back(Json::array({piece.text, static_cast<double>(piece.score)}));
    if (piece.type == Type::unknown) unknown = vocab.size() - 1;
    if (piece.text == "</s>") end = vocab.size() - 1;
    add(piece.text, piece.type == Type::unknown || piece.type == Type::control);
  }
  if (!end) throw ValueError(path + ": there is no piece </s>");
  for (std::int64_t n = extra_ids; n-- > 0;) {
    const std::string token = "<extra_id_" + std::to_string(n) + ">";
    vocab.push_back(Json::array({token, 0.0}));
    add(token, true);
  }
  const Json space{{"type", "Metaspace"},
                   {"replacement", std::string(text::piece_space)},
                   {"prepend_scheme", "always"},
                   {"split", true}};
  const auto piece = [](const char* kind, const char* id) { return Json{{kind, {{"id", id}, {"type_id", 0U}}}}; };
  const Json first = piece("Sequence", "A"), last = piece("SpecialToken", "</s>");
  Json document{
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", Json::array({{{"type", "WhitespaceSplit"}}, space})}}},
      {"decoder", space},
      {"model", {{"type", "Unigram"}, {"unk_id", unknown}, {"vocab", vocab}}}};
  if (!file.charsmap.empty())
    document["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", to_base64(file.charsmap)}};
  document["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", Json::array({first, last})},
      {"pair", Json::array({first, last, piece("Sequence", "B"), last})},
      {"special_tokens", {{"</s>", {{"id", "</s>"}, {"ids", Json::array({*end})}, {"tokens", {"</s>"}}}}}}};
  return document.dump();
}

Tokenizer read_t5_pieces(const fs::path& folder) {
  const std::string path = (folder / "spiece.model").string();
  const auto config = fields_of(tokenizer_load_name, folder / "tokenizer_config.json");
  const std::int64_t extra_ids = config ? config->integer("extra_ids", 100) : 100;
  if (extra_ids < 0 || extra_ids > 1 << 16) config->refuse("extra_ids", "it must be from 0 to 65536");
  const auto file = text::SentencePieceFile::parse(read_text(tokenizer_load_name, path), path);
  return Tokenizer::parse(json_of_t5(file, extra_ids, path));
}

[[noreturn]] void refuse_without_file(const fs::path& folder, EncoderDecoderConfig::Family family) {
  using Family = EncoderDecoderConfig::Family;
  if (family == Family::m2m_100 && io::is_file(folder / "vocab.json"))  // NLLB has none
    throw IoError(
        runtime::format("{}: M2M-100's sentencepiece.bpe.model and vocab.json are not read; a tokenizer.json is needed",
                        folder.string()));
  constexpr const char* names[] = {"T5", "BART", "mBART", "Marian", "NLLB", "PEGASUS"};  // in the order of Family
  throw IoError(
      runtime::format("{}: there is no tokenizer.json, which {} needs for texts; "
                      "AutoTokenizer.from_pretrained(folder).save_pretrained(folder) of transformers writes it",
                      folder.string(), names[static_cast<int>(family)]));
}

}  // namespace

std::shared_ptr<const PairTokenizer> read_pair_tokenizer(const std::string& folder,
                                                         EncoderDecoderConfig::Family family) {
  using Family = EncoderDecoderConfig::Family;
  const fs::path path(folder);
  const bool own = io::is_file(path / tokenizer_file);
  if (!own && io::is_file(path / "source.spm")) return read_marian_tokenizer(folder);
  if (!own && family == Family::t5 && io::is_file(path / "spiece.model"))
    return std::make_shared<FilePairTokenizer>(read_t5_pieces(path), false);
  if (!own) refuse_without_file(path, family);
  return std::make_shared<FilePairTokenizer>(Tokenizer::load(folder), family == Family::mbart);
}

}  // namespace attn
