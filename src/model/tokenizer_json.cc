// src/model/tokenizer_json.cc: reads and checks tokenizer.json; nothing in the file is trusted before it is checked.
#include <attn/error.h>
#include <attn/tokenizer.h>

#include "io/source.h"
#include "model/gguf/mapped_file.h"
#include "model/gguf/model.h"
#include "model/json_fields.h"
#include "model/tokenizer_state.h"
#include "text/error_text.h"
#include "text/unicode.h"

#include "runtime/format.h"
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <set>
#include <unordered_set>

namespace attn {
namespace {

using State = Tokenizer::State;
using Json = nlohmann::json;

class TokenizerReader {
 public:
  TokenizerReader(std::string name, std::string_view text) : name_(std::move(name)), text_(text) {}

  std::shared_ptr<const State> read() {
    document_ = parse_json(text_, name_);
    if (!document_.is_object()) fail("the document must be an object", "");
    state_ = std::make_shared<State>();
    const Json& model = member(document_, "model", Json::value_t::object);
    read_kind(model);
    read_normalizer();
    read_decoder();
    read_pre_tokenizer();
    read_vocabulary(member(model, "vocab", Json::value_t::object));
    read_added();
    if (state_->kind == Tokenizer::Kind::bpe) read_merges(model);
    if (!state_->index()) fail("two tokens of the vocabulary stand for the same bytes", "vocab");
    if (state_->kind == Tokenizer::Kind::words && !state_->ids.contains(unknown_word))
      fail("the vocabulary has no <unk>", "vocab");
    if (const auto post = document_.find("post_processor"); post != document_.end() && !post->is_null()) {
      read_post_processor(*post);
      state_->post_processor = post->dump();
    }
    return state_;
  }

 private:
  /// Throws a FormatError with the offset of the first place where `near` occurs in quotes.
  [[noreturn]] void fail(const std::string& what, const std::string& near) const {
    const std::size_t at = text_.find("\"" + near + "\"");
    const std::size_t offset = at == std::string_view::npos ? 0 : at;
    throw FormatError(runtime::format("{}: {} (byte {})", name_, io::one_line(what), offset), offset);
  }

  const Json& member(const Json& of, const char* key, Json::value_t type) const {
    const auto found = of.find(key);
    if (found == of.end() || found->type() != type)
      fail(runtime::format("{} is missing, or no {}", key, Json(type).type_name()), key);
    return *found;
  }
  std::string text_of(const Json& of, const char* key) const {
    return member(of, key, Json::value_t::string).get<std::string>();
  }
  bool flag(const Json& of, const char* key, bool otherwise) const {
    const auto found = of.find(key);
    if (found == of.end() || found->is_null()) return otherwise;
    if (!found->is_boolean()) fail(runtime::format("{} must be true or false", key), key);
    return found->get<bool>();
  }
  /// Refuses an unsupported setting that would change the ids: the field must be absent, null, false, 0 or "".
  void refuse_unless_absent(const Json& of, const char* key) const {
    const auto found = of.find(key);
    if (found == of.end() || found->is_null() || *found == false || *found == 0 || *found == "") return;
    fail(runtime::format("{} is {}; this is not supported, it must be null", key, text::beginning(found->dump(), 60)),
         key);
  }

  /// Returns the innermost step of nested Sequences of one step; `given` itself if it is not such a Sequence.
  static const Json& only_step(const Json& given, const char* steps) {
    const Json* step = &given;
    while (step->is_object() && step->value("type", Json()) == "Sequence") {
      const auto found = step->find(steps);
      if (found == step->end() || !found->is_array() || found->size() != 1) break;
      step = &found->front();
    }
    return *step;
  }
  static bool is(const Json& step, const char* type) { return step.is_object() && step.value("type", Json()) == type; }
  /// Returns the literal text that a step searches for; empty if it has none or uses a regular expression.
  static std::string sought(const Json& step) {
    const Json pattern = step.value("pattern", Json());
    if (!pattern.is_object() || pattern.size() != 1) return "";
    const Json text = pattern.value("String", Json());
    return text.is_string() ? text.get<std::string>() : "";
  }

  /// Reads the normalizer. If tokens are bytes, it may be NFC; with byte_fallback, where they are characters, also
  /// Prepend and Replace. A Sequence without steps does nothing.
  void read_normalizer() const {
    const auto found = document_.find("normalizer");
    if (found == document_.end() || found->is_null() || add_changes(*found)) return;
    const char* needed = state_->kind == Tokenizer::Kind::bpe ? "NFC, or null" : "null";
    if (state_->byte_fallback) needed = "a Sequence of NFC, Prepend and Replace of a text, or null";
    fail(runtime::format("normalizer is {}; this is not supported, it must be {}", text::beginning(found->dump(), 80),
                         needed),
         "normalizer");
  }
  bool add_changes(const Json& step) const {
    using enum text::Change::Kind;
    const bool characters = state_->byte_fallback;
    if (is(step, "Sequence") && step.value("normalizers", Json()).is_array()) {
      const Json& steps = step["normalizers"];
      return std::all_of(steps.begin(), steps.end(), [&](const Json& inner) { return add_changes(inner); });
    }
    const auto text_at = [&](const char* key) { return step.contains(key) && step[key].is_string(); };
    if (is(step, "NFC") && state_->kind == Tokenizer::Kind::bpe) state_->normalizer.push_back({.kind = nfc});
    else if (characters && is(step, "Prepend") && text_at("prepend"))
      state_->normalizer.push_back({.kind = prepend, .to = step["prepend"]});
    else if (characters && is(step, "Replace") && text_at("content") && !sought(step).empty())
      state_->normalizer.push_back({.kind = replace, .from = sought(step), .to = step["content"]});
    else return false;
    return true;
  }

  void read_kind(const Json& model) {
    const std::string type = model.contains("type") ? text_of(model, "type") : "BPE";
    if (type != "BPE" && type != "WordLevel")
      fail(runtime::format("the model is a {}; supported are BPE and WordLevel", type), "type");
    state_->kind = type == "BPE" ? Tokenizer::Kind::bpe : Tokenizer::Kind::words;
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
      refuse_unless_absent(model, key);
    state_->byte_fallback = type == "BPE" && flag(model, "byte_fallback", false);
    state_->fuse_unknown = state_->byte_fallback && flag(model, "fuse_unk", false);
    if (!state_->byte_fallback) refuse_unless_absent(model, "byte_fallback");
    if (type == "BPE" && !state_->byte_fallback) refuse_unless_absent(model, "unk_token");
    if (state_->byte_fallback && model.contains("unk_token") && !model["unk_token"].is_null())
      state_->unknown = text_of(model, "unk_token");
    if (type == "WordLevel" && text_of(model, "unk_token") != unknown_word)
      fail("unk_token must be <unk>", "unk_token");
    state_->whole_first = flag(model, "ignore_merges", false);
  }

  void read_pre_tokenizer() {
    if (state_->byte_fallback) return read_pre_tokenizer_of_characters();
    const Json& given = only_step(member(document_, "pre_tokenizer", Json::value_t::object), "pretokenizers");
    const std::string type = text_of(given, "type");
    if (state_->kind == Tokenizer::Kind::words) {
      state_->cut = cut_of({pattern_of(given)});
      if (state_->cut == text::Cut::characters) state_->kind = Tokenizer::Kind::characters;
      return;
    }
    if (type == "ByteLevel") {
      if (!flag(given, "use_regex", true))
        fail("a ByteLevel without its pattern cuts nothing; this is not supported", "use_regex");
      state_->cut = text::Cut::gpt2;
      if (flag(given, "add_prefix_space", true)) state_->prefix = Prefix::always;
      return;
    }
    const Json steps = type == "Sequence" ? member(given, "pretokenizers", Json::value_t::array) : Json();
    const Json& bytes = steps.empty() ? steps : only_step(steps.back(), "pretokenizers");
    if (steps.size() < 2 || !is(bytes, "ByteLevel") || flag(bytes, "add_prefix_space", true))
      fail(
          "the pre-tokenizer is not supported: it must be ByteLevel, or Split and then ByteLevel without pattern or "
          "prefix",
          "pre_tokenizer");
    std::vector<std::string> patterns;
    for (std::size_t i = 0; i + 1 < steps.size(); ++i)
      patterns.push_back(pattern_of(only_step(steps[i], "pretokenizers")));
    if (flag(bytes, "use_regex", true)) patterns.emplace_back(text::patterns_of(text::Cut::gpt2)[0]);
    state_->cut = cut_of(patterns);
  }

  /// Reads the pre-tokenizer of a BPE of characters: Metaspace, a Split by a text, or none.
  void read_pre_tokenizer_of_characters() {
    state_->cut = text::Cut::whole;
    const auto found = document_.find("pre_tokenizer");
    const Json none, &given = found == document_.end() ? none : only_step(*found, "pretokenizers");
    if (given.is_null() || (is(given, "Sequence") && given.value("pretokenizers", Json()) == Json::array())) return;
    if (is(given, "Metaspace")) return read_metaspace(given);
    const Json behavior = given.is_object() ? given.value("behavior", Json()) : none;
    state_->cut = behavior == "MergedWithNext" ? text::Cut::before : text::Cut::after;
    state_->separator = is(given, "Split") ? sought(given) : "";
    if (state_->separator.empty() || (behavior != "MergedWithNext" && behavior != "MergedWithPrevious") ||
        flag(given, "invert", false))
      fail(runtime::format(
               "the pre-tokenizer {} is not supported; with byte_fallback it must be Metaspace, a Split by a "
               "text that is MergedWithPrevious or "
               "MergedWithNext, or null",
               text::beginning(given.dump(), 80)),
           "pre_tokenizer");
  }

  void read_metaspace(const Json& given) {
    state_->space = text_of(given, "replacement");
    if (state_->space.empty() || text::code_point_at(state_->space, 0).bytes != state_->space.size())
      fail(runtime::format("the replacement of a Metaspace is \"{}\"; it must be one character",
                           text::beginning(state_->space, 40)),
           "replacement");
    const std::string scheme = given.contains("prepend_scheme") ? text_of(given, "prepend_scheme") : "always";
    const auto at = std::find(std::begin(prepend_schemes), std::end(prepend_schemes), scheme);
    if (at == std::end(prepend_schemes))
      fail(runtime::format("prepend_scheme is \"{}\"; it must be always, first or never", text::beginning(scheme, 40)),
           "prepend_scheme");
    state_->prefix = static_cast<Prefix>(at - std::begin(prepend_schemes));
    if (state_->prefix != Prefix::never && !flag(given, "add_prefix_space", true))
      fail("add_prefix_space is false; prepend_scheme must be never then", "add_prefix_space");
    if (!flag(given, "split", true)) return;
    state_->cut = text::Cut::before;
    state_->separator = state_->space;
  }

  /// Returns the pattern of a Split, or of Digits before a ByteLevel.
  std::string pattern_of(const Json& step) const {
    if (state_->kind == Tokenizer::Kind::bpe && is(step, "Digits"))
      return flag(step, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)";
    if (!is(step, "Split")) fail("the pre-tokenizer must be a Split by a pattern", "pre_tokenizer");
    if (text_of(step, "behavior") != "Isolated" || flag(step, "invert", false))
      fail("a Split must be Isolated and not inverted", "behavior");
    return text_of(member(step, "pattern", Json::value_t::object), "Regex");
  }

  text::Cut cut_of(const std::vector<std::string>& patterns) const {
    const auto cut = text::cut_of(std::vector<std::string_view>(patterns.begin(), patterns.end()));
    if (!cut || (*cut == text::Cut::characters && state_->kind == Tokenizer::Kind::bpe))
      fail(runtime::format("the pattern {} is not supported; those of GPT-2, Llama 3, Qwen 2 and SmolLM are",
                           text::beginning(patterns[0], 80)),
           "Regex");
    return *cut;
  }

  /// Checks that the decoder only joins the tokens; that is also done if the file has no decoder.
  void read_decoder() const {
    const auto found = document_.find("decoder");
    if (state_->byte_fallback) return read_decoder_of_characters(found == document_.end() ? Json() : *found);
    if (found == document_.end() || found->is_null()) return;
    const char* needed = state_->kind == Tokenizer::Kind::bpe ? "ByteLevel" : "Fuse";
    const Json& decoder = only_step(*found, "decoders");
    if (!decoder.is_object() || text_of(decoder, "type") != needed)
      fail(runtime::format("the decoder {} is not supported; it must be {}, or null",
                           text::beginning(found->dump(), 80), needed),
           "decoder");
  }

  void read_decoder_of_characters(const Json& given) const {
    const Json steps = is(given, "Sequence") ? given.value("decoders", Json()) : Json();
    std::size_t at = 0;
    const auto next = [&](const char* type) {
      return steps.is_array() && at < steps.size() && is(steps[at], type) ? &steps[at++] : nullptr;
    };
    const Json* const replace = next("Replace");
    if (replace != nullptr) state_->decoded_space = sought(*replace);
    const bool joined = next("ByteFallback") != nullptr && next("Fuse") != nullptr;
    const Json* const strip = next("Strip");
    state_->strip_space = strip != nullptr;
    const bool spaces =
        replace == nullptr || (!state_->decoded_space.empty() && replace->value("content", Json()) == " ");
    const auto is_at = [&](const char* key, const Json& value) { return strip->value(key, Json()) == value; };
    const bool stripped = strip == nullptr || (is_at("content", " ") && is_at("start", 1) && is_at("stop", 0));
    if (!joined || !spaces || !stripped || at != steps.size())
      fail(runtime::format(
               "the decoder {} is not supported; with byte_fallback it must be a Sequence: Replace (of a text "
               "by a space, or none), "
               "ByteFallback, Fuse, Strip (of one space at the begin, or none)",
               text::beginning(given.dump(), 200)),
           "decoder");
  }

  std::size_t id_of(const Json& given, const std::string& token, const char* near) const {
    if (!given.is_number_unsigned() || given.get<std::uint64_t>() >= text::most_tokens)
      fail(runtime::format("the id of \"{}\" is {}; it must be a whole number below {}", text::beginning(token, 40),
                           text::beginning(given.dump(), 40), text::most_tokens),
           near);
    const auto id = given.get<std::size_t>();
    if (id >= state_->names.size()) state_->names.resize(id + 1);
    return id;
  }

  void read_vocabulary(const Json& vocab) {
    for (const auto& [token, given] : vocab.items()) {
      const std::size_t id = id_of(given, token, "vocab");
      if (token.empty()) fail("a token of the vocabulary is empty", "vocab");
      if (!state_->names[id].empty()) fail(runtime::format("id {} is given twice", id), "vocab");
      state_->names[id] = token;
    }
    if (vocab.empty()) fail("the vocabulary is empty", "vocab");
  }

  void read_added() {
    const auto found = document_.find("added_tokens");
    if (found == document_.end() || found->is_null()) return;
    if (!found->is_array()) fail("added_tokens must be a list", "added_tokens");
    // Hugging Face's library ignores the ids of added tokens in the file and numbers the tokens itself: after the
    // vocabulary, in their order. So the ids must agree with that.
    const Json& vocab = document_["model"]["vocab"];
    auto next = static_cast<std::int64_t>(vocab.size());
    std::unordered_set<std::string> contents;
    for (const Json& given : *found) {
      if (!given.is_object()) fail("an added token must be an object", "added_tokens");
      AddedToken token{.content = text_of(given, "content"), .special = flag(given, "special", false)};
      token.normalized = flag(given, "normalized", !token.special);
      if (token.content.empty()) fail("an added token is empty", "added_tokens");
      token.searched = token.normalized ? text::changed(state_->normalizer, token.content) : token.content;
      if (!state_->byte_fallback && token.searched != token.content)
        fail(runtime::format("the added token \"{}\" is not in the form of the texts that it is searched in, NFC",
                             text::beginning(token.content, 60)),
             "added_tokens");
      for (const char* key : {"single_word", "lstrip", "rstrip"}) refuse_unless_absent(given, key);
      const std::size_t id = id_of(given.contains("id") ? given["id"] : Json(), token.content, "added_tokens");
      token.in_vocabulary = state_->names[id] == token.content;
      if (token.searched.empty())
        fail(runtime::format("the normalizer leaves nothing of the added token \"{}\"",
                             text::beginning(token.content, 60)),
             "added_tokens");
      if (!contents.insert(token.content).second)
        fail(runtime::format("the added token \"{}\" is given twice", text::beginning(token.content, 60)),
             "added_tokens");
      if (!state_->names[id].empty() && !token.in_vocabulary)
        fail(runtime::format("id {} is given twice", id), "added_tokens");
      token.id = static_cast<std::int64_t>(id);
      const auto known = vocab.find(token.content);
      const std::int64_t wanted = known == vocab.end() ? next : known->get<std::int64_t>();
      if (token.id != wanted)
        fail(runtime::format("the added token \"{}\" has the id {}; Hugging Face's library gives it {}",
                             text::beginning(token.content, 60), id, wanted),
             "added_tokens");
      if (known == vocab.end()) ++next;
      state_->added.push_back(std::move(token));
    }
    std::sort(state_->added.begin(), state_->added.end(),
              [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    std::set<std::pair<bool, std::string_view>> all_searched;
    for (const AddedToken& token : state_->added)
      if (!all_searched.emplace(token.normalized, token.searched).second)
        fail(runtime::format("the added token \"{}\" is searched as \"{}\", as another is",
                             text::beginning(token.content, 60), text::beginning(token.searched, 60)),
             "added_tokens");
  }

  /// Reads a merge: "a b", or ["a", "b"].
  std::pair<std::string, std::string> pair_of(const Json& given) const {
    if (given.is_array() && given.size() == 2 && given[0].is_string() && given[1].is_string())
      return {given[0], given[1]};
    const std::string text = given.is_string() ? given.get<std::string>() : "";
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
      fail(runtime::format("the merge {} is not two tokens", text::beginning(given.dump(), 60)), "merges");
    return {text.substr(0, space), text.substr(space + 1)};
  }

  void read_merges(const Json& model) {
    std::unordered_map<std::string_view, std::int32_t> ids;
    for (std::size_t id = 0; id < state_->names.size(); ++id)
      if (!state_->names[id].empty()) ids.emplace(state_->names[id], static_cast<std::int32_t>(id));
    const auto id_of_name = [&](const std::string& name) {
      const auto found = ids.find(name);
      if (found == ids.end())
        fail(runtime::format("a merge speaks of \"{}\", which is not in the vocabulary", text::beginning(name, 60)),
             "merges");
      return found->second;
    };
    std::vector<text::Merge> merges;
    for (const Json& given : member(model, "merges", Json::value_t::array)) {
      const auto [left, right] = pair_of(given);
      merges.push_back({id_of_name(left), id_of_name(right), id_of_name(left + right)});
    }
    state_->bpe = text::Bpe(std::move(merges));
  }

  // --- the post-processor, for one text ----------------------------------------------------------------------------

  std::int64_t known_id(const Json& given) const {
    const bool known = given.is_number_unsigned() && given.get<std::uint64_t>() < state_->names.size() &&
                       !state_->names[given.get<std::size_t>()].empty();
    if (!known)
      fail(runtime::format("the post-processor adds the id {}, which no token has", text::beginning(given.dump(), 40)),
           "post_processor");
    return given.get<std::int64_t>();
  }

  /// Reads the id of a pair such as ["<s>", 0].
  std::int64_t id_of_pair(const Json& of, const char* key) const {
    const Json& pair = member(of, key, Json::value_t::array);
    if (pair.size() != 2) fail(runtime::format("{} must be a token and its id", key), key);
    return known_id(pair[1]);
  }

  /// Reads the post-processor. Only one step may add tokens: if two do, Hugging Face's library treats the tokens of the
  /// first one as separate texts. ByteLevel adds nothing.
  void read_post_processor(const Json& given) {
    if (!given.is_object()) fail("the post-processor must be an object", "post_processor");
    const std::string type = text_of(given, "type");
    if (type == "ByteLevel") return;
    if (type == "Sequence") {
      for (const Json& step : member(given, "processors", Json::value_t::array)) read_post_processor(step);
      return;
    }
    if (!state_->before.empty() || !state_->after.empty())
      fail("two steps of the post-processor add tokens; this is not supported", "post_processor");
    if (type == "TemplateProcessing") return read_template(given);
    if (type != "BertProcessing" && type != "RobertaProcessing")
      fail(runtime::format("the post-processor is a {}; supported are TemplateProcessing, BertProcessing, "
                           "RobertaProcessing, ByteLevel and Sequence",
                           type),
           "post_processor");
    state_->before = {id_of_pair(given, "cls")};
    state_->after = {id_of_pair(given, "sep")};
  }

  void read_template(const Json& given) {
    bool text_seen = false;
    for (const Json& piece : member(given, "single", Json::value_t::array)) {
      if (!piece.is_object()) fail("a piece of the template must be an object", "single");
      if (piece.contains("Sequence")) {
        if (text_of(member(piece, "Sequence", Json::value_t::object), "id") != "A" || text_seen)
          fail("the template for one text must hold A once", "single");
        text_seen = true;
        continue;
      }
      const std::string name = text_of(member(piece, "SpecialToken", Json::value_t::object), "id");
      const Json& special =
          member(member(given, "special_tokens", Json::value_t::object), name.c_str(), Json::value_t::object);
      for (const Json& id : member(special, "ids", Json::value_t::array))
        (text_seen ? state_->after : state_->before).push_back(known_id(id));
    }
    if (!text_seen) fail("the template for one text must hold A once", "single");
  }

  std::string name_;
  std::string_view text_;
  Json document_;
  std::shared_ptr<State> state_;
};

/// Reads the tokenizer of a GGUF file through the tokenizer.json that it stands for.
std::shared_ptr<const State> read_gguf(const GgufFile& file) {
  const std::string json = gguf::tokenizer_json(file);
  try {
    return TokenizerReader(file.name() + ": the tokenizer", json).read();
  } catch (const FormatError& error) {  // its offset is that in the text, which is in no file
    const std::string text = error.what();
    throw ValueError(text.substr(0, text.rfind(" (byte ")));
  }
}

}  // namespace

Tokenizer Tokenizer::parse(std::string_view json) {
  return Tokenizer(TokenizerReader("Tokenizer::parse", json).read());
}

Tokenizer Tokenizer::load(const std::string& path) {
  io::check_path("Tokenizer::load", path);
  if (gguf::is_gguf(path)) return Tokenizer(read_gguf(GgufFile::open(path)));
  std::error_code unknown;
  const std::string file =
      std::filesystem::is_directory(path, unknown) ? (std::filesystem::path(path) / tokenizer_file).string() : path;
  const io::FileSource source("Tokenizer::load", file);
  std::string text(source.size(), '\0');
  source.read(0, text.data(), text.size());
  return Tokenizer(TokenizerReader(source.name(), text).read());
}

}  // namespace attn
