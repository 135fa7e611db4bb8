// src/model/gguf/file.cc: opens GGUF files, of one part or several, and reads their values and tensors.
#include <attn/error.h>
#include <attn/gguf.h>
#include <attn/ops.h>

#include "model/gguf/state.h"
#include "model/gguf/types.h"

#include "runtime/floating_point.h"
#include "runtime/format.h"
#include "runtime/parallel.h"
#include "text/error_text.h"

#include <charconv>
#include <cstring>
#include <filesystem>

namespace attn {
namespace {

using gguf::Value;
using gguf::ValueType;
using State = GgufFile::State;

constexpr const char* function = "GgufFile";

/// Reads one part's header.
gguf::Header add_part(State& state, const std::string& name, std::unique_ptr<const gguf::Bytes> bytes) {
  gguf::Header header = gguf::read_header(io::MemorySource(name.c_str(), bytes->all()), bytes->all());
  for (GgufFile::Entry& entry : header.tensors) entry.part = state.parts.size();
  state.parts.push_back({name, std::move(bytes)});
  return header;
}

/// Adds the tensors of another part.
void add_tensors(State& state, std::vector<GgufFile::Entry> tensors) {
  for (GgufFile::Entry& entry : tensors) state.header.tensors.push_back(std::move(entry));
}

void index(State& state) {
  const auto& tensors = state.header.tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!state.places.emplace(tensors[i].name, i).second)
      throw FormatError(runtime::format("{}: tensor {} is in another part too", state.parts[tensors[i].part].name,
                                        io::one_line(text::beginning(tensors[i].name, 200))),
                        0);
}

template <typename T>
T value_at(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Calls visit with the number at `from`, in its type.
template <typename F>
auto visit(ValueType type, const std::byte* from, F&& visit) {
  switch (type) {
    case ValueType::i8: return visit(value_at<std::int8_t>(from));
    case ValueType::u16: return visit(value_at<std::uint16_t>(from));
    case ValueType::i16: return visit(value_at<std::int16_t>(from));
    case ValueType::u32: return visit(value_at<std::uint32_t>(from));
    case ValueType::i32: return visit(value_at<std::int32_t>(from));
    case ValueType::f32: return visit(value_at<float>(from));
    case ValueType::u64: return visit(value_at<std::uint64_t>(from));
    case ValueType::i64: return visit(value_at<std::int64_t>(from));
    case ValueType::f64: return visit(value_at<double>(from));
    default: return visit(value_at<std::uint8_t>(from));
  }
}

bool is_integer(ValueType type) { return type < ValueType::f32 || type == ValueType::u64 || type == ValueType::i64; }
bool is_number(ValueType type) { return is_integer(type) || type == ValueType::f32 || type == ValueType::f64; }

/// Returns the shortest decimal that reads back to the f32, as a double.
double shortest(float value) {
  char digits[64];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), value);
  double result = value;
  if (end.ec == std::errc()) std::from_chars(digits, end.ptr, result);
  return result;
}

/// The value of a key of the first part.
const Value* value_of(const State& state, std::string_view key) {
  const auto found = state.header.metadata.find(key);
  return found == state.header.metadata.end() ? nullptr : &found->second;
}

const std::byte* bytes_of(const State& state, const Value& value) {
  return state.parts[0].bytes->all().data() + value.begin;
}

std::vector<std::string_view> texts_of(const State& state, const Value& value) {
  std::vector<std::string_view> texts;
  texts.reserve(static_cast<std::size_t>(value.count));
  const std::byte* at = bytes_of(state, value);
  for (std::uint64_t i = 0; i < value.count; ++i) {
    const auto length = static_cast<std::size_t>(value_at<std::uint64_t>(at));
    texts.emplace_back(reinterpret_cast<const char*>(at + 8), length);
    at += 8 + length;
  }
  return texts;
}

/// Returns a value as errors and attn info show it.
std::string shown(const State& state, const Value& value) {
  if (value.array) return runtime::format("an array of {}", value.count);
  if (value.type == ValueType::text) return "\"" + std::string(text::beginning(texts_of(state, value)[0], 100)) + "\"";
  if (value.type == ValueType::boolean) return value_at<std::uint8_t>(bytes_of(state, value)) != 0 ? "true" : "false";
  return visit(value.type, bytes_of(state, value), [](auto number) { return runtime::format("{}", +number); });
}

}  // namespace

GgufFile GgufFile::parse(std::span<const std::byte> bytes) {
  auto state = std::make_shared<State>();
  state->header = add_part(*state, function, gguf::owned({bytes.begin(), bytes.end()}));
  index(*state);
  return GgufFile(std::move(state));
}

GgufFile GgufFile::open(const std::string& path) {
  auto state = std::make_shared<State>();
  const auto named = [](const std::string& file) { return runtime::format("{}: {}", function, file); };
  state->header = add_part(*state, named(path), gguf::map_file(function, path));
  const GgufFile file(state);
  const std::int64_t count = file.integer("split.count", 1);
  if (count > 1) {
    const std::string ending = runtime::format("-{:05}-of-{:05}.gguf", 1, count);
    if (count > 99999) file.refuse("split.count", "it must be at most 99999");
    if (!path.ends_with(ending) || file.integer("split.no") != 0)
      throw ValueError(runtime::format("{}: the file is part {} of {}; give the first, whose name ends with {}",
                                       file.name(), file.integer("split.no") + 1, count, ending));
    for (std::int64_t number = 1; number < count; ++number) {
      const std::string part =
          path.substr(0, path.size() - ending.size()) + runtime::format("-{:05}-of-{:05}.gguf", number + 1, count);
      State other;
      std::unique_ptr<const gguf::Bytes> bytes = gguf::map_file(function, part);
      other.header = gguf::read_header(io::MemorySource(named(part).c_str(), bytes->all()), bytes->all());
      std::vector<Entry> tensors = other.header.tensors;
      other.parts.push_back({named(part), std::move(bytes)});
      const GgufFile view(std::make_shared<const State>(std::move(other)));
      if (view.integer("split.no") != number || view.integer("split.count") != count)
        view.refuse("split.no", runtime::format("it must be {}, and split.count {}", number, count));
      for (Entry& entry : tensors) entry.part = state->parts.size();
      add_tensors(*state, std::move(tensors));
      state->parts.push_back(view.state_->parts[0]);
    }
    const auto all = static_cast<std::int64_t>(state->header.tensors.size());
    if (file.integer("split.tensors.count", all) != all)
      file.refuse("split.tensors.count", runtime::format("the parts have {}", all));
  }
  index(*state);
  return file;
}

const std::string& GgufFile::name() const { return state_->parts[0].name; }
std::uint32_t GgufFile::version() const { return state_->header.version; }
const std::vector<GgufFile::Entry>& GgufFile::tensors() const { return state_->header.tensors; }

const GgufFile::Entry* GgufFile::find(std::string_view name) const {
  const auto found = state_->places.find(name);
  return found == state_->places.end() ? nullptr : &state_->header.tensors[found->second];
}

std::span<const std::byte> GgufFile::data(const Entry& entry) const {
  return state_->parts[entry.part].bytes->all().subspan(entry.begin, entry.bytes);
}

void GgufFile::decode_rows(const Entry& entry, std::int64_t first, std::int64_t count, float* to) const {
  const std::int64_t row = entry.sizes.back(), rows = entry.sizes.product() / row;
  if (first < 0 || count < 0 || first > rows || count > rows - first)
    throw ValueError(runtime::format("{}: rows {} to {} of tensor {} are not there; it has {}", this->name(), first,
                                     first + count, io::one_line(entry.name), rows));
  const gguf::Type& type = gguf::types()[entry.type_index];
  const std::int64_t bytes = row / type.elements * type.bytes;
  const std::byte* const data = this->data(entry).data();
  constexpr std::int64_t at_once = 1 << 16;  // numbers; less is not worth a thread
  const std::int64_t group = std::max<std::int64_t>(1, at_once / row), groups = (count + group - 1) / group;
  runtime::parallel_for(groups, [&](std::int64_t i) {
    const std::int64_t begin = i * group, end = std::min(count, begin + group);
    type.decode(data + (first + begin) * bytes, (end - begin) * (row / type.elements), to + begin * row);
  });
}

Tensor GgufFile::tensor(std::string_view name) const {
  const Entry* const entry = find(name);
  if (entry == nullptr)
    throw ValueError(runtime::format("{}: there is no tensor {} among the {}", this->name(),
                                     io::one_line(text::beginning(name, 200)), tensors().size()));
  Tensor result = empty(entry->sizes);
  decode_rows(*entry, 0, entry->sizes.product() / entry->sizes.back(), result.data<float>());
  return result;
}

std::vector<std::string> GgufFile::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : state_->header.metadata) keys.emplace_back(key);
  return keys;
}

bool GgufFile::has(std::string_view key) const { return value_of(*state_, key) != nullptr; }

void GgufFile::refuse(std::string_view key, const std::string& needed) const {
  const Value* const value = value_of(*state_, key);
  throw ValueError(value == nullptr ? runtime::format("{}: {} is missing", name(), io::one_line(key))
                                    : runtime::format("{}: {} is {}; {}", name(), io::one_line(key),
                                                      io::one_line(shown(*state_, *value)), needed));
}

std::int64_t GgufFile::integer(std::string_view key, std::optional<std::int64_t> otherwise) const {
  const Value* const value = value_of(*state_, key);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !is_integer(value->type) || value->count == 0) refuse(key, "it must be an integer");
  const std::vector<std::int64_t> all = integers(key);
  for (const std::int64_t one : all)
    if (one != all[0]) refuse(key, "its elements must be equal");
  return all[0];
}

std::vector<std::int64_t> GgufFile::integers(std::string_view key) const {
  std::vector<std::int64_t> result;
  const Value* const value = value_of(*state_, key);
  if (value == nullptr) return result;
  if (!is_integer(value->type) && value->type != ValueType::boolean) refuse(key, "it must be integers");
  const std::byte* at = bytes_of(*state_, *value);
  for (std::uint64_t i = 0; i < value->count; ++i, at += gguf::bytes_of(value->type))
    result.push_back(visit(value->type, at, [&](auto number) -> std::int64_t {
      if (number > static_cast<decltype(number)>(0) && static_cast<std::uint64_t>(number) > INT64_MAX)
        refuse(key, "it must be below 2^63");
      return static_cast<std::int64_t>(number);
    }));
  return result;
}

double GgufFile::number(std::string_view key, std::optional<double> otherwise) const {
  const Value* const value = value_of(*state_, key);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !is_number(value->type) || value->array) refuse(key, "it must be a number");
  return visit(value->type, bytes_of(*state_, *value), [](auto number) {
    if constexpr (std::is_same_v<decltype(number), float>) return shortest(number);
    else return static_cast<double>(number);
  });
}

std::vector<float> GgufFile::numbers(std::string_view key) const {
  std::vector<float> result;
  const Value* const value = value_of(*state_, key);
  if (value == nullptr) return result;
  if (!is_number(value->type)) refuse(key, "it must be numbers");
  const std::byte* at = bytes_of(*state_, *value);
  for (std::uint64_t i = 0; i < value->count; ++i, at += gguf::bytes_of(value->type))
    result.push_back(visit(value->type, at, [](auto number) { return static_cast<float>(number); }));
  return result;
}

bool GgufFile::boolean(std::string_view key, std::optional<bool> otherwise) const {
  const Value* const value = value_of(*state_, key);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || value->type != ValueType::boolean || value->array) refuse(key, "it must be true or false");
  return value_at<std::uint8_t>(bytes_of(*state_, *value)) != 0;
}

std::string GgufFile::text(std::string_view key, const std::optional<std::string>& otherwise) const {
  const Value* const value = value_of(*state_, key);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || value->type != ValueType::text || value->array) refuse(key, "it must be a text");
  return std::string(texts_of(*state_, *value)[0]);
}

std::vector<std::string_view> GgufFile::texts(std::string_view key) const {
  const Value* const value = value_of(*state_, key);
  if (value == nullptr) return {};
  if (value->type != ValueType::text) refuse(key, "it must be texts");
  return texts_of(*state_, *value);
}

}  // namespace attn
