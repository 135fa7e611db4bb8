// src/model/tokenizer_fields.cc: reads the fields of a tokenizer.json.
#include "model/tokenizer_fields.h"

#include <attn/error.h>

#include "io/source.h"
#include "model/json_fields.h"
#include "text/error_text.h"
#include "text/tokenizer/bpe.h"
#include "text/unicode.h"

#include "runtime/format.h"

#include <algorithm>
#include <iterator>

namespace attn {

TokenizerFields::TokenizerFields(std::string name, std::string_view text)
    : name_(std::move(name)), text_(text), document_(parse_json(text, name_)) {
  if (!document_.is_object()) fail("the document must be an object", "");
}

const TokenizerFields::Json& TokenizerFields::at(const char* key) const {
  static const Json none;
  const auto found = document_.find(key);
  return found == document_.end() ? none : *found;
}

void TokenizerFields::fail(const std::string& what, const std::string& near) const {
  if (!text_) throw ValueError(name_ + ": " + io::one_line(what));
  const std::size_t at = text_->find("\"" + near + "\"");
  const std::size_t offset = at == std::string_view::npos ? 0 : at;
  throw FormatError(runtime::format("{}: {} (byte {})", name_, io::one_line(what), offset), offset);
}

const TokenizerFields::Json& TokenizerFields::member(const Json& of, const char* key, Json::value_t type) const {
  const auto found = of.find(key);
  if (found == of.end() || found->type() != type)
    fail(runtime::format("{} is missing, or no {}", key, Json(type).type_name()), key);
  return *found;
}

std::string TokenizerFields::text_of(const Json& of, const char* key) const {
  return member(of, key, Json::value_t::string).get<std::string>();
}

bool TokenizerFields::flag(const Json& of, const char* key, bool otherwise) const {
  const auto found = of.find(key);
  if (found == of.end() || found->is_null()) return otherwise;
  if (!found->is_boolean()) fail(runtime::format("{} must be true or false", key), key);
  return found->get<bool>();
}

void TokenizerFields::refuse_unless_absent(const Json& of, const char* key) const {
  const auto found = of.find(key);
  if (found == of.end() || found->is_null() || *found == false || *found == 0 || *found == "") return;
  fail(runtime::format("{} is {}; this is not supported, it must be null", key, text::beginning(found->dump(), 60)),
       key);
}

std::size_t TokenizerFields::id_of(const Json& given, const std::string& token, const char* near) const {
  if (!given.is_number_unsigned() || given.get<std::uint64_t>() >= text::most_tokens)
    fail(runtime::format("the id of \"{}\" is {}; it must be a whole number below {}", text::beginning(token, 40),
                         text::beginning(given.dump(), 40), text::most_tokens),
         near);
  return given.get<std::size_t>();
}

std::vector<std::string> TokenizerFields::vocabulary_of(const Json& model) const {
  std::vector<std::string> names;
  if (lists_) {
    names = lists_->tokens;
    while (!names.empty() && names.back().empty()) names.pop_back();
    if (names.empty()) fail("the vocabulary is empty", "vocab");
    return names;
  }
  const Json& vocab = member(model, "vocab", Json::value_t::object);
  for (const auto& [token, given] : vocab.items()) {
    const std::size_t id = id_of(given, token, "vocab");
    if (token.empty()) fail("a token of the vocabulary is empty", "vocab");
    if (id >= names.size()) names.resize(id + 1);
    if (!names[id].empty()) fail(runtime::format("id {} is given twice", id), "vocab");
    names[id] = token;
  }
  if (vocab.empty()) fail("the vocabulary is empty", "vocab");
  return names;
}

TokenizerFields::Metaspace TokenizerFields::metaspace_of(const Json& given) const {
  Metaspace result{.space = text_of(given, "replacement"), .prefix = {}, .split = flag(given, "split", true)};
  if (result.space.empty() || text::code_point_at(result.space, 0).bytes != result.space.size())
    fail(runtime::format("the replacement of a Metaspace is \"{}\"; it must be one character",
                         text::beginning(result.space, 40)),
         "replacement");
  const std::string scheme = given.contains("prepend_scheme") ? text_of(given, "prepend_scheme") : "always";
  const auto at = std::find(std::begin(text::prefixes), std::end(text::prefixes), scheme);
  if (at == std::end(text::prefixes))
    fail(runtime::format("prepend_scheme is \"{}\"; it must be always, first or never", text::beginning(scheme, 40)),
         "prepend_scheme");
  result.prefix = static_cast<text::Prefix>(at - std::begin(text::prefixes));
  if (result.prefix != text::Prefix::never && !flag(given, "add_prefix_space", true))
    fail("add_prefix_space is false; prepend_scheme must be never then", "add_prefix_space");
  return result;
}

const TokenizerFields::Json& TokenizerFields::only_step(const Json& given, const char* steps) {
  const Json* step = &given;
  while (step->is_object() && step->value("type", Json()) == "Sequence") {
    const auto found = step->find(steps);
    if (found == step->end() || !found->is_array() || found->size() != 1) break;
    step = &found->front();
  }
  return *step;
}

bool TokenizerFields::is(const Json& step, const char* type) {
  return step.is_object() && step.value("type", Json()) == type;
}

std::string TokenizerFields::sought(const Json& step) {
  const Json pattern = step.value("pattern", Json());
  if (!pattern.is_object() || pattern.size() != 1) return "";
  const Json text = pattern.value("String", Json());
  return text.is_string() ? text.get<std::string>() : "";
}

std::pair<std::string, std::string> TokenizerFields::pair_of_merge(const Json& given) const {
  if (given.is_array() && given.size() == 2 && given[0].is_string() && given[1].is_string())
    return {given[0], given[1]};
  const std::string text = given.is_string() ? given.get<std::string>() : "";
  const std::size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
    fail(runtime::format("the merge {} is not two tokens", text::beginning(given.dump(), 60)), "merges");
  return {text.substr(0, space), text.substr(space + 1)};
}

std::string to_base64(std::string_view bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t held = 0;
    for (std::size_t i = 0; i < 3; ++i)
      held = held << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i) text += at + i > bytes.size() ? '=' : digits[held >> (18 - 6 * i) & 0x3F];
  }
  return text;
}

}  // namespace attn
