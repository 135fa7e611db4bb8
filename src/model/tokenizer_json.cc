// src/model/tokenizer_json.cc: reads and checks tokenizer.json; nothing in the file is trusted before it is checked.
#include <attn/error.h>
#include <attn/tokenizer.h>

#include "io/source.h"
#include "model/gguf/mapped_file.h"
#include "model/gguf/tokenizer.h"
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

// In the order of Tokenizer::Kind; a WordLevel may turn out to be one of characters.
constexpr const char* models[] = {"", "WordLevel", "BPE", "WordPiece", "Unigram"};

class TokenizerReader : private TokenizerFields {
 public:
  explicit TokenizerReader(TokenizerFields fields) : TokenizerFields(std::move(fields)) {}

  std::shared_ptr<State> read() {
    const Json& model = member(document(), "model", Json::value_t::object);
    read_kind(model);
    if (has_steps()) {
      state_->encoder = read_encoder_tokenizer(*this, state_->names);
      state_->strip_space = state_->encoder->strips_space();
    } else {
      read_normalizer();
      read_decoder();
      read_pre_tokenizer();
      state_->names = vocabulary_of(model);
    }
    read_added();
    if (state_->kind == Tokenizer::Kind::bpe && !state_->encoder) read_merges(model);
    if (!state_->index()) fail("two tokens of the vocabulary stand for the same bytes", "vocab");
    if (state_->kind == Tokenizer::Kind::words && !state_->ids.contains(unknown_word))
      fail("the vocabulary has no <unk>", "vocab");
    state_->templates = read_templates(*this, [&](std::uint64_t id) {
      return id < state_->names.size() && !state_->names[static_cast<std::size_t>(id)].empty();
    });
    state_->post_processor = at("post_processor").dump();
    read_limits();
    return state_;
  }

 private:
  /// Reads the normalizer. If tokens are bytes, it may be NFC; with byte_fallback, where they are characters, also
  /// Prepend and Replace. A Sequence without steps does nothing.
  void read_normalizer() const {
    const auto found = document().find("normalizer");
    if (found == document().end() || found->is_null() || add_changes(*found)) return;
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

  /// Returns whether the file's steps are read as those of encoders: WordPiece, Unigram, and NLLB's BPE of characters,
  /// which are cut by a Metaspace alone.
  bool has_steps() const {
    if (is_of_encoder(state_->kind)) return true;
    const Json& model = at("model");
    return state_->kind == Tokenizer::Kind::bpe && model.value("byte_fallback", Json(false)) != true &&
           is(only_step(at("pre_tokenizer"), "pretokenizers"), "Metaspace");
  }

  void read_kind(const Json& model) {
    const std::string type = model.contains("type") ? text_of(model, "type") : "BPE";
    const auto at = std::find(std::begin(models) + 1, std::end(models), type);
    if (at == std::end(models))
      fail(runtime::format("the model is a {}; supported are BPE, WordLevel, WordPiece and Unigram", type), "type");
    state_->kind = static_cast<Tokenizer::Kind>(at - std::begin(models));
    if (has_steps()) return;
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
    const Json& given = only_step(member(document(), "pre_tokenizer", Json::value_t::object), "pretokenizers");
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
    const auto found = document().find("pre_tokenizer");
    const Json none, &given = found == document().end() ? none : only_step(*found, "pretokenizers");
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
    const Metaspace read = metaspace_of(given);
    state_->space = read.space;
    state_->prefix = read.prefix;
    if (!read.split) return;
    state_->cut = text::Cut::before;
    state_->separator = state_->space;
  }

  /// Returns the pattern of a Split, or of Digits before a ByteLevel.
  std::string pattern_of(const Json& step) const {
    if (state_->kind == Tokenizer::Kind::bpe && is(step, "Digits"))
      return flag(step, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)";
    if (!is(step, "Split")) fail("the pre-tokenizer must be a Split by a pattern", "pre_tokenizer");
    const bool inverted = flag(step, "invert", false);
    if (text_of(step, "behavior") != (inverted ? "Removed" : "Isolated"))
      fail("a Split must be Isolated, or Removed and inverted", "behavior");
    std::string pattern = text_of(member(step, "pattern", Json::value_t::object), "Regex");
    // Inverted, a Split removes unmatched text. A pattern that may be used alone matches every character, so nothing is
    // removed.
    const std::string_view alone = pattern;
    if (inverted && !text::cut_of({&alone, 1}))
      fail(runtime::format("the Split by {} must be Isolated and not inverted", text::beginning(pattern, 80)),
           "invert");
    return pattern;
  }

  text::Cut cut_of(const std::vector<std::string>& patterns) const {
    const auto cut = text::cut_of(std::vector<std::string_view>(patterns.begin(), patterns.end()));
    if (!cut || (*cut == text::Cut::characters && state_->kind == Tokenizer::Kind::bpe))
      fail(runtime::format("the pattern {} is not supported; those of GPT-2, Llama 3, Qwen 2, SmolLM, GPT-4o "
                           "(Phi-4-mini) and Mistral are",
                           text::beginning(patterns[0], 80)),
           "Regex");
    return *cut;
  }

  /// Checks that the decoder only joins the tokens; that is also done if the file has no decoder.
  void read_decoder() const {
    const auto found = document().find("decoder");
    if (state_->byte_fallback) return read_decoder_of_characters(found == document().end() ? Json() : *found);
    if (found == document().end() || found->is_null()) return;
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

  /// Returns the id of a token of the vocabulary. A list that has it twice names the last.
  std::optional<std::int64_t> known_id(const std::string& token) {
    if (!ids_) {
      ids_.emplace(state_->names.size());
      for (std::size_t id = 0; id < state_->names.size(); ++id)
        if (!state_->names[id].empty()) ids_->put(state_->names[id], static_cast<std::int64_t>(id));
    }
    return ids_->find(token);
  }

  void read_added() {
    const auto found = document().find("added_tokens");
    if (found == document().end() || found->is_null()) return;
    if (!found->is_array()) fail("added_tokens must be a list", "added_tokens");
    // Hugging Face's library ignores the ids of added tokens in the file and numbers the tokens itself: after the
    // vocabulary, in their order. So the ids must agree with that.
    const bool is_list = state_->kind == Tokenizer::Kind::unigram;
    const auto has_name = [](const std::string& name) { return !name.empty(); };
    std::int64_t next =
        is_list ? std::ssize(state_->names) : std::count_if(state_->names.begin(), state_->names.end(), has_name);
    std::size_t size = state_->names.size();  // with the added tokens
    std::unordered_set<std::string> contents;
    for (const Json& given : *found) {
      if (!given.is_object()) fail("an added token must be an object", "added_tokens");
      AddedToken token{.content = text_of(given, "content"), .special = flag(given, "special", false)};
      token.normalized = flag(given, "normalized", !token.special);
      if (token.content.empty()) fail("an added token is empty", "added_tokens");
      token.searched = token.normalized ? state_->normalized(token.content, true).text : token.content;
      if (!state_->byte_fallback && state_->encoder == nullptr && token.searched != token.content)
        fail(runtime::format("the added token \"{}\" is not in the form of the texts that it is searched in, NFC",
                             text::beginning(token.content, 60)),
             "added_tokens");
      token.single_word = flag(given, "single_word", false);
      token.lstrip = flag(given, "lstrip", false);
      token.rstrip = flag(given, "rstrip", false);
      const std::size_t id = id_of(given.contains("id") ? given["id"] : Json(), token.content, "added_tokens");
      size = std::max(size, id + 1);
      const std::string_view name = id < state_->names.size() ? state_->names[id] : std::string_view();
      token.in_vocabulary = name == token.content;
      if (token.searched.empty())
        fail(runtime::format("the normalizer leaves nothing of the added token \"{}\"",
                             text::beginning(token.content, 60)),
             "added_tokens");
      if (!contents.insert(token.content).second)
        fail(runtime::format("the added token \"{}\" is given twice", text::beginning(token.content, 60)),
             "added_tokens");
      if (!name.empty() && !token.in_vocabulary) fail(runtime::format("id {} is given twice", id), "added_tokens");
      token.id = static_cast<std::int64_t>(id);
      const std::optional<std::int64_t> known =
          token.in_vocabulary && !is_list ? std::optional(token.id) : known_id(token.content);
      const std::int64_t wanted = known.value_or(next);
      if (token.id != wanted)
        fail(runtime::format("the added token \"{}\" has the id {}; Hugging Face's library gives it {}",
                             text::beginning(token.content, 60), id, wanted),
             "added_tokens");
      if (!known) ++next;
      state_->added.push_back(std::move(token));
    }
    if (size > state_->names.size()) state_->names.resize(size);
    std::sort(state_->added.begin(), state_->added.end(),
              [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    std::set<std::pair<bool, std::string_view>> all_searched;
    for (const AddedToken& token : state_->added)
      if (!all_searched.emplace(token.normalized, token.searched).second)
        fail(runtime::format("the added token \"{}\" is searched as \"{}\", as another is",
                             text::beginning(token.content, 60), text::beginning(token.searched, 60)),
             "added_tokens");
  }

  /// Reads the settings that limit a text; encode() does not apply them.
  void read_limits() {
    const Json& truncation = at("truncation");
    state_->padding = at("padding").dump();
    state_->truncation = truncation.dump();
    if (truncation.is_null()) return;
    const Json most = truncation.is_object() ? truncation.value("max_length", Json()) : Json();
    if (!most.is_number_unsigned() || most.get<std::uint64_t>() > INT64_MAX)
      fail(runtime::format("max_length of the truncation is {}; it must be a whole number",
                           text::beginning(most.dump(), 40)),
           "truncation");
    state_->max_length = most.get<std::int64_t>();
    state_->cut_at_begin = truncation.value("direction", Json()) == "Left";
  }

  void read_merges(const Json& model) {
    if (lists() && !model.contains("merges")) {
      state_->bpe = text::Bpe(std::move(lists()->merges));
      return;
    }
    const auto id_of_name = [&](const std::string& name) {
      const auto found = known_id(name);
      if (!found)
        fail(runtime::format("a merge speaks of \"{}\", which is not in the vocabulary", text::beginning(name, 60)),
             "merges");
      return static_cast<std::int32_t>(*found);
    };
    std::vector<text::Merge> merges;
    for (const Json& given : member(model, "merges", Json::value_t::array)) {
      const auto [left, right] = pair_of_merge(given);
      merges.push_back({id_of_name(left), id_of_name(right), id_of_name(left + right)});
    }
    state_->bpe = text::Bpe(std::move(merges));
  }

  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::optional<text::TextIndex> ids_;  // of the vocabulary; none: not needed yet
};

/// Reads a document of that name.
std::shared_ptr<State> state_of_text(std::string name, std::string_view text) {
  return TokenizerReader(TokenizerFields(std::move(name), text)).read();
}

/// Reads a file; null if it is not there.
std::optional<std::string> text_of_file(const std::filesystem::path& path, bool must_exist) {
  std::error_code unknown;
  if (!must_exist && !std::filesystem::exists(path, unknown)) return std::nullopt;
  const io::FileSource source("Tokenizer::load", path.string());
  std::string text(source.size(), '\0');
  source.read(0, text.data(), text.size());
  return text;
}

/// Reads what tokenizer_config.json says of long texts. Python writes 1e30 for a model without a limit.
void read_config(State& state, const std::filesystem::path& path) {
  const auto text = text_of_file(path, false);
  if (!text) return;
  const Json config = parse_json_of_python(*text, "Tokenizer::load: " + path.string());
  if (!config.is_object()) return;
  const Json most = config.value("model_max_length", Json());
  if (most.is_number_unsigned() && most.get<std::uint64_t>() < INT32_MAX) state.max_length = most.get<std::int64_t>();
  if (const Json side = config.value("truncation_side", Json()); side.is_string()) state.cut_at_begin = side == "left";
}

}  // namespace

Tokenizer Tokenizer::parse(std::string_view json) { return Tokenizer(state_of_text("Tokenizer::parse", json)); }

Tokenizer Tokenizer::load(const std::string& path) {
  io::check_path("Tokenizer::load", path);
  if (gguf::is_gguf(path)) return Tokenizer(TokenizerReader(gguf::tokenizer_of(GgufFile::open(path))).read());
  std::error_code unknown;
  const std::filesystem::path given(path);
  const std::filesystem::path file = std::filesystem::is_directory(given, unknown) ? given / tokenizer_file : given;
  const std::string text = *text_of_file(file, true);
  const std::shared_ptr<State> state = state_of_text("Tokenizer::load: " + file.string(), text);
  if (file != given) read_config(*state, given / tokenizer_config_file);
  return Tokenizer(state);
}

}  // namespace attn
