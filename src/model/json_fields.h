// src/model/json_fields.h: fields of a JSON object by name and kind; what is wrong is said with the file and the field.
#pragma once
#include <attn/error.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

/// The document; FormatError "name: not JSON (byte offset N)" for text that is none, or nested more deeply than any
/// such file: what copies and prints values calls itself for each level.
nlohmann::json parse_json(std::string_view text, const std::string& name);

/// What an error says, without the JSON library's name for its kind: "[json.exception.out_of_range.403] key 'step' not
/// found".
std::string reason_of(const std::exception& error);

class JsonFields {
 public:
  /// FormatError with the offset for text that is no JSON object.
  JsonFields(const std::string& text, std::string name);

  /// Of a field that is missing or null: the value given, else a ValueError.
  std::int64_t integer(const char* field, std::optional<std::int64_t> otherwise = std::nullopt) const;
  double number(const char* field, std::optional<double> otherwise = std::nullopt) const;
  bool boolean(const char* field, std::optional<bool> otherwise = std::nullopt) const;
  std::string text(const char* field, const std::optional<std::string>& otherwise = std::nullopt) const;
  /// An object within; empty when it is missing or null.
  std::optional<JsonFields> object(const char* field) const;
  /// One id, a list of ids, or none.
  std::vector<std::int64_t> ids(const char* field) const;
  bool empty() const { return object_.empty(); }
  /// Also of a field that is null.
  bool has(const char* field) const { return object_.contains(field); }
  /// The field as it is; null when it is missing.
  const nlohmann::json& at(const char* field) const;
  /// ValueError "name: field is value; needed".
  [[noreturn]] void refuse(const char* field, const std::string& needed) const;

 private:
  JsonFields(nlohmann::json object, std::string name) : object_(std::move(object)), name_(std::move(name)) {}
  [[noreturn]] void missing(const char* field) const;
  nlohmann::json object_;
  std::string name_;
};

}  // namespace attn
