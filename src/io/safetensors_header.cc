// src/io/safetensors_header.cc: reads the header as a stream of JSON events, so that every error can name its byte
// offset.
#include "io/safetensors_header.h"

#include <attn/error.h>
#include "runtime/format.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_set>

namespace attn::io {
namespace {

constexpr std::uint64_t length_bytes = 8;
constexpr std::uint64_t longest_header = 100'000'000;  // the limit of Python's safetensors

constexpr std::array<std::pair<const char*, Dtype>, 7> held_dtypes{{{"F64", Dtype::f64},
                                                                    {"F32", Dtype::f32},
                                                                    {"F16", Dtype::f16},
                                                                    {"BF16", Dtype::bf16},
                                                                    {"I64", Dtype::i64},
                                                                    {"I32", Dtype::i32},
                                                                    {"BOOL", Dtype::boolean}}};
constexpr std::array other_dtypes = {"U8",      "I8",      "I16",     "U16",         "U32",
                                     "U64",     "F8_E4M3", "F8_E5M2", "F8_E8M0",     "F6_E2M3",
                                     "F6_E3M2", "F4",      "C64",     "F8_E4M3FNUZ", "F8_E5M2FNUZ"};

/// Iterates over the header's text and keeps in `*reached` how far it was read.
struct CountingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  const char* at = nullptr;
  const char** reached = nullptr;
  reference operator*() const { return *at; }
  CountingIterator& operator++() {
    *reached = ++at;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at == other.at; }
};

/// The entry of one tensor as the JSON gives it.
struct RawEntry {
  std::string name;
  std::uint64_t name_at = 0, dtype_at = 0, shape_at = 0, data_at = 0;
  std::optional<std::string> dtype;
  std::optional<std::vector<std::int64_t>> shape;
  std::array<std::int64_t, 2> data{};
  int data_numbers = -1;  // number of data_offsets read; -1: there are none yet
};

/// Receives the parser's events. Fails on anything but one object with the members name: { dtype, shape, data_offsets }
/// and "__metadata__": { text: text }.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(const Source& source, const std::string& text)
      : source_(source), text_(text), reached_(text.data()), event_end_(text.data()) {}

  void read() {
    const CountingIterator begin{text_.data(), &reached_}, end{text_.data() + text_.size(), &reached_};
    nlohmann::json::sax_parse(begin, end, this);
  }
  std::vector<RawEntry> entries;
  std::map<std::string, std::string> metadata;

  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("true or false"); }
  bool number_integer(number_integer_t) override { return refuse("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return refuse("a number that is not whole or too large");
  }
  bool binary(binary_t&) override { return refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    const std::uint64_t at = event();
    if (place_ != Place::shape && place_ != Place::data) return refuse_at("a number", at);
    if (value > static_cast<std::uint64_t>(INT64_MAX)) return refuse_at("a number above 2^63 - 1", at);
    RawEntry& entry = entries.back();
    if (place_ == Place::shape) {
      if (entry.shape->size() == max_rank) fail("the rank is above 8", at);
      entry.shape->push_back(static_cast<std::int64_t>(value));
    } else {
      if (entry.data_numbers == 2) fail("data_offsets has more than two numbers", at);
      entry.data[static_cast<std::size_t>(entry.data_numbers++)] = static_cast<std::int64_t>(value);
    }
    return true;
  }

  bool string(string_t& value) override {
    const std::uint64_t at = event();
    if (place_ == Place::metadata) {
      metadata[key_] = value;
    } else if (place_ == Place::entry && field_ == Field::dtype) {
      entries.back().dtype = value;
      entries.back().dtype_at = at;
    } else {
      return refuse_at("a string", at);
    }
    return true;
  }

  bool start_object(std::size_t) override {
    const std::uint64_t at = event();
    if (place_ == Place::outside) {
      place_ = Place::top;
    } else if (place_ == Place::top) {
      place_ = key_ == "__metadata__" ? Place::metadata : Place::entry;
      field_ = Field::none;
      if (place_ == Place::entry) {
        entries.emplace_back().name = key_;
        entries.back().name_at = key_at_;
      }
    } else {
      return refuse_at("an object", at);
    }
    return true;
  }

  bool key(string_t& value) override {
    const std::uint64_t at = event();
    if (place_ == Place::entry) return start_field(value, at);
    if (!(place_ == Place::top ? names_ : metadata_keys_).insert(value).second)
      fail(runtime::format("\"{}\" stands there twice", value), at);
    key_ = value;
    key_at_ = at;
    return true;
  }

  bool end_object() override {
    event();
    if (place_ == Place::entry) {
      const RawEntry& entry = entries.back();
      const char* missing = !entry.dtype             ? "dtype"
                            : !entry.shape           ? "shape"
                            : entry.data_numbers < 0 ? "data_offsets"
                                                     : nullptr;
      if (missing) fail(runtime::format("tensor \"{}\" has no {}", entry.name, missing), entry.name_at);
    }
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool start_array(std::size_t) override {
    const std::uint64_t at = event();
    if (place_ != Place::entry || (field_ != Field::shape && field_ != Field::data)) return refuse_at("an array", at);
    place_ = field_ == Field::shape ? Place::shape : Place::data;
    RawEntry& entry = entries.back();
    if (place_ == Place::shape) entry.shape.emplace();
    else entry.data_numbers = 0;
    (place_ == Place::shape ? entry.shape_at : entry.data_at) = at;
    return true;
  }

  bool end_array() override {
    event();
    if (place_ == Place::data && entries.back().data_numbers != 2)
      fail("data_offsets has fewer than two numbers", entries.back().data_at);
    place_ = Place::entry;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    fail("the header is not JSON", position > 0 ? length_bytes + position - 1 : length_bytes);
  }

 private:
  enum class Place { outside, top, metadata, entry, shape, data };
  enum class Field { none, dtype, shape, data };

  bool start_field(const std::string& name, std::uint64_t at) {
    field_ = name == "dtype"          ? Field::dtype
             : name == "shape"        ? Field::shape
             : name == "data_offsets" ? Field::data
                                      : Field::none;
    const RawEntry& entry = entries.back();
    if (field_ == Field::none)
      fail(runtime::format("tensor \"{}\" has a field \"{}\"; the fields are dtype, shape, data_offsets", entry.name,
                           name),
           at);
    const bool twice = field_ == Field::dtype   ? entry.dtype.has_value()
                       : field_ == Field::shape ? entry.shape.has_value()
                                                : entry.data_numbers >= 0;
    if (twice) fail(runtime::format("\"{}\" stands there twice", name), at);
    return true;
  }

  /// Returns the offset of the first byte of the current event: the first byte after the previous event that is not a
  /// separator.
  std::uint64_t event() {
    const char* begin = event_end_;
    while (begin < reached_ && std::string_view(" \t\r\n,:").find(*begin) != std::string_view::npos) ++begin;
    event_end_ = reached_;
    return length_bytes + static_cast<std::uint64_t>(begin - text_.data());
  }
  bool refuse(const char* what) { return refuse_at(what, event()); }
  bool refuse_at(const char* what, std::uint64_t at) { fail(runtime::format("{} has no place here", what), at); }
  [[noreturn]] void fail(const std::string& text, std::uint64_t at) { source_.fail(text, at); }

  const Source& source_;
  const std::string& text_;
  const char* reached_;
  const char* event_end_;
  Place place_ = Place::outside;
  Field field_ = Field::none;
  std::string key_;
  std::uint64_t key_at_ = 0;
  std::unordered_set<std::string> names_, metadata_keys_;
};

std::optional<Dtype> dtype_named(const std::string& name) {
  for (const auto& [held, dtype] : held_dtypes)
    if (name == held) return dtype;
  return std::nullopt;
}

/// Checks that the data of the entries, sorted by offset, fill the file without gaps from the first data byte to the
/// last.
void check_data(const Source& source, std::vector<RawEntry>& raw, SafetensorsHeader& header, std::uint64_t data_begin) {
  std::stable_sort(raw.begin(), raw.end(), [](const RawEntry& a, const RawEntry& b) { return a.data < b.data; });
  std::uint64_t next = 0;
  for (const RawEntry& entry : raw) {
    const std::optional<Dtype> dtype = dtype_named(*entry.dtype);
    const Dims sizes(*entry.shape);
    const auto begin = static_cast<std::uint64_t>(entry.data[0]), end = static_cast<std::uint64_t>(entry.data[1]);
    const std::uint64_t needed =
        dtype ? checked_bytes(source, sizes, *dtype, entry.shape_at) : std::max(begin, end) - begin;
    if (end < begin || end - begin != needed)
      source.fail(runtime::format("tensor \"{}\" {} {} needs {} bytes; its data_offsets are [{}, {}]", entry.name,
                                  *entry.dtype, to_string(sizes), needed, begin, end),
                  entry.data_at);
    if (begin != next)
      source.fail(runtime::format("the data of tensor \"{}\" begin at {}; {} at {}", entry.name, begin,
                                  begin < next ? "those before end" : "they must begin", next),
                  entry.data_at);
    if (end > source.size() - data_begin)
      source.fail(runtime::format("the data of tensor \"{}\" end at {}; the file has {}", entry.name, end,
                                  source.size() - data_begin),
                  entry.data_at);
    header.entries.push_back({entry.name, *entry.dtype, entry.dtype_at, dtype, sizes, data_begin + begin});
    next = end;
  }
  if (next != source.size() - data_begin) source.fail("bytes are left over after the last tensor", data_begin + next);
}

/// Throws an error that names what the file is, if it begins as one of another kind that people have under this name.
void refuse_other_formats(const Source& source) {
  struct Format {
    std::string_view beginning;
    const char* what;
  };
  static constexpr const char* json = "the file begins as JSON; a safetensors file is needed";
  static constexpr Format formats[] = {
      {"{", json},
      {"[", json},
      {"PK\x03\x04", "the file begins as a zip archive, as torch.save writes; a safetensors file is needed"},
      {"\x80", "the file begins as a pickle, as torch.save writes; a safetensors file is needed"},
      {"GGUF", "the file begins as GGUF; give its path as the model's, or save its tensors as safetensors"},
      {"version https://git-lfs", "the file is a pointer of Git LFS; fetch the file itself: git lfs pull"}};
  std::string text(static_cast<std::size_t>(std::min<std::uint64_t>(source.size(), 256)), '\0');
  source.read(0, text.data(), text.size());
  std::string_view begins = text;
  if (begins.starts_with("\xEF\xBB\xBF")) begins.remove_prefix(3);
  begins.remove_prefix(std::min(begins.find_first_not_of(" \t\r\n"), begins.size()));
  for (const Format& format : formats)
    if (begins.starts_with(format.beginning)) source.fail(format.what, 0);
}

}  // namespace

SafetensorsHeader read_safetensors_header(const Source& source) {
  std::uint64_t length = 0;
  source.read(0, &length, std::min<std::uint64_t>(source.size(), length_bytes));
  const bool too_long =
      source.size() < length_bytes || length > longest_header || length > source.size() - length_bytes;
  if (source.size() < length_bytes || length > longest_header) refuse_other_formats(source);
  source.read(0, &length, length_bytes);
  if (too_long)
    source.fail(runtime::format("the header has {} bytes; {}", length,
                                length > longest_header ? "at most 100000000 are allowed" : "the file ends before"),
                0);
  std::string text(static_cast<std::size_t>(length), '\0');
  source.read(length_bytes, text.data(), length);
  if (text.empty() || text.front() != '{') source.fail("the header must begin with {", length_bytes);
  HeaderReader reader(source, text);
  reader.read();
  SafetensorsHeader header;
  header.metadata = std::move(reader.metadata);
  check_data(source, reader.entries, header, length_bytes + length);
  return header;
}

Dtype held_dtype(const Source& source, const SafetensorsEntry& entry) {
  if (entry.dtype) return *entry.dtype;
  if (std::find(other_dtypes.begin(), other_dtypes.end(), entry.dtype_name) == other_dtypes.end())
    source.fail(runtime::format("tensor \"{}\" has the unknown dtype \"{}\"", entry.name, entry.dtype_name),
                entry.dtype_at);
  throw DtypeError(runtime::format("{}: tensor \"{}\" is {}; F64, F32, F16, BF16, I64, I32 and BOOL can be loaded",
                                   source.name(), one_line(entry.name), entry.dtype_name));
}

const char* safetensors_name(Dtype dtype) {
  return std::find_if(held_dtypes.begin(), held_dtypes.end(), [&](const auto& held) { return held.second == dtype; })
      ->first;
}

}  // namespace attn::io
