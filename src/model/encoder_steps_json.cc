// src/model/encoder_steps_json.cc: reads normalizers, pre-tokenizers and decoders of encoders' tokenizers.
#include "model/encoder_steps_json.h"

#include "text/error_text.h"

#include "runtime/format.h"

#include <algorithm>
#include <array>
#include <functional>

namespace attn {
namespace {

using Json = TokenizerFields::Json;

class StepsReader {
 public:
  explicit StepsReader(const TokenizerFields& file) : file_(file) {}

  /// Calls read(step, type) for each step; Sequences are followed.
  void each(const Json& step, const char* field, const char* steps,
            const std::function<bool(const Json&, const std::string&)>& read, const char* known) const {
    if (!step.is_object()) file_.fail(runtime::format("a step of the {} must be an object", field), field);
    const std::string type = file_.text_of(step, "type");
    if (type == "Sequence") {
      for (const Json& inner : file_.member(step, steps, Json::value_t::array)) each(inner, field, steps, read, known);
    } else if (!read(step, type)) {
      file_.fail(runtime::format("the {} {} is not supported; for encoders these are: {}, Sequence", field,
                                 text::beginning(step.dump(), 80), known),
                 field);
    }
  }

  /// Reads what a step searches for: {"String": text} or {"Regex": expression}.
  text::Pattern pattern_of(const Json& step) const {
    const Json& pattern = file_.member(step, "pattern", Json::value_t::object);
    if (const std::string literal = TokenizerFields::sought(step); !literal.empty())
      return text::Pattern::literal(literal);
    const std::string expression = pattern.contains("Regex") ? file_.text_of(pattern, "Regex") : "";
    const auto known = text::Pattern::regex(expression);
    if (!known)
      file_.fail(
          runtime::format("the pattern {} is not supported; texts are, runs of spaces, of white space or of line "
                          "ends, and the patterns of GPT-2, Llama 3, Qwen 2 and SmolLM",
                          text::beginning(pattern.dump(), 80)),
          "pattern");
    return *known;
  }

  text::Behavior behavior_of(const Json& step, const char* otherwise) const {
    // in the order of text::Behavior
    constexpr const char* names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const std::string given =
        step.contains("behavior") || otherwise == nullptr ? file_.text_of(step, "behavior") : otherwise;
    const auto at = std::find(std::begin(names), std::end(names), given);
    if (at == std::end(names))
      file_.fail(
          runtime::format("behavior is \"{}\"; it must be Removed, Isolated, MergedWithPrevious, MergedWithNext or "
                          "Contiguous",
                          text::beginning(given, 40)),
          "behavior");
    return static_cast<text::Behavior>(at - std::begin(names));
  }

  bool add(const Json& step, const std::string& type, std::vector<text::NormalizerStep>& steps) const {
    using enum text::NormalizerStep::Kind;
    const auto push = [&](text::NormalizerStep::Kind kind) { steps.push_back({.kind = kind}); };
    constexpr std::pair<const char*, text::NormalizerStep::Kind> plain[] = {{"NFC", nfc},
                                                                            {"NFD", nfd},
                                                                            {"NFKC", nfkc},
                                                                            {"NFKD", nfkd},
                                                                            {"Lowercase", lowercase},
                                                                            {"Nmt", nmt},
                                                                            {"StripAccents", remove_marks}};
    for (const auto& [name, kind] : plain)
      if (type == name) return push(kind), true;
    if (type == "BertNormalizer") {
      const bool lower = file_.flag(step, "lowercase", true);
      if (file_.flag(step, "clean_text", true)) push(clean);
      if (file_.flag(step, "handle_chinese_chars", true)) push(space_han);
      if (file_.flag(step, "strip_accents", lower)) push(remove_accents);
      if (lower) push(lowercase);
    } else if (type == "Strip") {
      steps.push_back({.kind = strip,
                       .left = file_.flag(step, "strip_left", true),
                       .right = file_.flag(step, "strip_right", true)});
    } else if (type == "Prepend") {
      steps.push_back({.kind = prepend, .text = file_.text_of(step, "prepend")});
    } else if (type == "Replace") {
      steps.push_back({.kind = replace, .pattern = pattern_of(step), .text = file_.text_of(step, "content")});
    } else if (type == "Precompiled") {
      steps.push_back({.kind = charsmap, .map = charsmap_of(file_.text_of(step, "precompiled_charsmap"))});
    } else {
      return false;
    }
    return true;
  }

  std::shared_ptr<const text::Charsmap> charsmap_of(const std::string& given) const {
    const auto bytes = bytes_of_base64(given);
    if (!bytes) file_.fail("precompiled_charsmap is not Base64", "precompiled_charsmap");
    auto map = std::make_shared<const text::Charsmap>(*bytes);
    if (!map->damage().empty()) file_.fail("precompiled_charsmap is damaged: " + map->damage(), "precompiled_charsmap");
    return map;
  }

  bool add(const Json& step, const std::string& type, std::vector<text::PreTokenizerStep>& steps) const {
    using enum text::PreTokenizerStep::Kind;
    using enum text::Behavior;
    if (type == "BertPreTokenizer" || type == "WhitespaceSplit") steps.push_back({.kind = white_space});
    if (type == "BertPreTokenizer") {
      steps.push_back({.kind = punctuation, .behavior = isolated});
    } else if (type == "Whitespace") {
      steps.push_back({.kind = words});
    } else if (type == "Punctuation") {
      steps.push_back({.kind = punctuation, .behavior = behavior_of(step, "Isolated")});
    } else if (type == "Split") {
      steps.push_back({.kind = text::PreTokenizerStep::Kind::pattern,
                       .behavior = behavior_of(step, nullptr),
                       .pattern = pattern_of(step),
                       .invert = file_.flag(step, "invert", false)});
    } else if (type == "Metaspace") {
      const TokenizerFields::Metaspace read = file_.metaspace_of(step);
      steps.push_back({.kind = metaspace,
                       .behavior = merged_with_next,
                       .space = read.space,
                       .prefix = read.prefix,
                       .split = read.split});
    } else {
      return type == "WhitespaceSplit";
    }
    return true;
  }

  bool add(const Json& step, const std::string& type, std::vector<text::DecoderStep>& steps) const {
    using enum text::DecoderStep::Kind;
    if (type == "WordPiece") {
      steps.push_back({.kind = word_piece,
                       .text = step.contains("prefix") ? file_.text_of(step, "prefix") : "##",
                       .flag = file_.flag(step, "cleanup", true)});
    } else if (type == "Metaspace") {
      const TokenizerFields::Metaspace read = file_.metaspace_of(step);
      steps.push_back({.kind = metaspace, .text = read.space, .flag = read.prefix != text::Prefix::never});
    } else if (type == "Replace") {
      steps.push_back({.kind = replace, .text = file_.text_of(step, "content"), .pattern = pattern_of(step)});
    } else if (type == "ByteFallback") {
      steps.push_back({.kind = byte_fallback});
    } else if (type == "Fuse") {
      steps.push_back({.kind = fuse});
    } else {
      return false;
    }
    return true;
  }

  template <typename Step>
  std::vector<Step> steps_of(const char* field, const char* sequence, const char* known) const {
    std::vector<Step> steps;
    const auto add_step = [&](const Json& step, const std::string& type) { return add(step, type, steps); };
    if (const Json& given = file_.at(field); !given.is_null()) each(given, field, sequence, add_step, known);
    return steps;
  }

 private:
  const TokenizerFields& file_;
};

}  // namespace

std::optional<std::string> bytes_of_base64(std::string_view text) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<int, 256> values{};
  values.fill(-1);
  for (std::size_t i = 0; i < digits.size(); ++i) values[static_cast<unsigned char>(digits[i])] = static_cast<int>(i);
  if (text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  text.remove_suffix(padding);
  std::string bytes;
  unsigned held = 0, bits = 0;
  for (const char c : text) {
    const int value = values[static_cast<unsigned char>(c)];
    if (value < 0) return std::nullopt;
    held = (held << 6 | static_cast<unsigned>(value)) & 0xFFFF;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(held >> bits & 0xFF);
  }
  return (held & ((1U << bits) - 1)) == 0 ? std::optional(bytes) : std::nullopt;
}

std::vector<text::NormalizerStep> read_normalizer(const TokenizerFields& file) {
  return StepsReader(file).steps_of<text::NormalizerStep>(
      "normalizer", "normalizers",
      "BertNormalizer, NFC, NFD, NFKC, NFKD, Nmt, Lowercase, StripAccents, Strip, Replace, Prepend, Precompiled");
}

std::vector<text::PreTokenizerStep> read_pre_tokenizer(const TokenizerFields& file) {
  return StepsReader(file).steps_of<text::PreTokenizerStep>(
      "pre_tokenizer", "pretokenizers", "BertPreTokenizer, Whitespace, WhitespaceSplit, Punctuation, Split, Metaspace");
}

std::optional<std::vector<text::DecoderStep>> read_decoder(const TokenizerFields& file) {
  if (file.at("decoder").is_null()) return std::nullopt;
  return StepsReader(file).steps_of<text::DecoderStep>("decoder", "decoders",
                                                       "WordPiece, Metaspace, Replace, ByteFallback, Fuse");
}

}  // namespace attn
