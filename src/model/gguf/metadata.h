// src/model/gguf/metadata.h: makes the keys of a GGUF file to be written.
#pragma once
#include <attn/model.h>
#include <attn/tokenizer.h>

#include <cstdint>
#include <string>
#include <vector>

namespace attn::gguf {

template <typename T>
void append(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}
inline void append_text(std::string& to, const std::string& text) {
  append(to, static_cast<std::uint64_t>(text.size()));
  to += text;
}

/// Keys with their values, as the file has them.
class Metadata {
 public:
  void number(const std::string& key, std::int64_t value);  // u32; ValueError if it is larger
  void real(const std::string& key, double value);          // f32
  void boolean(const std::string& key, bool value);
  void text(const std::string& key, const std::string& value);
  void texts(const std::string& key, const std::vector<std::string>& values);
  void integers(const std::string& key, const std::vector<std::int32_t>& values);
  void numbers(const std::string& key, const std::vector<float>& values);
  void bytes_of(const std::string& key, const std::string& values);  // an array of u8

  std::uint64_t count = 0;
  std::string bytes;

 private:
  void begin(const std::string& key, std::uint32_t type);
};

/// Adds the keys of a tokenizer, except the ids of special tokens; ids up to the model's vocab_size that no token has
/// become unused tokens. ValueError for a tokenizer that GGUF files cannot hold.
void add_tokenizer(Metadata& metadata, const Tokenizer& tokenizer, std::int64_t vocab_size);

}  // namespace attn::gguf
