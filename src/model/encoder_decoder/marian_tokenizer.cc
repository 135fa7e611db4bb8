// src/model/encoder_decoder/marian_tokenizer.cc: Marian's tokenizer: SentencePiece models of the source and the target,
// whose pieces have the ids of vocab.json.
#include "io/is_file.h"
#include "model/encoder_decoder/tokenizers.h"
#include "model/json_fields.h"
#include "model/weights_files.h"
#include "text/error_text.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/sentence_piece.h"
#include "text/unicode.h"

#include "runtime/format.h"

#include <algorithm>
#include <filesystem>
#include <unordered_map>

namespace attn {
namespace {

namespace fs = std::filesystem;

constexpr const char* marian_load_name = "Translator::load";

/// The ids of pieces, and the pieces of ids.
struct PieceIds {
  std::unordered_map<std::string, std::int64_t> ids;
  std::unordered_map<std::int64_t, std::string> pieces;
  std::int64_t unknown = 0, end = 0;
};

PieceIds read_pieces(const fs::path& path, const std::string& unknown, const std::string& end) {
  const nlohmann::json document = parse_json(read_text(marian_load_name, path.string()), path.string());
  PieceIds result;
  if (!document.is_object()) throw ValueError(path.string() + ": it must name the id of each piece");
  for (const auto& [piece, id] : document.items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(text::most_tokens))
      throw ValueError(runtime::format("{}: the id of \"{}\" is {}; it must be from 0 to {}", path.string(),
                                       text::error_text(text::beginning(piece, 40)), text::beginning(id.dump(), 40),
                                       text::most_tokens - 1));
    result.ids.emplace(piece, id.get<std::int64_t>());
    result.pieces.emplace(id.get<std::int64_t>(), piece);
  }
  for (const auto& [special, to] : {std::pair(unknown, &result.unknown), std::pair(end, &result.end)}) {
    const auto found = result.ids.find(special);
    if (found == result.ids.end()) throw ValueError(path.string() + ": there is no piece " + text::error_text(special));
    *to = found->second;
  }
  return result;
}

text::SentencePiece read_model(const fs::path& path) {
  return {text::SentencePieceFile::parse(read_text(marian_load_name, path.string()), path.string()), path.string()};
}

/// Returns the text without white space around it.
std::string stripped_text(const std::string& given) {
  std::size_t begin = given.size(), end = 0;
  for (std::size_t at = 0; at < given.size();) {
    const text::CodePoint c = text::code_point_at(given, at);
    if (!text::is_space(c.value)) begin = std::min(begin, at), end = at + c.bytes;
    at += c.bytes;
  }
  return end == 0 ? "" : given.substr(begin, end - begin);
}

class MarianTokenizer final : public PairTokenizer {
 public:
  MarianTokenizer(const fs::path& folder, const JsonFields& config)
      : special_{config.text("unk_token", "<unk>"), config.text("eos_token", "</s>"),
                 config.text("pad_token", "<pad>")},
        source_(read_model(folder / "source.spm")), target_(read_model(folder / "target.spm")),
        source_ids_(read_pieces(folder / "vocab.json", special_[0], special_[1])),
        target_ids_(config.boolean("separate_vocabs", false)
                        ? read_pieces(folder / "target_vocab.json", special_[0], special_[1])
                        : source_ids_) {}

  Ids encode(const std::string& text, const std::string&) const override {
    Ids ids = encoded(text, source_, source_ids_);
    ids.push_back(source_ids_.end);
    return ids;
  }
  Ids encode_target(const std::string& text, const std::string&) const override {
    return encoded(text, target_, target_ids_);
  }
  std::string decode(const Ids& ids) const override {
    std::string text;
    for (const std::int64_t id : ids) {
      const auto found = target_ids_.pieces.find(id);
      if (found == target_ids_.pieces.end() || is_special(found->second)) continue;
      text += with_spaces(found->second);
    }
    return stripped_text(text);
  }
  std::string shown(std::int64_t id, bool of_target) const override {
    const auto& pieces = of_target ? target_ids_.pieces : source_ids_.pieces;
    const auto found = pieces.find(id);
    return found == pieces.end() ? "" : with_spaces(found->second);
  }

 private:
  bool is_special(const std::string& piece) const {
    return std::find(std::begin(special_), std::end(special_), piece) != std::end(special_);
  }
  static std::string with_spaces(std::string piece) {
    for (std::size_t at = 0; (at = piece.find(text::piece_space, at)) != piece.npos;)
      piece.replace(at, text::piece_space.size(), " ");
    return piece;
  }
  /// The pieces of the parts of a text between special tokens, which stand for themselves.
  Ids encoded(const std::string& text, const text::SentencePiece& model, const PieceIds& known) const {
    text::check_utf8("encode", text);
    Ids ids;
    const auto add = [&](const std::string& piece) {
      const auto found = known.ids.find(piece);
      ids.push_back(found == known.ids.end() ? known.unknown : found->second);
    };
    for (std::size_t at = 0; at < text.size();) {
      std::size_t next = text.size(), length = 0;
      for (const std::string& token : special_)
        if (const std::size_t found = token.empty() ? text.npos : text.find(token, at); found < next)
          next = found, length = token.size();
      add_part(text.substr(at, next - at), model, add);
      if (length > 0) add(text.substr(next, length));
      at = next + length;
    }
    return ids;
  }
  /// ">>fra<<" at the begin of a part is a piece.
  template <typename Add>
  static void add_part(const std::string& part, const text::SentencePiece& model, const Add& add) {
    std::size_t code = 0;
    if (part.starts_with(">>"))
      if (const std::size_t end = part.find("<<"); end != part.npos) code = end + 2;
    if (code > 0) add(part.substr(0, code));
    for (const std::string& piece : model.encode(std::string_view(part).substr(code))) add(piece);
  }

  const std::string special_[3];
  const text::SentencePiece source_, target_;
  const PieceIds source_ids_, target_ids_;
};

}  // namespace

std::shared_ptr<const PairTokenizer> read_marian_tokenizer(const std::string& folder) {
  const fs::path path(folder), config = path / "tokenizer_config.json";
  const auto fields = fields_of(marian_load_name, config);
  return std::make_shared<MarianTokenizer>(path, fields ? *fields : JsonFields(std::string("{}"), config.string()));
}

}  // namespace attn
