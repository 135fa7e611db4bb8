// include/attn/gguf.h: reads GGUF files, llama.cpp's format of language models: metadata, and tensors as floats or in
// blocks of few bits.
#pragma once
#include <attn/tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// The declarations of this header are in a separate library: link attn::model (which brings attn with it).
namespace attn {

/// The content of a GGUF file of version 2 or 3, or of all parts of one (name-00001-of-00003.gguf). The file stays
/// mapped; a tensor is decoded when it is read. A handle: copies share one mapping. Thread safety: immutable.
///
/// Types    F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K
/// Errors   IoError when the file cannot be read; FormatError with the byte offset when it is not valid: counts,
///          lengths or offsets beyond the file, a name or key that occurs twice, tensors that overlap or are not
///          aligned, arrays of arrays, parts that are not of one file; DtypeError names a tensor of any other type.
///          Everything is checked before any tensor is read. The memory for all of it is a small multiple of the
///          file's header.
/// Source   docs/gguf.md of ggml
class ATTN_API GgufFile {
 public:
  struct Entry {
    std::string name;
    std::string type;            ///< the format's name: "F32", "Q4_K"
    Dims sizes;                  ///< outermost first, as of every tensor here; the file lists them innermost first
    std::uint64_t begin = 0;     ///< offset of its data in its file
    std::uint64_t bytes = 0;     ///< of its data
    std::size_t part = 0;        ///< which of the files has it
    std::size_t type_index = 0;  ///< in the table of types
  };

  // Moving copies, so that a moved-from handle stays valid.
  GgufFile(const GgufFile&) = default;
  GgufFile& operator=(const GgufFile&) = default;

  /// Opens a file; of a file in parts the first, which brings the others.
  static GgufFile open(const std::string& path);
  /// Reads the same format from memory; the bytes are copied.
  static GgufFile parse(std::span<const std::byte> bytes);

  /// Returns the version of the format, 2 or 3.
  std::uint32_t version() const;
  const std::vector<Entry>& tensors() const;
  /// Returns null when there is no tensor of that name.
  const Entry* find(std::string_view name) const;
  /// Returns the tensor in f32, decoded as the format defines it. ValueError when there is none of that name.
  Tensor tensor(std::string_view name) const;
  /// Decodes rows [first, first + count) of a tensor, seen as [rows, last size], into `to`, which holds
  /// count * last size numbers. ValueError for rows that are not there.
  void decode_rows(const Entry& entry, std::int64_t first, std::int64_t count, float* to) const;

  /// Returns a tensor's bytes, as the file has them; they stay as long as a copy of this handle does.
  std::span<const std::byte> data(const Entry& entry) const;

  /// Return the metadata's keys, and whether a key is there.
  std::vector<std::string> keys() const;
  bool has(std::string_view key) const;
  /// These return the value of a key, or `otherwise` if there is no such key; without `otherwise` a missing key is a
  /// ValueError. So is a value of another type, or an integer above 2^63 - 1. An array of equal integers also counts as
  /// one integer.
  std::int64_t integer(std::string_view key, std::optional<std::int64_t> otherwise = std::nullopt) const;
  /// An f32 gives the number that its shortest decimal is: 1e-5, not 9.99999974e-6. An integer is a number too.
  double number(std::string_view key, std::optional<double> otherwise = std::nullopt) const;
  bool boolean(std::string_view key, std::optional<bool> otherwise = std::nullopt) const;
  std::string text(std::string_view key, const std::optional<std::string>& otherwise = std::nullopt) const;
  /// Return the elements of an array; empty if there is no such key. The texts are in the mapped file, and stay as long
  /// as a copy of this handle does; they may hold any bytes. As integers, truths are 1 and 0.
  std::vector<std::int64_t> integers(std::string_view key) const;
  std::vector<float> numbers(std::string_view key) const;
  std::vector<std::string_view> texts(std::string_view key) const;
  /// Throws a ValueError "file: key is value; needed".
  [[noreturn]] void refuse(std::string_view key, const std::string& needed) const;
  /// Returns the function and the path, with which errors begin.
  const std::string& name() const;

  struct State;  // src/model/gguf/state.h

 private:
  explicit GgufFile(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace attn
