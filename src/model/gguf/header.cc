// src/model/gguf/header.cc: reads the header of a GGUF file; nothing in it is trusted before it is checked.
#include <attn/error.h>

#include "model/gguf/state.h"
#include "model/gguf/types.h"

#include "runtime/format.h"
#include "text/error_text.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_set>

namespace attn::gguf {
namespace {

/// Reads values one after another.
class Cursor {
 public:
  Cursor(const io::Source& source, std::span<const std::byte> bytes) : source_(source), bytes_(bytes) {}

  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return bytes_.size() - at_; }
  /// Fails unless `bytes` bytes are left for what is read here.
  void need(std::uint64_t bytes, const std::string& what) const {
    if (bytes > left())
      source_.fail(runtime::format("the file ends within {}: it takes {} bytes, {} are left", what, bytes, left()),
                   at_);
  }
  void skip(std::uint64_t bytes, const std::string& what) {
    need(bytes, what);
    at_ += bytes;
  }
  template <typename T>
  T number(const std::string& what) {
    need(sizeof(T), what);
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string_view text(const std::string& what) {
    const std::uint64_t begin = at_, length = number<std::uint64_t>("the length of " + what);
    if (length > left()) source_.fail(runtime::format("{} has {} bytes; {} are left", what, length, left()), begin);
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + at_), static_cast<std::size_t>(length));
    at_ += length;
    return text;
  }
  /// Reads a count of things of at least `least` bytes each, which must fit into the rest of the file.
  std::uint64_t count(const std::string& what, std::uint64_t least) const {
    std::uint64_t count = 0;
    std::memcpy(&count, bytes_.data() + at_, sizeof count);
    const std::uint64_t behind = left() - sizeof count;
    if (count > behind / least)
      source_.fail(runtime::format("the file claims {} {}; the {} bytes after it hold at most {}", count, what, behind,
                                   behind / least),
                   at_);
    return count;
  }

 private:
  const io::Source& source_;
  std::span<const std::byte> bytes_;
  std::uint64_t at_ = 0;
};

class Reader {
 public:
  Reader(const io::Source& source, std::span<const std::byte> bytes)
      : source_(source), bytes_(bytes), cursor_(source, bytes) {}

  Header read() {
    if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0)
      source_.fail("the file does not begin with GGUF; a GGUF file or a model's folder is needed", 0);
    cursor_.skip(4, "the magic");
    header_.version = cursor_.number<std::uint32_t>("the version");
    if (header_.version != 0 && (header_.version & 0xFFFFu) == 0)
      source_.fail("the file is big-endian; little-endian files are read", 4);
    if (header_.version != 2 && header_.version != 3)
      source_.fail(runtime::format("the file has version {}; 2 and 3 are read", header_.version), 4);
    cursor_.need(16, "the header");
    const std::uint64_t tensors = cursor_.count("tensors", 8 + 1 + 4 + 8 + 4 + 8);
    cursor_.skip(8, "the header");
    const std::uint64_t keys = cursor_.count("keys", 8 + 1 + 4 + 1);
    cursor_.skip(8, "the header");
    for (std::uint64_t i = 0; i < keys; ++i) read_key(i);
    const std::uint64_t alignment = read_alignment();
    for (std::uint64_t i = 0; i < tensors; ++i) read_tensor(i);
    check_data((cursor_.at() + alignment - 1) / alignment * alignment, alignment);
    return std::move(header_);
  }

 private:
  [[noreturn]] void fail(const std::string& text, std::uint64_t at) const { source_.fail(text, at); }

  void read_key(std::uint64_t number) {
    const std::uint64_t begin = cursor_.at();
    const std::string_view key = cursor_.text(runtime::format("key {}", number));
    if (key.empty()) fail(runtime::format("key {} is empty", number), begin);
    const std::string what = runtime::format("the value of {}", text::beginning(key, 200));
    const Value value = read_value(what);
    if (!header_.metadata.emplace(key, value).second)
      fail(runtime::format("the key {} stands there twice", text::beginning(key, 200)), begin);
  }

  ValueType read_type(const std::string& what) {
    const std::uint64_t at = cursor_.at();
    const auto type = cursor_.number<std::uint32_t>("the type of " + what);
    if (type > static_cast<std::uint32_t>(ValueType::f64))
      fail(runtime::format("{} has the type {}; there are 0 to 12", what, type), at);
    return static_cast<ValueType>(type);
  }

  Value read_value(const std::string& what) {
    Value value{.type = read_type(what)};
    if (value.type == ValueType::array) {
      value.array = true;
      const std::uint64_t at = cursor_.at();
      value.type = read_type(what);
      if (value.type == ValueType::array) fail(what + " is an array of arrays; attn does not read those", at);
      cursor_.need(8, what);
      const std::uint64_t each = value.type == ValueType::text ? 8 : bytes_of(value.type);
      value.count = cursor_.count("elements in " + what, each);
      cursor_.skip(8, what);
    }
    value.begin = cursor_.at();
    if (value.type == ValueType::text)
      for (std::uint64_t i = 0; i < value.count; ++i) cursor_.text(what);
    else cursor_.skip(value.count * bytes_of(value.type), what);
    if (value.type == ValueType::boolean)
      for (std::uint64_t i = 0; i < value.count; ++i)
        if (const auto byte = std::to_integer<unsigned>(bytes_[value.begin + i]); byte > 1)
          fail(runtime::format("{} has a bool that is {}; it must be 0 or 1", what, byte), value.begin + i);
    return value;
  }

  std::uint64_t read_alignment() const {
    const auto found = header_.metadata.find("general.alignment");
    if (found == header_.metadata.end()) return 32;
    const Value& value = found->second;
    std::uint32_t alignment = 0;
    if (value.type == ValueType::u32 && !value.array)
      std::memcpy(&alignment, bytes_.data() + value.begin, sizeof alignment);
    if (alignment < 8 || (alignment & (alignment - 1)) != 0)
      fail("general.alignment must be a u32 that is a power of two, at least 8", value.begin);
    return alignment;
  }

  void read_tensor(std::uint64_t number) {
    const std::uint64_t begin = cursor_.at();
    GgufFile::Entry entry;
    entry.name = cursor_.text(runtime::format("the name of tensor {}", number));
    if (entry.name.empty()) fail(runtime::format("the name of tensor {} is empty", number), begin);
    const std::string what = "tensor " + std::string(text::beginning(entry.name, 200));
    const std::uint64_t rank_at = cursor_.at();
    const auto rank = cursor_.number<std::uint32_t>(what);
    if (rank < 1 || rank > 4) fail(runtime::format("{} has the rank {}; it must be 1 to 4", what, rank), rank_at);
    std::int64_t sizes[4], elements = 1;
    for (std::uint32_t i = 0; i < rank; ++i) {
      const std::uint64_t at = cursor_.at(), size = cursor_.number<std::uint64_t>(what);
      if (size < 1 || size > static_cast<std::uint64_t>(INT64_MAX))
        fail(runtime::format("{} has the size {}; it must be 1 to 2^63 - 1", what, size), at);
      sizes[i] = static_cast<std::int64_t>(size);
      if (__builtin_mul_overflow(elements, sizes[i], &elements))
        fail(what + " has more elements than can be counted", at);
    }
    for (std::uint32_t i = rank; i > 0; --i) entry.sizes.push_back(sizes[i - 1]);
    read_type_of(entry, what, sizes[0], elements);
    entry.begin = cursor_.number<std::uint64_t>(what);
    if (!names_.insert(entry.name).second) fail(what + " stands there twice", begin);
    offset_at_.push_back(cursor_.at() - 8);
    header_.tensors.push_back(std::move(entry));
  }

  void read_type_of(GgufFile::Entry& entry, const std::string& what, std::int64_t row, std::int64_t elements) {
    const std::uint64_t at = cursor_.at();
    const auto id = cursor_.number<std::uint32_t>(what);
    const auto all = types();
    const auto found = std::find_if(all.begin(), all.end(), [id](const Type& type) { return type.id == id; });
    if (found == all.end()) {
      const std::string name = name_of_type(id);
      if (name.empty()) fail(runtime::format("{} has the type {}, which GGUF does not have", what, id), at);
      throw DtypeError(
          runtime::format("{}: {} is {}; {} can be read", source_.name(), io::one_line(what), name, type_names()));
    }
    if (row % found->elements != 0)
      fail(runtime::format("{} is {} with rows of {}; they must be a multiple of {}", what, found->name, row,
                           found->elements),
           at);
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(elements / found->elements, found->bytes, &bytes))
      fail(what + " has more bytes than can be counted", at);
    entry.type = found->name;
    entry.type_index = static_cast<std::size_t>(found - all.begin());
    entry.bytes = static_cast<std::uint64_t>(bytes);
  }

  /// Checks that the tensors' data are aligned, within the file, and do not overlap.
  void check_data(std::uint64_t data_begin, std::uint64_t alignment) {
    std::vector<GgufFile::Entry>& tensors = header_.tensors;
    const std::uint64_t there = bytes_.size() - std::min<std::uint64_t>(data_begin, bytes_.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const GgufFile::Entry& entry = tensors[i];
      if (entry.begin % alignment != 0)
        fail(runtime::format("the data of tensor {} begin at {}, which is no multiple of {}",
                             text::beginning(entry.name, 200), entry.begin, alignment),
             offset_at_[i]);
      if (entry.begin > there || entry.bytes > there - entry.begin)
        fail(runtime::format("the data of tensor {} take {} bytes from {}; the file has {}",
                             text::beginning(entry.name, 200), entry.bytes, entry.begin, there),
             offset_at_[i]);
    }
    std::vector<std::size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return tensors[a].begin < tensors[b].begin; });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const GgufFile::Entry &before = tensors[order[i - 1]], &entry = tensors[order[i]];
      if (entry.begin < before.begin + before.bytes)
        fail(runtime::format("the data of tensor {} begin at {}; those of {} end at {}",
                             text::beginning(entry.name, 200), entry.begin, text::beginning(before.name, 200),
                             before.begin + before.bytes),
             offset_at_[order[i]]);
    }
    for (GgufFile::Entry& entry : tensors) entry.begin += data_begin;
  }

  const io::Source& source_;
  std::span<const std::byte> bytes_;
  Cursor cursor_;
  Header header_;
  std::unordered_set<std::string> names_;
  std::vector<std::uint64_t> offset_at_;  // of each tensor: where the file has its offset
};

}  // namespace

std::uint64_t bytes_of(ValueType type) {
  constexpr std::uint64_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return sizes[static_cast<std::size_t>(type)];
}

Header read_header(const io::Source& source, std::span<const std::byte> bytes) { return Reader(source, bytes).read(); }

}  // namespace attn::gguf
