// src/model/json_fields.cc: reads fields of a JSON object and reports those that are wrong.
#include "model/json_fields.h"

#include "io/source.h"

#include <algorithm>

namespace attn {
namespace {

/// Formats a value for an error message: one line, shortened.
std::string shown(const nlohmann::json& value) {
  std::string text = io::one_line(value.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace));
  return text.size() <= 60 ? text : text.substr(0, 60) + "...";
}

/// Returns the offset of the bracket that nests too deeply.
std::optional<std::size_t> too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') ++i;
    else if (c == '"') in_string = !in_string;
    else if (!in_string && (c == '[' || c == '{') && ++depth > 100) return i;
    else if (!in_string && (c == ']' || c == '}')) --depth;
  }
  return std::nullopt;
}

/// Puts the numbers that Python's json writes and JSON does not have, NaN, Infinity and -Infinity, in quotes. `added`
/// are the offsets of the quotes in the result.
std::string with_quoted_numbers(std::string_view text, std::vector<std::size_t>& added) {
  std::string result;
  const auto quote = [&] {
    added.push_back(result.size());
    result += '"';
  };
  bool in_string = false;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t length = 0;
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"})
      if (!in_string && text.substr(i).starts_with(word)) length = word.size();
    if (length > 0) quote();
    else length = in_string && text[i] == '\\' && i + 1 < text.size() ? 2 : 1;
    if (length == 1 && text[i] == '"') in_string = !in_string;
    result += text.substr(i, length);
    i += length;
    if (length > 2) quote();
  }
  return result;
}

/// Parses a text to which the bytes at `added` were added; the offsets of errors do not count them.
nlohmann::json parsed(std::string_view text, const std::string& name, const std::vector<std::size_t>& added) {
  const auto fail = [&](const char* what, std::size_t at) {
    at -= static_cast<std::size_t>(std::lower_bound(added.begin(), added.end(), at) - added.begin());
    throw FormatError(name + ": " + what + " (byte offset " + std::to_string(at) + ")", at);
  };
  if (const auto at = too_deep(text)) fail("nested too deeply", *at);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    fail("not JSON", std::min(error.byte, text.size()));
  } catch (const nlohmann::json::out_of_range&) {  // a number is too large for a double; the parser gives no offset
    fail("a number is too large", 0);
  }
  return {};
}

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& name) { return parsed(text, name, {}); }

nlohmann::json parse_json_of_python(std::string_view text, const std::string& name) {
  std::vector<std::size_t> added;
  const std::string quoted = with_quoted_numbers(text, added);
  return parsed(quoted, name, added);
}

std::string reason_of(const std::exception& error) {
  const std::string text = error.what();
  return text.starts_with("[json.exception.") ? text.substr(text.find("] ") + 2) : text;
}

JsonFields::JsonFields(const std::string& text, std::string name) : name_(std::move(name)) {
  object_ = parse_json_of_python(text, name_);
  if (!object_.is_object()) throw FormatError(name_ + ": it must be a JSON object (byte offset 0)", 0);
}

void JsonFields::missing(const char* field) const { throw ValueError(name_ + ": " + field + " is missing"); }

void JsonFields::refuse(const char* field, const std::string& needed) const {
  throw ValueError(name_ + ": " + field + " is " + shown(at(field)) + "; " + needed);
}

const nlohmann::json& JsonFields::at(const char* field) const {
  static const nlohmann::json none;
  const auto found = object_.find(field);
  return found == object_.end() ? none : *found;
}

std::int64_t JsonFields::integer(const char* field, std::optional<std::int64_t> otherwise) const {
  const nlohmann::json& value = at(field);
  if (value.is_null()) return otherwise ? *otherwise : (missing(field), 0);
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX))
    refuse(field, "it must be a whole number");
  return value.get<std::int64_t>();
}

double JsonFields::number(const char* field, std::optional<double> otherwise) const {
  const nlohmann::json& value = at(field);
  if (value.is_null()) return otherwise ? *otherwise : (missing(field), 0);
  if (!value.is_number()) refuse(field, "it must be a number");
  return value.get<double>();
}

bool JsonFields::boolean(const char* field, std::optional<bool> otherwise) const {
  const nlohmann::json& value = at(field);
  if (value.is_null()) return otherwise ? *otherwise : (missing(field), false);
  if (!value.is_boolean()) refuse(field, "it must be true or false");
  return value.get<bool>();
}

std::string JsonFields::text(const char* field, const std::optional<std::string>& otherwise) const {
  const nlohmann::json& value = at(field);
  if (value.is_null()) return otherwise ? *otherwise : (missing(field), std::string());
  if (!value.is_string()) refuse(field, "it must be a text");
  return value.get<std::string>();
}

std::optional<JsonFields> JsonFields::object(const char* field) const {
  const nlohmann::json& value = at(field);
  if (value.is_null()) return std::nullopt;
  if (!value.is_object()) refuse(field, "it must be an object");
  return JsonFields(value, name_ + ": " + field);
}

std::vector<JsonFields> JsonFields::objects(const char* field) const {
  const nlohmann::json& list = at(field);
  std::vector<JsonFields> result;
  if (list.is_null()) return result;
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), [](const auto& x) { return x.is_object(); }))
    refuse(field, "it must be a list of objects");
  for (const nlohmann::json& each : list)
    result.push_back(JsonFields(each, name_ + ": " + field + "[" + std::to_string(result.size()) + "]"));
  return result;
}

void JsonFields::must_be(const char* field, bool value) const {
  if (boolean(field, has(field) ? false : value) != value)
    refuse(field, "attn's models have it " + std::string(value ? "true" : "false"));
}

std::vector<std::int64_t> JsonFields::ids(const char* field) const {
  const nlohmann::json& value = at(field);
  if (value.is_null()) return {};
  std::vector<std::int64_t> ids;
  for (const nlohmann::json& id : value.is_array() ? value : nlohmann::json::array({value})) {
    if (!id.is_number_integer() || (id.is_number_unsigned() && id.get<std::uint64_t>() > INT64_MAX))
      refuse(field, "it must be an id or a list of ids");
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

}  // namespace attn
