// src/model/tokenizer_template.cc: reads the post-processor of a tokenizer.json.
#include "model/tokenizer_template.h"

#include "text/error_text.h"

#include "runtime/format.h"

#include <algorithm>

namespace attn {
namespace {

using Json = TokenizerFields::Json;
using Of = TemplatePiece::Of;

class TemplateReader {
 public:
  TemplateReader(const TokenizerFields& file, const std::function<bool(std::uint64_t)>& known)
      : file_(file), known_(known) {}

  void read(const Json& given) {
    if (!given.is_object()) file_.fail("the post-processor must be an object", "post_processor");
    const std::string type = file_.text_of(given, "type");
    if (type == "ByteLevel") return;  // it adds nothing
    if (type == "Sequence") {
      for (const Json& step : file_.member(given, "processors", Json::value_t::array)) read(step);
      return;
    }
    if (adds_) file_.fail("two steps of the post-processor add tokens; this is not supported", "post_processor");
    adds_ = true;
    if (type == "TemplateProcessing") return read_template(given);
    if (type != "BertProcessing" && type != "RobertaProcessing")
      file_.fail(runtime::format("the post-processor is a {}; supported are TemplateProcessing, BertProcessing, "
                                 "RobertaProcessing, ByteLevel and Sequence",
                                 type),
                 "post_processor");
    const TemplatePiece begin{Of::special, 0, {id_of_pair(given, "cls")}},
        end{Of::special, 0, {id_of_pair(given, "sep")}};
    result.single = {begin, {Of::first}, end};
    result.pair = result.single;
    if (type == "RobertaProcessing") {
      result.pair.insert(result.pair.end(), {end, {Of::second}, end});
    } else {
      result.pair.insert(result.pair.end(), {{Of::second, 1}, {Of::special, 1, end.ids}});
    }
  }

  Templates result;

 private:
  std::int64_t known_id(const Json& given) const {
    if (!given.is_number_unsigned() || !known_(given.get<std::uint64_t>()))
      file_.fail(
          runtime::format("the post-processor adds the id {}, which no token has", text::beginning(given.dump(), 40)),
          "post_processor");
    return given.get<std::int64_t>();
  }

  /// Reads the id of a pair such as ["<s>", 0].
  std::int64_t id_of_pair(const Json& of, const char* key) const {
    const Json& pair = file_.member(of, key, Json::value_t::array);
    if (pair.size() != 2) file_.fail(runtime::format("{} must be a token and its id", key), key);
    return known_id(pair[1]);
  }

  void read_template(const Json& given) {
    result.single = pieces_of(given, "single");
    if (count(result.single, Of::first) != 1 || count(result.single, Of::second) != 0)
      file_.fail("the template for one text must hold A once", "single");
    result.pair.clear();
    if (!given.contains("pair")) return;
    result.pair = pieces_of(given, "pair");
    if (result.pair.empty()) return;  // as if there was none
    if (count(result.pair, Of::first) != 1 || count(result.pair, Of::second) != 1)
      file_.fail("the template for two texts must hold A and B once each", "pair");
  }

  static std::ptrdiff_t count(const std::vector<TemplatePiece>& pieces, Of of) {
    return std::count_if(pieces.begin(), pieces.end(), [&](const TemplatePiece& piece) { return piece.of == of; });
  }

  std::vector<TemplatePiece> pieces_of(const Json& given, const char* key) const {
    std::vector<TemplatePiece> pieces;
    for (const Json& piece : file_.member(given, key, Json::value_t::array)) {
      if (!piece.is_object()) file_.fail("a piece of the template must be an object", key);
      if (piece.contains("Sequence")) {
        const Json& text = file_.member(piece, "Sequence", Json::value_t::object);
        const std::string name = file_.text_of(text, "id");
        if (name != "A" && name != "B")
          file_.fail(
              runtime::format("the template speaks of the text \"{}\"; there are A and B", text::beginning(name, 40)),
              key);
        pieces.push_back({name == "A" ? Of::first : Of::second, type_id_of(text)});
        continue;
      }
      const Json& token = file_.member(piece, "SpecialToken", Json::value_t::object);
      const std::string name = file_.text_of(token, "id");
      const Json& special = file_.member(file_.member(given, "special_tokens", Json::value_t::object), name.c_str(),
                                         Json::value_t::object);
      pieces.push_back({Of::special, type_id_of(token)});
      for (const Json& id : file_.member(special, "ids", Json::value_t::array))
        pieces.back().ids.push_back(known_id(id));
    }
    return pieces;
  }

  std::int64_t type_id_of(const Json& of) const {
    const Json given = of.value("type_id", Json(0U));
    if (!given.is_number_unsigned() || given.get<std::uint64_t>() > UINT32_MAX)
      file_.fail(runtime::format("type_id is {}; it must be a whole number", text::beginning(given.dump(), 40)),
                 "type_id");
    return given.get<std::int64_t>();
  }

  const TokenizerFields& file_;
  const std::function<bool(std::uint64_t)>& known_;
  bool adds_ = false;
};

}  // namespace

Templates read_templates(const TokenizerFields& file, const std::function<bool(std::uint64_t)>& known) {
  TemplateReader reader(file, known);
  if (const Json& given = file.at("post_processor"); !given.is_null()) reader.read(given);
  return reader.result;
}

}  // namespace attn
