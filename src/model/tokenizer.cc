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
    if (const auto found = state_.ids.find(std::string(piece)); found != state_.ids.end())
      return ids_.push_back(found->second);
    if (state_.kind == Tokenizer::Kind::characters)
      throw ValueError(runtime::format("encode: \"{}\" is not among the {} characters of the tokenizer",
                                       io::one_line(piece), state_.ids.size()));
    ids_.push_back(state_.ids.at(unknown_word));
  }

  void merged(std::string_view piece) {
    const auto [known, is_new] = known_.try_emplace(piece, ids_.size(), 0);
    auto& [begin, count] = known->second;
    if (!is_new) {
      for (std::size_t i = 0; i < count; ++i) ids_.push_back(ids_[begin + i]);
      return;
    }
    const auto whole = state_.whole_first ? state_.ids.find(std::string(piece)) : state_.ids.end();
    // A token whose name has characters that are not byte characters never matches text, because text is looked up in
    // byte characters.
    const auto met = [&](std::int64_t id) {
      return state_.byte_fallback || state_.names[static_cast<std::size_t>(id)] == text::to_byte_characters(piece);
    };
    if (whole != state_.ids.end() && met(whole->second)) {
      ids_.push_back(whole->second);
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
      if (std::exchange(unknown, false)) symbols_.push_back(static_cast<std::int32_t>(state_.ids.at(state_.unknown)));
    };
    for (std::size_t at = 0; at < piece.size();) {
      const std::string character(piece.substr(at, text::code_point_at(piece, at).bytes));
      at += character.size();
      const auto known = state_.ids.find(character);
      if (known != state_.ids.end()) {
        end_unknown();
        symbols_.push_back(static_cast<std::int32_t>(known->second));
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

/// Finds the added tokens of a text, the longest match from left to right. The tokens are sorted by their bytes; each
/// points to the longest other token that is a prefix of it.
class AddedTokens {
 public:
  AddedTokens(const std::vector<AddedToken>& tokens, bool normalized) {
    for (const AddedToken& token : tokens)
      if (token.normalized == normalized) sorted_.push_back({&token, nullptr});
    std::sort(sorted_.begin(), sorted_.end(),
              [](const Entry& a, const Entry& b) { return a.token->searched < b.token->searched; });
    for (std::size_t i = 0; i < sorted_.size(); ++i) {
      const std::string& searched = sorted_[i].token->searched;
      begins_[static_cast<unsigned char>(searched[0])] = true;
      const Entry* shorter = i == 0 ? nullptr : &sorted_[i - 1];
      while (shorter != nullptr && !searched.starts_with(shorter->token->searched)) shorter = shorter->shorter;
      sorted_[i].shorter = shorter;
    }
  }
  /// Calls between(part) for the text before, between and after the tokens and found(id) for each token, in the order
  /// of the text.
  template <typename Between, typename Found>
  void split(std::string_view text, Between&& between, Found&& found) const {
    std::size_t begin = 0;
    for (std::size_t at = 0; at < text.size();) {
      const AddedToken* token = first_of(text.substr(at));
      if (token == nullptr) {
        ++at;
        continue;
      }
      between(text.substr(begin, at - begin));
      found(token->id);
      begin = at += token->searched.size();
    }
    between(text.substr(begin));
  }

 private:
  struct Entry {
    const AddedToken* token;
    const Entry* shorter;
  };

  /// Returns the longest token that `rest` begins with; null if there is none. It is the last token that sorts at or
  /// before `rest`, or a prefix of that token.
  const AddedToken* first_of(std::string_view rest) const {
    if (!begins_[static_cast<unsigned char>(rest[0])]) return nullptr;
    const auto before = [](std::string_view text, const Entry& entry) { return text < entry.token->searched; };
    const auto after = std::upper_bound(sorted_.begin(), sorted_.end(), rest, before);
    const Entry* entry = after == sorted_.begin() ? nullptr : &*std::prev(after);
    while (entry != nullptr && !rest.starts_with(entry->token->searched)) entry = entry->shorter;
    return entry == nullptr ? nullptr : entry->token;
  }

  std::vector<Entry> sorted_;
  std::array<bool, 256> begins_{};
};

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
  ids.clear();
  std::vector<bool> from_text(names.size(), false);  // whether an id is a single byte or the result of a merge
  for (std::size_t id = 0; id < names.size(); ++id) {
    if (names[id].empty()) continue;
    const auto from_bytes = kind == Kind::bpe && !byte_fallback ? text::from_byte_characters(names[id]) : std::nullopt;
    bytes[id] = from_bytes ? *from_bytes : decoded(id, names[id]);
    if (!ids.emplace(byte_fallback ? names[id] : bytes[id], static_cast<std::int64_t>(id)).second) return false;
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
  return true;
}

std::vector<std::int64_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  if (kind() != Kind::bpe) text::check_utf8("encode", text);
  std::vector<std::int64_t> ids;
  if (add_special) ids = state_->before;
  Encoder encoder(*state_, ids);
  // the parts that a normalizer changed; a deque does not move them while the encoder refers to their pieces
  std::deque<std::string> changed;
  const auto keep = [&](std::string part) -> std::string_view { return changed.emplace_back(std::move(part)); };
  const auto encode_part = [&](std::string_view part, bool first) {
    if (part.empty()) return;
    if (!state_->space.empty()) part = keep(text::replaced(part, " ", state_->space));
    const std::string_view space = state_->space.empty() ? " " : std::string_view(state_->space);
    const bool prefixed = state_->prefix == Prefix::always || (state_->prefix == Prefix::first && first);
    if (prefixed && !part.starts_with(space)) part = keep(std::string(space).append(part));
    encoder.run(part);
  };
  const AddedTokens unchanged(state_->added, false), normalized(state_->added, true);
  const auto found = [&](std::int64_t id) { ids.push_back(id); };
  const auto normalize = [&](std::string_view part) {
    const std::string_view whole = state_->normalizer.empty() ? part : keep(text::changed(state_->normalizer, part));
    normalized.split(
        whole,
        [&](std::string_view piece) { encode_part(piece, part.data() == text.data() && piece.data() == whole.data()); },
        found);
  };
  unchanged.split(text, normalize, found);
  if (add_special) ids.insert(ids.end(), state_->after.begin(), state_->after.end());
  return ids;
}

const std::string& Tokenizer::bytes(std::int64_t id) const {
  if (!state_->has(id)) no_such_id(id, size());
  return state_->bytes[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(const std::vector<std::int64_t>& ids, bool skip_special) const {
  std::string text;
  for (const std::int64_t id : ids) {
    if (id < 0) no_such_id(id, size());
    if (state_->has(id) && !(skip_special && state_->special[static_cast<std::size_t>(id)])) text += bytes(id);
  }
  if (state_->strip_space && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::optional<std::int64_t> Tokenizer::find(std::string_view bytes) const {
  for (const AddedToken& token : state_->added)
    if (token.content == bytes) return token.id;
  const bool spelled = !state_->decoded_space.empty();
  if (const auto found =
          state_->ids.find(spelled ? text::replaced(bytes, " ", state_->decoded_space) : std::string(bytes));
      found != state_->ids.end())
    return found->second;
  const bool lone =
      state_->byte_fallback && bytes.size() == 1 && state_->byte_ids[static_cast<unsigned char>(bytes[0])] >= 0;
  return lone ? std::optional(state_->byte_ids[static_cast<unsigned char>(bytes[0])]) : std::nullopt;
}

}  // namespace attn
