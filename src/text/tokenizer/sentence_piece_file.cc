// src/text/tokenizer/sentence_piece_file.cc: reads the protocol buffer of a SentencePiece model: pieces, the kind of
// the model, the normalizer. Other fields are skipped.
#include <attn/error.h>

#include "runtime/format.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/sentence_piece.h"
#include "text/unicode.h"

#include <attn/text.h>

#include <bit>
#include <cmath>
#include <optional>

namespace attn::text {
namespace {

/// A field of a message: a number, or bytes.
struct Field {
  std::uint64_t number = 0;     // which field
  std::uint64_t value = 0;      // varint, fixed64, fixed32
  std::string_view bytes = {};  // length-delimited
  bool is_bytes = false;
};

/// Reads the fields of a message one after another.
class Message {
 public:
  Message(std::string_view bytes, const std::string& name) : rest_(bytes), name_(name) {}

  std::optional<Field> next() {
    if (rest_.empty()) return std::nullopt;
    const std::uint64_t key = varint();
    Field field{.number = key >> 3};
    switch (key & 7) {
      case 0: field.value = varint(); break;
      case 1: field.value = fixed(8); break;
      case 2: {
        const std::uint64_t size = varint();
        if (size > rest_.size()) fail("a field is longer than the file");
        field.bytes = rest_.substr(0, size);
        field.is_bytes = true;
        rest_.remove_prefix(size);
        break;
      }
      case 5: field.value = fixed(4); break;
      default: fail(runtime::format("a field has the wire type {}", key & 7));
    }
    return field;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw ValueError(name_ + ": it is no SentencePiece model: " + what);
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) fail("it ends inside of a number");
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    fail("a number has more than 64 bits");
  }
  std::uint64_t fixed(std::size_t bytes) {
    if (rest_.size() < bytes) fail("it ends inside of a number");
    std::uint64_t value = 0;
    for (std::size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(rest_[i]);
    rest_.remove_prefix(bytes);
    return value;
  }
  std::string_view rest_;
  const std::string& name_;
};

SentencePieceFile::Piece piece_of(std::string_view bytes, const std::string& name) {
  SentencePieceFile::Piece piece;
  Message message(bytes, name);
  while (const auto field = message.next()) {
    if (field->number == 1 && field->is_bytes) piece.text = field->bytes;
    if (field->number == 2 && !field->is_bytes)
      piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field->value));
    if (field->number == 3 && !field->is_bytes) {
      if (field->value < 1 || field->value > 6) message.fail(runtime::format("a piece has the type {}", field->value));
      piece.type = static_cast<SentencePieceFile::Type>(field->value);
    }
  }
  if (piece.text.empty()) message.fail("a piece is empty");
  if (piece.text.size() > longest_token)
    message.fail(runtime::format("a piece has {} bytes; at most {} are read", piece.text.size(), longest_token));
  if (invalid_utf8(piece.text)) message.fail("a piece is not UTF-8");
  if (!std::isfinite(piece.score)) message.fail("a score is not a finite number");
  return piece;
}

}  // namespace

SentencePieceFile SentencePieceFile::parse(std::string_view bytes, const std::string& name) {
  SentencePieceFile file;
  Message model(bytes, name);
  while (const auto field = model.next()) {
    if (!field->is_bytes) continue;
    if (field->number == 1) {
      if (std::ssize(file.pieces) >= most_tokens)
        model.fail(runtime::format("it has more than {} pieces", most_tokens));
      file.pieces.push_back(piece_of(field->bytes, name));
    }
    if (field->number == 2) {
      Message trainer(field->bytes, name);
      while (const auto one = trainer.next()) {
        if (one->is_bytes) continue;
        if (one->number == 3) file.model_type = one->value;
        if (one->number == 24) file.space_behind = one->value != 0;
        if (one->number == 35) file.byte_fallback = one->value != 0;
      }
    }
    if (field->number == 3) {
      Message normalizer(field->bytes, name);
      while (const auto one = normalizer.next()) {
        if (one->number == 2 && one->is_bytes) file.charsmap = one->bytes;
        if (one->is_bytes) continue;
        if (one->number == 3) file.dummy_prefix = one->value != 0;
        if (one->number == 4) file.remove_spaces = one->value != 0;
        if (one->number == 5) file.escape_spaces = one->value != 0;
      }
    }
  }
  if (file.pieces.empty()) model.fail("it has no pieces");
  return file;
}

}  // namespace attn::text
