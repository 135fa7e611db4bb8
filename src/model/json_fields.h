// src/model/json_fields.h: reads fields of a JSON object by name and type; errors name the file and the field.
#pragma once
#include <attn/error.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

/// Parses the document. Throws a FormatError "name: not JSON (byte offset N)" for text that is not JSON, and for text
/// that is nested too deeply, because the functions that copy and print values are recursive.
nlohmann::json parse_json(std::string_view text, const std::string& name);

/// The same for a document that Python's json module wrote: NaN, Infinity and -Infinity, which it writes as they are,
/// become the texts "NaN", "Infinity" and "-Infinity", so that a field that must be a number is refused.
nlohmann::json parse_json_of_python(std::string_view text, const std::string& name);

/// Returns an error's message without the prefix of the JSON library: "[json.exception.out_of_range.403] key 'step' not
/// found" becomes "key 'step' not found".
std::string reason_of(const std::exception& error);

class JsonFields {
 public:
  /// Reads the object as parse_json_of_python; throws a FormatError with the offset for text that is not JSON.
  JsonFields(const std::string& text, std::string name);

  /// These return the field's value, or `otherwise` if the field is missing or null; without `otherwise` they then
  /// throw a ValueError.
  std::int64_t integer(const char* field, std::optional<std::int64_t> otherwise = std::nullopt) const;
  double number(const char* field, std::optional<double> otherwise = std::nullopt) const;
  bool boolean(const char* field, std::optional<bool> otherwise = std::nullopt) const;
  std::string text(const char* field, const std::optional<std::string>& otherwise = std::nullopt) const;
  /// Returns a nested object; nullopt when the field is missing or null.
  std::optional<JsonFields> object(const char* field) const;
  /// Returns the objects of a list; none when the field is missing or null.
  std::vector<JsonFields> objects(const char* field) const;
  /// Throws unless the field has this value. A null field counts as false, and an absent field is accepted.
  void must_be(const char* field, bool value) const;
  /// Returns the ids of a field that holds one id, a list of ids, or nothing.
  std::vector<std::int64_t> ids(const char* field) const;
  bool empty() const { return object_.empty(); }
  /// Returns whether the object has the field, even if its value is null.
  bool has(const char* field) const { return object_.contains(field); }
  /// Returns the field's value; null when it is missing.
  const nlohmann::json& at(const char* field) const;
  /// Throws a ValueError with the text "<name>: <field> is <its value>; <needed>", for example with
  /// needed = "it must be a number".
  [[noreturn]] void refuse(const char* field, const std::string& needed) const;

 private:
  JsonFields(nlohmann::json object, std::string name) : object_(std::move(object)), name_(std::move(name)) {}
  [[noreturn]] void missing(const char* field) const;
  nlohmann::json object_;
  std::string name_;
};

}  // namespace attn
