// tests/model/gguf_bytes.h: writes GGUF files of a few bytes, right or wrong.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace attn::testing {

/// Appends a number's bytes, or a text with its length before it.
template <typename T>
void put(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}
inline void put_text(std::string& to, const std::string& text) {
  put(to, static_cast<std::uint64_t>(text.size()));
  to += text;
}

inline std::string text_of(const std::string& text) {
  std::string bytes;
  put_text(bytes, text);
  return bytes;
}
template <typename T>
std::string bytes_of(T value) {
  std::string bytes;
  put(bytes, value);
  return bytes;
}

/// A file as a list of its keys and tensors.
struct GgufBytes {
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> sizes;  // innermost first, as in the file
    std::uint32_t type = 0;
    std::string data = {};
    std::int64_t offset = -1;  // -1: after the tensor before
  };
  std::uint32_t version = 3;
  std::uint32_t alignment = 32;
  std::vector<std::string> keys;  // each with its value
  std::vector<Tensor> tensors;
  std::int64_t more_tensors = 0, more_keys = 0;  // that the header claims beside those above

  GgufBytes& key(const std::string& name, std::uint32_t type, const std::string& value) {
    keys.push_back(text_of(name) + bytes_of(type) + value);
    return *this;
  }
  GgufBytes& number(const std::string& name, std::uint32_t value) { return key(name, 4, bytes_of(value)); }
  GgufBytes& real(const std::string& name, float value) { return key(name, 6, bytes_of(value)); }
  GgufBytes& boolean(const std::string& name, bool value) { return key(name, 7, std::string(1, value ? '\1' : '\0')); }
  GgufBytes& text(const std::string& name, const std::string& value) { return key(name, 8, text_of(value)); }
  GgufBytes& texts(const std::string& name, const std::vector<std::string>& values) {
    std::string bytes = bytes_of(std::uint32_t{8}) + bytes_of(static_cast<std::uint64_t>(values.size()));
    for (const std::string& value : values) put_text(bytes, value);
    return key(name, 9, bytes);
  }
  template <typename T>
  GgufBytes& array(const std::string& name, std::uint32_t type, const std::vector<T>& values) {
    std::string bytes = bytes_of(type) + bytes_of(static_cast<std::uint64_t>(values.size()));
    for (const T value : values) put(bytes, value);
    return key(name, 9, bytes);
  }
  GgufBytes& tensor(Tensor tensor) {
    tensors.push_back(std::move(tensor));
    return *this;
  }
  GgufBytes& floats(const std::string& name, const std::vector<std::uint64_t>& sizes, std::span<const float> values) {
    return tensor({name, sizes, 0, {reinterpret_cast<const char*>(values.data()), values.size_bytes()}});
  }

  std::string bytes() const {
    std::string file = "GGUF" + bytes_of(version);
    put(file, static_cast<std::uint64_t>(static_cast<std::int64_t>(tensors.size()) + more_tensors));
    put(file, static_cast<std::uint64_t>(static_cast<std::int64_t>(keys.size()) + more_keys));
    for (const std::string& one : keys) file += one;
    std::string data;
    for (const Tensor& one : tensors) {
      put_text(file, one.name);
      put(file, static_cast<std::uint32_t>(one.sizes.size()));
      for (const std::uint64_t size : one.sizes) put(file, size);
      put(file, one.type);
      put(file, one.offset >= 0 ? static_cast<std::uint64_t>(one.offset) : static_cast<std::uint64_t>(data.size()));
      data += one.data;
      data.resize((data.size() + alignment - 1) / alignment * alignment, '\0');
    }
    file.resize((file.size() + alignment - 1) / alignment * alignment, '\0');
    return file + data;
  }
};

}  // namespace attn::testing
