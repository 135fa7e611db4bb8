// src/model/gguf/state.h: what was read of a GGUF file's header: where its values and tensors are.
#pragma once
#include <attn/gguf.h>

#include "io/source.h"
#include "model/gguf/mapped_file.h"

#include <map>
#include <unordered_map>

namespace attn::gguf {

/// The types of values, with the numbers that the file has for them.
enum class ValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 };

/// A value of the metadata: a single one is an array of one. Texts are read again when they are used.
struct Value {
  ValueType type = ValueType::u8;  // of each element; no array
  bool array = false;
  std::uint64_t count = 1, begin = 0;
};

struct Header {
  std::uint32_t version = 0;
  std::map<std::string_view, Value, std::less<>> metadata;
  std::vector<GgufFile::Entry> tensors;
};

/// Reads the header, and checks all of it against the file. Errors are those of `source`; its texts stay in `bytes`.
Header read_header(const io::Source& source, std::span<const std::byte> bytes);

/// Returns the bytes of a number of that type; 0 for texts and arrays.
std::uint64_t bytes_of(ValueType type);

}  // namespace attn::gguf

namespace attn {

struct GgufFile::State {
  struct Part {
    std::string name;  // begins the errors: the function and the path
    std::shared_ptr<const gguf::Bytes> bytes;
  };
  std::vector<Part> parts;
  gguf::Header header;  // the metadata of the first part, the tensors of all
  std::unordered_map<std::string_view, std::size_t> places;
};

}  // namespace attn
