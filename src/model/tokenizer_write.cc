// src/model/tokenizer_write.cc: writes a tokenizer as tokenizer.json.
#include <attn/error.h>
#include <attn/tokenizer.h>

#include "io/source.h"
#include "io/write.h"
#include "model/tokenizer_state.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <span>

namespace attn {
namespace {

using State = Tokenizer::State;
using Ordered = nlohmann::ordered_json;  // keeps the order of insertion, so vocabularies are written by id

/// Returns null for no step, the step itself for one step, else a Sequence of the steps.
Ordered sequence_of(const char* name, Ordered steps) {
  if (steps.empty()) return nullptr;
  return steps.size() == 1 ? steps[0] : Ordered{{"type", "Sequence"}, {name, std::move(steps)}};
}

Ordered replace(const std::string& from, const std::string& to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

Ordered normalizer(const State& state) {
  Ordered steps = Ordered::array();
  for (const text::Change& change : state.normalizer) switch (change.kind) {
      case text::Change::Kind::nfc: steps.push_back({{"type", "NFC"}}); break;
      case text::Change::Kind::prepend: steps.push_back({{"type", "Prepend"}, {"prepend", change.to}}); break;
      case text::Change::Kind::replace: steps.push_back(replace(change.from, change.to)); break;
    }
  return sequence_of("normalizers", std::move(steps));
}

Ordered decoder(const State& state) {
  if (state.kind != Tokenizer::Kind::bpe) return {{"type", "Fuse"}};
  if (!state.byte_fallback)
    return {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  Ordered steps = Ordered::array();
  if (!state.decoded_space.empty()) steps.push_back(replace(state.decoded_space, " "));
  steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  if (state.strip_space) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return sequence_of("decoders", std::move(steps));
}

Ordered pre_tokenizer_of_characters(const State& state) {
  if (!state.space.empty())
    return {{"type", "Metaspace"},
            {"replacement", state.space},
            {"prepend_scheme", text::prefixes[static_cast<int>(state.prefix)]},
            {"split", state.cut == text::Cut::before}};
  if (state.cut == text::Cut::whole) return nullptr;
  const char* behavior = state.cut == text::Cut::before ? "MergedWithNext" : "MergedWithPrevious";
  return {{"type", "Split"}, {"pattern", {{"String", state.separator}}}, {"behavior", behavior}, {"invert", false}};
}

Ordered pre_tokenizer(const State& state) {
  if (state.byte_fallback) return pre_tokenizer_of_characters(state);
  const bool split = state.kind != Tokenizer::Kind::bpe || state.cut != text::Cut::gpt2;
  const Ordered bytes{{"type", "ByteLevel"},
                      {"add_prefix_space", state.prefix == Prefix::always},
                      {"trim_offsets", true},
                      {"use_regex", !split}};
  if (!split) return bytes;
  Ordered steps = Ordered::array();
  for (const std::string_view pattern : text::patterns_of(state.cut))
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  if (state.kind == Tokenizer::Kind::bpe) steps.push_back(bytes);
  return sequence_of("pretokenizers", std::move(steps));
}

Ordered model(const State& state) {
  if (state.encoder != nullptr) return state.encoder->model();
  Ordered vocab = Ordered::object();
  auto& entries = vocab.get_ref<Ordered::object_t&>();
  std::vector<bool> only_added(state.names.size(), false);
  for (const AddedToken& token : state.added) only_added[static_cast<std::size_t>(token.id)] = !token.in_vocabulary;
  for (std::size_t id = 0; id < state.names.size(); ++id)
    if (!state.names[id].empty() && !only_added[id]) entries.Container::emplace_back(state.names[id], id);
  if (state.kind != Tokenizer::Kind::bpe)
    return {{"type", "WordLevel"}, {"vocab", std::move(vocab)}, {"unk_token", unknown_word}};
  Ordered merges = Ordered::array();
  for (const text::Merge& m : state.bpe.merges())
    merges.push_back({state.names[static_cast<std::size_t>(m.left)], state.names[static_cast<std::size_t>(m.right)]});
  const Ordered unknown = state.unknown.empty() ? Ordered() : Ordered(state.unknown);
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", unknown},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", state.fuse_unknown},
          {"byte_fallback", state.byte_fallback},
          {"ignore_merges", state.whole_first},
          {"vocab", std::move(vocab)},
          {"merges", std::move(merges)}};
}

}  // namespace

std::string Tokenizer::to_json() const {
  Ordered added = Ordered::array();
  for (const AddedToken& t : state_->added)
    added.push_back({{"id", t.id},
                     {"content", t.content},
                     {"single_word", t.single_word},
                     {"lstrip", t.lstrip},
                     {"rstrip", t.rstrip},
                     {"normalized", t.normalized},
                     {"special", t.special}});
  const bool listed = state_->encoder != nullptr;  // its steps are those of the file
  const Ordered steps = listed ? state_->encoder->steps() : Ordered();
  return Ordered{{"version", "1.0"},
                 {"truncation", Ordered::parse(state_->truncation)},
                 {"padding", Ordered::parse(state_->padding)},
                 {"added_tokens", added},
                 {"normalizer", listed ? steps["normalizer"] : normalizer(*state_)},
                 {"pre_tokenizer", listed ? steps["pre_tokenizer"] : pre_tokenizer(*state_)},
                 {"post_processor", Ordered::parse(state_->post_processor)},
                 {"decoder", listed ? steps["decoder"] : decoder(*state_)},
                 {"model", model(*state_)}}
             .dump(1) +
         "\n";
}

void Tokenizer::save(const std::string& folder) const {
  const std::string text = to_json();
  io::check_path("Tokenizer::save", folder);
  const std::filesystem::path path(folder);
  if (std::error_code failure; std::filesystem::create_directories(path, failure), failure)
    throw IoError("Tokenizer::save: " + folder + ": " + failure.message());
  io::write_whole("Tokenizer::save", (path / tokenizer_file).string(), {std::as_bytes(std::span(text))});
  // Without this file, transformers would build a tokenizer of its own from the vocabulary, chosen by the model_type in
  // config.json.
  Ordered fields{{"tokenizer_class", "PreTrainedTokenizerFast"}};
  if (max_length() != 0) fields["model_max_length"] = max_length();
  // those of a tokenizer that train_pair_tokenizer made
  if (state_->encoder == nullptr && find("</s>") && find("<pad>") == size() - 1)
    fields["eos_token"] = "</s>", fields["pad_token"] = "<pad>";
  const std::string config = fields.dump(2) + "\n";
  if (std::error_code unknown; !std::filesystem::exists(path / tokenizer_config_file, unknown))
    io::write_whole("Tokenizer::save", (path / tokenizer_config_file).string(), {std::as_bytes(std::span(config))});
}

}  // namespace attn
