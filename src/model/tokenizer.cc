// src/model/tokenizer.cc: encodes a text as ids and decodes ids to text.
#include <attn/error.h>
#include <attn/tokenizer.h>

#include "io/source.h"
#include "model/tokenizer_state.h"
#include "text/tokenizer/byte_level.h"
#include "text/unicode.h"

#include "runtime/format.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <unordered_set>

namespace attn {
namespace {

using State = Tokenizer::State;

/// Encodes the parts of a text between its added tokens. A piece that occurred before is copied, not merged again.
class Encoder {
 public:
  Encoder(const State& state, std::vector<std::int64_t>& ids) : state_(state), ids_(ids) {}

  void run(std::string_view part) {
    for (std::size_t at = 0; at < part.size();) {
      const std::size_t end = text::piece_end(state_.cut, part, at, state_.separator);
      const std::string_view piece = part.substr(at, end - at);
      state_.kind == Tokenizer::Kind::bpe ? merged(piece) : looked_up(piece);
      at = end;
    }
  }

 private:
  void looked_up(std::string_view piece) {
    if (const auto found = state_.ids.find(piece)) return ids_.push_back(*found);
    if (state_.kind == Tokenizer::Kind::characters)
      throw ValueError(runtime::format("encode: \"{}\" is not among the {} characters of the tokenizer",
                                       io::one_line(piece), state_.ids.size()));
    ids_.push_back(state_.ids.find(unknown_word).value());
  }

  void merged(std::string_view piece) {
    const auto [known, is_new] = known_.try_emplace(piece, ids_.size(), 0);
    auto& [begin, count] = known->second;
    if (!is_new) {
      for (std::size_t i = 0; i < count; ++i) ids_.push_back(ids_[begin + i]);
      return;
    }
    const auto whole = state_.whole_first ? state_.ids.find(piece) : std::nullopt;
    // A token whose name has characters that are not byte characters never matches text, because text is looked up in
    // byte characters.
    const auto met = [&](std::int64_t id) {
      return state_.byte_fallback || state_.names[static_cast<std::size_t>(id)] == text::to_byte_characters(piece);
    };
    if (whole && met(*whole)) {
      ids_.push_back(*whole);
    } else {
      symbols_.clear();
      state_.byte_fallback ? add_characters(piece) : add_bytes(piece);
      state_.bpe.merge(symbols_);
      ids_.insert(ids_.end(), symbols_.begin(), symbols_.end());
    }
    count = ids_.size() - begin;
  }

  void add_bytes(std::string_view piece) {
    for (const char c : piece) {
      const std::int64_t id = state_.byte_ids[static_cast<unsigned char>(c)];
      if (id < 0)
        throw ValueError(
            runtime::format("encode: the tokenizer has no token for byte 0x{:02X}", static_cast<unsigned char>(c)));
      symbols_.push_back(static_cast<std::int32_t>(id));
    }
  }

  /// Adds the ids of a piece's characters. A character without a token becomes the tokens of its bytes. If one of its
  /// bytes has no token either, the character becomes the unknown token, which is added before the next character that
  /// has a token, after any bytes in between, as in Hugging Face's library.
  void add_characters(std::string_view piece) {
    bool unknown = false;
    const auto end_unknown = [&] {
      if (std::exchange(unknown, false))
        symbols_.push_back(static_cast<std::int32_t>(state_.ids.find(state_.unknown).value()));
    };
    for (std::size_t at = 0; at < piece.size();) {
      const std::string_view character = piece.substr(at, text::code_point_at(piece, at).bytes);
      at += character.size();
      if (const auto known = state_.ids.find(character)) {
        end_unknown();
        symbols_.push_back(static_cast<std::int32_t>(*known));
      } else if (std::all_of(character.begin(), character.end(),
                             [&](char c) { return state_.byte_ids[static_cast<unsigned char>(c)] >= 0; })) {
        add_bytes(character);
      } else {
        if (!state_.ids.contains(state_.unknown))
          throw ValueError(runtime::format(
              "encode: the tokenizer has no token for \"{}\", for all of its bytes or for what is unknown",
              io::one_line(character)));
        if (!state_.fuse_unknown) end_unknown();
        unknown = true;
      }
    }
    end_unknown();
  }

  const State& state_;
  std::vector<std::int64_t>& ids_;
  std::vector<std::int32_t> symbols_;
  // pieces that occurred: where their ids begin in ids_, and how many they are
  std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> known_;
};

/// Returns a token as decoders get it: an added one in the form in which it is searched for.
const std::string& token_of(const State& state, std::int64_t id) {
  const auto added = std::lower_bound(state.added.begin(), state.added.end(), id,
                                      [](const AddedToken& token, std::int64_t value) { return token.id < value; });
  return added != state.added.end() && added->id == id ? added->searched : state.names[static_cast<std::size_t>(id)];
}

[[noreturn]] void no_such_id(std::int64_t id, std::int64_t size) {
  throw ValueError(runtime::format("decode: id {} is not there; the tokenizer has {} tokens", id, size));
}

}  // namespace

Tokenizer::Tokenizer() : state_(std::make_shared<State>()) {}
Tokenizer::Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::Kind Tokenizer::kind() const { return state_->kind; }
std::int64_t Tokenizer::size() const { return static_cast<std::int64_t>(state_->names.size()); }

const Tokenizer::State& state_of(const Tokenizer& tokenizer) { return *tokenizer.state_; }

std::string Tokenizer::State::decoded(std::size_t id, const std::string& name) {
  if (encoder != nullptr) return encoder->bytes_of(name);
  if (!byte_fallback) return name;
  const std::string spaced = decoded_space.empty() ? name : text::replaced(name, decoded_space, " ");
  const int byte = text::byte_of_name(spaced);
  lone_byte[id] = byte >= 0;
  return byte < 0 ? spaced : std::string(1, static_cast<char>(byte));
}

bool Tokenizer::State::index() {
  bytes.assign(names.size(), {});
  lone_byte.assign(names.size(), false);
  byte_ids.fill(-1);
  ids = text::TextIndex(names.size());
  std::vector<bool> from_text(names.size(), false);  // whether an id is a single byte or the result of a merge
  for (std::size_t id = 0; id < names.size(); ++id) {
    if (names[id].empty()) continue;
    const auto from_bytes =
        kind == Kind::bpe && !byte_fallback && !encoder ? text::from_byte_characters(names[id]) : std::nullopt;
    bytes[id] = from_bytes ? *from_bytes : decoded(id, names[id]);
    const bool is_new = ids.put(byte_fallback ? names[id] : bytes[id], static_cast<std::int64_t>(id));
    if (encoder != nullptr) continue;
    if (!is_new) return false;
    const bool stands_for_byte = byte_fallback ? lone_byte[id] && names[id] == text::name_of_byte(bytes[id][0])
                                               : from_bytes && bytes[id].size() == 1;
    if (!stands_for_byte) continue;
    byte_ids[static_cast<unsigned char>(bytes[id][0])] = static_cast<std::int64_t>(id);
    from_text[id] = true;
  }
  for (const text::Merge& merge : bpe.merges()) from_text[static_cast<std::size_t>(merge.result)] = true;
  special.assign(names.size(), false);
  for (const AddedToken& token : added) {
    const auto id = static_cast<std::size_t>(token.id);
    names[id] = token.content;
    if (byte_fallback || !from_text[id]) bytes[id] = decoded(id, token.searched);
    special[id] = token.special;
  }
  // A vocabulary of Unigram may have a text twice: a token is special by its text, as in Hugging Face's library.
  std::unordered_set<std::string_view> special_names;
  for (const AddedToken& token : added)
    if (token.special) special_names.insert(token.content);
  for (std::size_t id = 0; id < names.size(); ++id)
    if (special_names.contains(names[id])) special[id] = true;
  searched_in_text = AddedTokens(added, false);
  searched_in_normalized = AddedTokens(added, true);
  return true;
}

namespace {

/// Returns the ids of a text without special tokens.
std::vector<std::int64_t> ids_of(const State& state, std::string_view text) {
  if (state.kind != Tokenizer::Kind::bpe || state.encoder) text::check_utf8("encode", text);
  std::vector<std::int64_t> ids;
  Encoder encoder(state, ids);
  // the parts that a normalizer changed; a deque does not move them while the encoder refers to their pieces
  std::deque<std::string> changed;
  const auto keep = [&](std::string part) -> std::string_view { return changed.emplace_back(std::move(part)); };
  const auto encode_part = [&](std::string_view part, bool first) {
    if (!state.space.empty()) part = keep(text::replaced(part, " ", state.space));
    const std::string_view space = state.space.empty() ? " " : std::string_view(state.space);
    const bool prefixed = state.prefix == Prefix::always || (state.prefix == Prefix::first && first);
    if (prefixed && !part.starts_with(space)) part = keep(std::string(space).append(part));
    encoder.run(part);
  };
  const auto found = [&](std::int64_t id) { ids.push_back(id); };
  const auto normalize = [&](std::string_view part) {
    const bool first = part.data() == text.data();
    if (state.encoder == nullptr) {
      const std::string_view whole = state.normalizer.empty() ? part : keep(text::changed(state.normalizer, part));
      const auto between = [&](std::string_view piece) { encode_part(piece, first && piece.data() == whole.data()); };
      return state.searched_in_normalized.split(whole, between, found);
    }
    const text::Rewritten whole = state.encoder->normalized(part, first);
    const auto between = [&](std::string_view piece) {
      const auto at = static_cast<std::size_t>(piece.data() - whole.text.data());
      const std::size_t of_first = whole.first > at ? std::min(whole.first - at, piece.size()) : 0;
      state.encoder->encode({std::string(piece), of_first}, ids);
    };
    state.searched_in_normalized.split(whole.text, between, found);
  };
  state.searched_in_text.split(text, normalize, found);
  return ids;
}

/// Leaves `most` ids.
void shorten(std::vector<std::int64_t>& ids, std::int64_t most, bool at_begin) {
  const auto excess = static_cast<std::ptrdiff_t>(std::ssize(ids) - most);
  if (excess <= 0) return;
  if (at_begin) ids.erase(ids.begin(), ids.begin() + excess);
  else ids.resize(static_cast<std::size_t>(most));
}

/// Shortens two texts to at most `most` ids, the longer one first, as Hugging Face's library does.
void shorten_longest(std::vector<std::int64_t>& first, std::vector<std::int64_t>& second, std::int64_t most,
                     bool at_begin) {
  std::int64_t less = std::min(std::ssize(first), std::ssize(second)),
               more = std::max(std::ssize(first), std::ssize(second));
  if (less + more <= most) return;
  more = less > most ? less : std::max(less, most - less);
  if (less + more > most) {
    less = most / 2;
    more = less + most % 2;
  }
  const bool first_is_longer = first.size() > second.size();
  shorten(first, first_is_longer ? more : less, at_begin);
  shorten(second, first_is_longer ? less : more, at_begin);
}

EncodedText laid_out(const std::vector<TemplatePiece>& pieces, const std::vector<std::int64_t>& first,
                     const std::vector<std::int64_t>& second) {
  EncodedText result;
  for (const TemplatePiece& piece : pieces) {
    const auto& ids = piece.of == TemplatePiece::Of::special ? piece.ids
                      : piece.of == TemplatePiece::Of::first ? first
                                                             : second;
    result.ids.insert(result.ids.end(), ids.begin(), ids.end());
    result.type_ids.resize(result.ids.size(), piece.type_id);
  }
  return result;
}

/// Returns how many ids of texts leave room for the special tokens of a template.
std::int64_t room_in(const std::vector<TemplatePiece>& pieces, std::int64_t max_length) {
  std::int64_t special = 0;
  for (const TemplatePiece& piece : pieces) special += std::ssize(piece.ids);
  if (max_length == 0) return INT64_MAX;
  if (max_length < special)
    throw ValueError(runtime::format("encode: max_length is {}; it must be 0, or from {}, the special tokens alone",
                                     max_length, special));
  return max_length - special;
}

/// Returns the special tokens of one text's template, before the text or after it.
std::vector<std::int64_t> special_of(const Templates& templates, bool after) {
  std::vector<std::int64_t> ids;
  bool seen = false;
  for (const TemplatePiece& piece : templates.single) {
    if (seen == after) ids.insert(ids.end(), piece.ids.begin(), piece.ids.end());
    seen = seen || piece.of == TemplatePiece::Of::first;
  }
  return ids;
}

}  // namespace

std::vector<std::int64_t> Tokenizer::State::before() const { return special_of(templates, false); }
std::vector<std::int64_t> Tokenizer::State::after() const { return special_of(templates, true); }

text::Rewritten Tokenizer::State::normalized(std::string_view part, bool first) const {
  if (encoder != nullptr) return encoder->normalized(part, first);
  return {text::changed(normalizer, part), 0};
}

std::vector<std::int64_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  std::vector<std::int64_t> ids = ids_of(*state_, text);
  return add_special ? laid_out(state_->templates.single, ids, {}).ids : ids;
}

EncodedText Tokenizer::encode_text(std::string_view text, std::int64_t max_length) const {
  const std::int64_t most = room_in(state_->templates.single, max_length);
  std::vector<std::int64_t> ids = ids_of(*state_, text);
  shorten(ids, most, state_->cut_at_begin);
  return laid_out(state_->templates.single, ids, {});
}

EncodedText Tokenizer::encode_pair(std::string_view first, std::string_view second, std::int64_t max_length) const {
  const std::vector<TemplatePiece>& pieces = state_->templates.pair;
  if (pieces.empty()) throw ValueError("encode: the post-processor of the tokenizer has no template for two texts");
  const std::int64_t most = room_in(pieces, max_length);
  std::vector<std::int64_t> ids = ids_of(*state_, first), other = ids_of(*state_, second);
  shorten_longest(ids, other, most, state_->cut_at_begin);
  return laid_out(pieces, ids, other);
}

std::int64_t Tokenizer::max_length() const { return state_->max_length; }

const std::string& Tokenizer::bytes(std::int64_t id) const {
  if (!state_->has(id)) no_such_id(id, size());
  return state_->bytes[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(const std::vector<std::int64_t>& ids, bool skip_special) const {
  std::string text;
  std::vector<std::string> tokens;  // for a decoder that looks at tokens
  for (const std::int64_t id : ids) {
    if (id < 0) no_such_id(id, size());
    if (!state_->has(id) || (skip_special && state_->special[static_cast<std::size_t>(id)])) continue;
    if (state_->encoder == nullptr) text += bytes(id);
    else tokens.push_back(token_of(*state_, id));
  }
  if (state_->encoder != nullptr) return state_->encoder->decoded(std::move(tokens));
  if (state_->strip_space && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::optional<std::int64_t> Tokenizer::find(std::string_view bytes) const {
  for (const AddedToken& token : state_->added)
    if (token.content == bytes) return token.id;
  const bool spelled = !state_->decoded_space.empty();
  if (const auto found =
          state_->ids.find(spelled ? text::replaced(bytes, " ", state_->decoded_space) : std::string(bytes)))
    return found;
  const bool lone =
      state_->byte_fallback && bytes.size() == 1 && state_->byte_ids[static_cast<unsigned char>(bytes[0])] >= 0;
  return lone ? std::optional(state_->byte_ids[static_cast<unsigned char>(bytes[0])]) : std::nullopt;
}

}  // namespace attn
