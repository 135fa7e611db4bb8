// src/io/npy_header.cc: reads and writes the text of a NumPy header: {'descr': '<f4', 'fortran_order': False, 'shape':
// (3, 4), }.
#include "io/npy_header.h"

#include <attn/error.h>
#include "runtime/format.h"

#include <array>
#include <cstring>
#include <optional>
#include <string_view>

namespace attn::io {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::uint64_t longest_npy_header = 1 << 20;

constexpr std::array<std::pair<std::string_view, Dtype>, 6> held_types{{{"f4", Dtype::f32},
                                                                        {"f8", Dtype::f64},
                                                                        {"f2", Dtype::f16},
                                                                        {"i8", Dtype::i64},
                                                                        {"i4", Dtype::i32},
                                                                        {"b1", Dtype::boolean}}};

/// Reads the dictionary and tracks the position in the file, for errors.
class NpyHeaderReader {
 public:
  NpyHeaderReader(const Source& source, std::string_view text, std::uint64_t begin)
      : source_(source), text_(text), begin_(begin) {}

  void read(NpyHeader& header) {
    std::optional<bool> fortran_order;
    bool has_type = false, has_shape = false;
    expect('{');
    while (!take('}')) {
      skip_blanks();
      const std::uint64_t key_at = offset();
      const std::string_view key = string();
      expect(':');
      if (key == "descr" && !has_type) {
        has_type = true;
        read_type(header);
      } else if (key == "fortran_order" && !fortran_order) {
        fortran_order = boolean();
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        header.sizes = shape();
      } else {
        source_.fail(
            runtime::format("the header must hold descr, fortran_order and shape, once each; it has \"{}\"", key),
            key_at);
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    if (!has_type || !fortran_order || !has_shape)
      source_.fail("the header must hold descr, fortran_order and shape", begin_);
    header.fortran_order = *fortran_order;
    skip_blanks();
    if (at_ != text_.size()) source_.fail("the header goes on after its dictionary", offset());
  }

 private:
  std::uint64_t offset() const { return begin_ + at_; }
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  bool take(char c) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) source_.fail(runtime::format("the header needs {} here", c), offset());
  }

  std::string_view string() {
    skip_blanks();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    const std::size_t end = quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : std::string_view::npos;
    if (end == std::string_view::npos) source_.fail("the header needs a string here", offset());
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return inside;
  }

  bool boolean() {
    skip_blanks();
    for (const auto& [word, value] : {std::pair{std::string_view("True"), true}, {std::string_view("False"), false}})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    source_.fail("fortran_order must be True or False", offset());
  }

  Dims shape() {
    Dims sizes;
    expect('(');
    while (!take(')')) {
      skip_blanks();
      if (sizes.size() == max_rank) source_.fail("the rank is above 8", offset());
      sizes.push_back(size());
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    return sizes;
  }

  std::int64_t size() {
    const std::uint64_t from = offset();
    if (at_ < text_.size() && text_[at_] == '-') source_.fail("a size is negative", from);
    std::int64_t value = 0;
    const std::size_t first = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      if (__builtin_mul_overflow(value, std::int64_t{10}, &value) ||
          __builtin_add_overflow(value, std::int64_t{text_[at_] - '0'}, &value))
        source_.fail("a size is above 2^63 - 1", from);
    if (at_ == first) source_.fail("the shape needs a whole number here", from);
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote such sizes: (3L, 4L)
    return value;
  }

  void read_type(NpyHeader& header) {
    skip_blanks();
    const std::uint64_t at = offset();
    if (at_ < text_.size() && text_[at_] == '[')
      throw DtypeError(runtime::format("{}: the file holds records; one element type is needed", source_.name()));
    const std::string_view type = string();
    if (type.size() < 2 || std::string_view("<>|=").find(type[0]) == std::string_view::npos)
      source_.fail(runtime::format("'{}' is no element type", type), at);
    header.big_endian = type[0] == '>';
    for (const auto& [name, dtype] : held_types)
      if (type.substr(1) == name) {
        header.dtype = dtype;
        return;
      }
    const bool maybe_bf16 = type.substr(1) == "V2";
    throw DtypeError(runtime::format(
        "{}: the elements are '{}'{}; f4, f8, f2, i8, i4 and b1 can be loaded", source_.name(), one_line(type),
        maybe_bf16 ? ", as bfloat16 comes out of NumPy, which does not have it (use safetensors)" : ""));
  }

  const Source& source_;
  std::string_view text_;
  std::uint64_t begin_;
  std::size_t at_ = 0;
};

}  // namespace

NpyHeader read_npy_header(const Source& source) {
  std::array<char, 8> start{};
  source.read(0, start.data(), start.size());
  if (std::string_view(start.data(), magic.size()) != magic) source.fail("this is no NumPy file", 0);
  const int major = start[6], minor = start[7];
  if (major < 1 || major > 3 || minor != 0)
    source.fail(runtime::format("format {}.{} is unknown; 1.0, 2.0 and 3.0 can be loaded", major & 0xFF, minor & 0xFF),
                6);
  std::uint32_t length = 0;
  const std::uint64_t length_bytes = major == 1 ? 2 : 4;
  source.read(start.size(), &length, length_bytes);
  const std::uint64_t begin = start.size() + length_bytes;
  if (length > longest_npy_header || length > source.size() - begin)
    source.fail(runtime::format("the header has {} bytes; {}", length,
                                length > longest_npy_header ? "at most 1048576 are allowed" : "the file ends before"),
                start.size());
  std::string text(length, '\0');
  source.read(begin, text.data(), length);
  NpyHeader header;
  NpyHeaderReader(source, text, begin).read(header);
  header.data_begin = begin + length;
  const std::uint64_t bytes = checked_bytes(source, header.sizes, header.dtype, begin),
                      there = source.size() - header.data_begin;
  if (bytes > there)
    source.fail(runtime::format("shape {} needs {} bytes; the file has {}", to_string(header.sizes), bytes, there),
                source.size());
  if (bytes < there) source.fail("bytes are left over after the last element", header.data_begin + bytes);
  return header;
}

std::string make_npy_header(const Dims& sizes, Dtype dtype) {
  std::string_view type;
  for (const auto& [name, held] : held_types)
    if (held == dtype) type = name;
  std::string shape = runtime::format("({}{})", runtime::join(sizes, ", "), sizes.size() == 1 ? "," : "");
  std::string text = runtime::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': {}, }}",
                                     dtype == Dtype::boolean ? '|' : '<', type, shape);
  // NumPy leaves room for the first size to grow to 21 digits, then pads the header to a multiple of 64 bytes.
  if (!sizes.empty()) text.append(21 - runtime::format("{}", sizes[0]).size(), ' ');
  const std::size_t fixed = magic.size() + 2 + 2;
  const std::size_t padding = 64 - (fixed + text.size() + 1) % 64;
  text.append(padding, ' ');
  text += '\n';
  std::string head(magic);
  head += {'\x01', '\x00', static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  return head + text;
}

}  // namespace attn::io
