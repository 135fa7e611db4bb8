// src/cli/call_file.cc: reads a call from JSON or safetensors.
#include "cli/call.h"
#include "cli/output.h"
#include "cli/suggest.h"
#include "cli/verbs.h"

#include <attn/ops.h>
#include <attn/safetensors.h>

#include "model/json_fields.h"

#include "runtime/format.h"
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <set>
#include <span>

namespace attn::cli {
namespace {

using nlohmann::json;

// the deepest nesting, which bounds the stack; a tensor object of the highest rank needs 11
constexpr int kDeepest = 16;

const std::vector<std::string> kTensors{"q",
                                        "k",
                                        "v",
                                        "attend",
                                        "block",
                                        "key_padding",
                                        "blocks",
                                        "bias",
                                        "alibi_slopes",
                                        "sinks",
                                        "query_lengths",
                                        "key_lengths",
                                        "key_start",
                                        "query_start",
                                        "w_q",
                                        "w_k",
                                        "w"};
const std::vector<std::string> kSettings{"causal",      "mask",    "scale", "score",      "score_mod",  "softcap",
                                         "temperature", "weights", "dtype", "block_size", "normalizer", "weight_mod"};

bool is_one_of(const std::string& name, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

[[noreturn]] void unknown_name(const std::string& path, const std::string& name) {
  std::vector<std::string> known = kTensors;
  known.insert(known.end(), kSettings.begin(), kSettings.end());
  const std::string meant = nearest(name, known);
  throw ValueError(runtime::format("run: {}: there is no \"{}\"; {}", path, name,
                                   meant.empty() ? runtime::format("there are {}", runtime::join(known, ", "))
                                                 : runtime::format("did you mean {}?", meant)));
}

/// Returns whether a metadata key belongs to another program: "format" (PyTorch), or a key with a namespace such as
/// "modelspec.title".
bool is_foreign(const std::string& name) { return name == "format" || name.find_first_of(".:/") != std::string::npos; }

double number_of(const std::string& name, const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf" || value == "-inf")
    return value == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
  throw ValueError(runtime::format("run: {} holds {}, which is not a number", name,
                                   value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 40)));
}

/// Appends the shape of nested lists to `shape`. It looks at the first elements only; flatten() checks that every
/// element fits.
void shape_of(const std::string& name, const json& values, Dims& shape) {
  if (!values.is_array()) return;
  if (shape.size() == max_rank)
    throw ShapeError(runtime::format("run: {} is nested more than {} deep", name, max_rank));
  shape.push_back(static_cast<std::int64_t>(values.size()));
  if (!values.empty()) shape_of(name, values[0], shape);
}

void flatten(const std::string& name, const json& values, const Dims& shape, int dim, std::vector<double>& numbers) {
  if (dim == shape.size()) {
    if (values.is_array()) throw ShapeError(runtime::format("run: {} has lists of different depth", name));
    numbers.push_back(number_of(name, values));
    return;
  }
  if (!values.is_array() || static_cast<std::int64_t>(values.size()) != shape[dim])
    throw ShapeError(
        runtime::format("run: {} has lists of different length; all must fill {}", name, to_string(shape)));
  for (const json& value : values) flatten(name, value, shape, dim + 1, numbers);
}

bool every(const json& values, bool (*is)(const json&)) {
  return values.is_array()
             ? std::all_of(values.begin(), values.end(), [&](const json& value) { return every(value, is); })
             : is(values);
}

/// Returns the dtype for the values of a table: bool, i64 or f32.
Dtype dtype_of_values(const json& values) {
  if (every(values, [](const json& value) { return value.is_boolean(); })) return Dtype::boolean;
  return every(values, [](const json& value) { return value.is_number_integer(); }) ? Dtype::i64 : Dtype::f32;
}

Dtype default_dtype(const std::string& name, const json& values) {
  if (!is_one_of(name, kTensors)) return dtype_of_values(values);
  if (name == "attend" || name == "block" || name == "key_padding") return Dtype::boolean;
  return name == "blocks" || name.ends_with("_lengths") || name.ends_with("_start") ? Dtype::i64 : Dtype::f32;
}

/// Checks that lengths and positions are whole numbers and masks are true or false, because rounding them would change
/// the call without notice.
void check_numbers(const std::string& name, const std::vector<double>& numbers, Dtype dtype) {
  if (is_floating(dtype)) return;
  constexpr double most = 0x1p53;  // above it a double cannot hold every whole number
  for (const double x : numbers) {
    if (dtype == Dtype::boolean ? x != 0 && x != 1 : !(std::trunc(x) == x && std::abs(x) <= most))
      throw ValueError(
          runtime::format("run: {} holds {}; {}", name, x,
                          dtype == Dtype::boolean ? "true or false is needed" : "whole numbers are needed"));
  }
}

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

/// Refuses unknown fields of a tensor object, and a missing "values".
void check_fields(const std::string& name, const json& described) {
  for (const auto& [field, value] : described.items())
    if (field != "dtype" && field != "shape" && field != "values")
      throw ValueError(runtime::format("run: {} has a field \"{}\"; the fields are dtype, shape, values", name, field));
  if (!described.contains("values")) throw ValueError(runtime::format("run: {} has no \"values\"", name));
}

Dtype described_dtype(const std::string& name, const json& value) {
  try {
    return parse_dtype("run: " + name, text_of(value));
  } catch (const UsageError& error) { throw DtypeError(error.text); }
}

Dims described_shape(const std::string& name, const json& value) {
  const auto is_size = [](const json& size) {
    return size.is_number() && std::trunc(size.get<double>()) == size.get<double>() && size.get<double>() >= 0 &&
           size.get<double>() <= 0x1p53;
  };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_size) || value.size() > max_rank)
    throw ShapeError(
        runtime::format("run: {} has the shape {}; it must be a list of at most {} whole numbers, 0 or more", name,
                        value.dump(-1, ' ', true).substr(0, 40), max_rank));
  return Dims(value.get<std::vector<std::int64_t>>());
}

Tensor tensor_of(const std::string& name, const json& value) {
  const bool described = value.is_object();
  if (described) check_fields(name, value);
  const json& values = described ? value["values"] : value;
  const Dtype dtype =
      described && value.contains("dtype") ? described_dtype(name, value["dtype"]) : default_dtype(name, values);
  Dims shape;
  shape_of(name, values, shape);
  std::vector<double> numbers;
  flatten(name, values, shape, 0, numbers);
  check_numbers(name, numbers, dtype);
  if (described && value.contains("shape")) {
    const Dims given = described_shape(name, value["shape"]);
    if (given.product() != static_cast<std::int64_t>(numbers.size()))
      throw ShapeError(runtime::format("run: {} has {} values; its shape {} needs another number", name, numbers.size(),
                                       to_string(given)));
    shape = given;
  }
  return tensor<double>(numbers, shape).to(dtype);
}

/// Throws an error with the line and column where the parser stopped. It names NaN and Infinity, which Python's json
/// writes but JSON does not have.
[[noreturn]] void not_json(const std::string& path, const std::string& content, std::size_t byte) {
  const std::string_view before = std::string_view(content).substr(0, byte == 0 ? 0 : byte - 1);
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  const std::size_t sign = before.ends_with('-') ? 1 : 0;
  const std::string_view here = std::string_view(content).substr(before.size() - sign);
  const bool number = here.starts_with("NaN") || here.starts_with("Infinity") || here.starts_with("-Infinity");
  throw FormatError(
      runtime::format("run: {} is not JSON at line {}, column {}{}", path,
                      std::count(before.begin(), before.end(), '\n') + 1, before.size() - line_start + 1 - sign,
                      number ? "; write \"nan\", \"inf\", \"-inf\", with the quotes" : ""),
      byte);
}

Call from_json(const std::string& path, const std::string& content) {
  Call call;
  try {
    std::vector<std::set<std::string>> names;  // one set of names for each open object
    const json document = json::parse(content, [&](int depth, json::parse_event_t event, const json& value) {
      if (depth > kDeepest) throw ValueError(runtime::format("run: {} is nested more than {} deep", path, kDeepest));
      if (event == json::parse_event_t::object_start) names.emplace_back();
      if (event == json::parse_event_t::object_end) names.pop_back();
      if (event == json::parse_event_t::key && !names.back().insert(value.get<std::string>()).second)
        throw ValueError(runtime::format("run: {} has {} twice; each name may come once", path,
                                         value.dump(-1, ' ', /*ensure_ascii=*/true)));
      return true;
    });
    if (!document.is_object()) throw ValueError(runtime::format("run: {} must hold an object with q, k and v", path));
    for (const auto& [name, value] : document.items()) {
      if (is_one_of(name, kTensors)) call.tensors[name] = tensor_of(name, value);
      else if (is_one_of(name, kSettings)) call.settings[name] = text_of(value);
      else if (value.is_structured() || value.is_number()) call.tables[name] = tensor_of(name, value);
      else unknown_name(path, name);
    }
  } catch (const json::parse_error& error) {
    not_json(path, content, error.byte);
  } catch (const json::exception& error) { throw ValueError(runtime::format("run: {}: {}", path, reason_of(error))); }
  return call;
}

Call from_safetensors(const std::string& path, const std::string& content) {
  if (content.starts_with("\x93NUMPY") || content.starts_with("PK\x03\x04"))
    throw FormatError(
        runtime::format("run: {} is a file of NumPy's; JSON or safetensors is needed, with q, k and v", path), 0);
  if (content.size() < 9 || content[8] != '{')
    throw FormatError(runtime::format("run: {} is neither JSON nor safetensors", path), 0);
  const Safetensors file = [&] {
    try {
      return parse_safetensors(std::as_bytes(std::span<const char>(content)));
    } catch (const FormatError& error) {
      throw FormatError(runtime::format("{}: {}", path, error.what()), error.offset());
    } catch (const DtypeError& error) { throw DtypeError(runtime::format("{}: {}", path, error.what())); }
  }();
  Call call;
  for (const auto& [name, tensor] : file.tensors) {
    (is_one_of(name, kTensors) ? call.tensors : call.tables)[name] = tensor;
  }
  for (const auto& [name, value] : file.metadata)
    if (is_one_of(name, kSettings)) call.settings[name] = value;
    else if (!is_foreign(name)) unknown_name(path, name);
  return call;
}

}  // namespace

Call load_call(const std::string& path) {
  std::string content = read_file(path);
  if (content.empty()) throw FormatError(runtime::format("run: {} is empty", path), 0);
  // A safetensors file begins with eight bytes of length, the last of them 0; the JSON header then begins with a brace.
  const bool has_length = content.size() >= 9 && content[8] == '{' && content[7] == 0;
  if (!has_length) content = without_mark(std::move(content));
  const std::size_t first = content.find_first_not_of(" \t\r\n");
  const bool looks_json = !has_length && first != std::string::npos && (content[first] == '{' || content[first] == '[');
  Call call = looks_json ? from_json(path, content) : from_safetensors(path, content);
  call.path = path;
  return call;
}

void check_tables(const Call& call) {
  std::string text;
  for (const char* expression : {"score_mod", "weight_mod"})
    if (const auto given = call.settings.find(expression); given != call.settings.end()) text += given->second + " ";
  const auto part_of_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (const auto& [name, table] : call.tables) {
    bool named = false;
    for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
      const std::size_t end = at + name.size();
      named |= (at == 0 || !part_of_name(text[at - 1])) && (end == text.size() || !part_of_name(text[end]));
    }
    if (!named) unknown_name(call.path, name);
  }
}

}  // namespace attn::cli
