// src/model/encoder_decoder/generation_config.cc: reads the settings of generation from a folder's files, and writes
// them.
#include "model/encoder_decoder/generation_config.h"

#include <attn/translation.h>

#include "io/is_file.h"
#include "model/json_fields.h"
#include "model/weights_files.h"

#include "runtime/format.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace attn {
namespace {

constexpr const char* folder_name = "Translator::load";

std::optional<std::int64_t> optional_id(const JsonFields& fields, const char* field) {
  const std::vector<std::int64_t> ids = fields.ids(field);
  if (ids.size() > 1) fields.refuse(field, "it must be one id");
  return ids.empty() ? std::nullopt : std::optional(ids[0]);
}

std::vector<std::vector<std::int64_t>> bad_words_in(const JsonFields& fields) {
  const nlohmann::json& given = fields.at("bad_words_ids");
  std::vector<std::vector<std::int64_t>> words;
  if (given.is_null()) return words;
  const char* needed = "it must be a list of lists of ids";
  if (!given.is_array()) fields.refuse("bad_words_ids", needed);
  for (const nlohmann::json& word : given) {
    if (!word.is_array()) fields.refuse("bad_words_ids", needed);
    auto& ids = words.emplace_back();
    for (const nlohmann::json& id : word) {
      if (!id.is_number_integer()) fields.refuse("bad_words_ids", needed);
      ids.push_back(id.get<std::int64_t>());
    }
  }
  return words;
}

EarlyStopping early_stopping_in(const JsonFields& fields) {
  const nlohmann::json& given = fields.at("early_stopping");
  if (given.is_null() || given == false) return EarlyStopping::no;
  if (given == true) return EarlyStopping::yes;
  if (given != "never") fields.refuse("early_stopping", "it must be true, false or \"never\"");
  return EarlyStopping::never;
}

/// do_sample decides whether tokens are sampled; without it the temperature is ignored.
SampleOptions sample_in(const JsonFields& fields) {
  SampleOptions sample{.temperature = 0, .repetition_penalty = fields.number("repetition_penalty", 1)};
  if (!fields.boolean("do_sample", false)) return sample;
  sample.temperature = fields.number("temperature", 1);
  sample.top_k = fields.integer("top_k", 50);
  sample.top_p = fields.number("top_p", 1);
  sample.min_p = fields.number("min_p", 0);
  return sample;
}

using PairFamily = EncoderDecoderConfig::Family;

std::int64_t end_of_family(PairFamily family) {
  return family == PairFamily::t5 || family == PairFamily::pegasus ? 1 : family == PairFamily::marian ? 0 : 2;
}
bool forces_end(PairFamily family) { return family != PairFamily::t5 && family != PairFamily::m2m_100; }

/// Fills in what a config.json without generation_config.json leaves to the class of the model.
void fill_in_defaults(PairFamily family, const JsonFields& fields, TranslateOptions& options) {
  const bool padding = family == PairFamily::t5 || family == PairFamily::pegasus;
  if (!fields.has("eos_token_id")) options.end_tokens = {end_of_family(family)};
  if (!fields.has("forced_eos_token_id") && forces_end(family)) options.forced_end = {end_of_family(family)};
  if (!options.start && family != PairFamily::mbart)
    options.start = padding ? 0 : family == PairFamily::marian ? 58100 : 2;
}

nlohmann::ordered_json ids_of_family(const EncoderDecoderConfig& config) {
  const PairFamily family = config.family;
  const std::int64_t end = end_of_family(family), padding = config.padding_id;
  nlohmann::ordered_json json{{"pad_token_id", padding}};
  const auto add = [&](const char* field, std::int64_t id) {
    if (id < config.decoder_vocab_size) json[field] = id;
  };
  add("eos_token_id", end);
  if (forces_end(family)) add("forced_eos_token_id", end);
  // mBART's texts begin with their language
  if (family != PairFamily::mbart)
    add("decoder_start_token_id", family == PairFamily::bart || family == PairFamily::m2m_100 ? 2 : padding);
  return json;
}

}  // namespace

TranslateOptions TranslateOptions::from_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path generation = fs::path(folder) / "generation_config.json", config = fs::path(folder) / "config.json";
  const bool own = io::is_file(generation);
  const std::string path = (own ? generation : config).string();
  const JsonFields fields(read_text(folder_name, path), path);
  for (const char* field : {"encoder_no_repeat_ngram_size", "num_beam_groups"})
    if (fields.integer(field, 0) > 1) fields.refuse(field, "this is not supported");
  TranslateOptions options;
  options.tokens =
      fields.at("max_new_tokens").is_null() ? fields.integer("max_length", 21) - 1 : fields.integer("max_new_tokens");
  options.min_tokens = std::max(fields.integer("min_length", 0) - 1, fields.integer("min_new_tokens", 0));
  options.min_tokens = std::max<std::int64_t>(options.min_tokens, 0);
  options.beams = fields.integer("num_beams", 1);
  options.returned = fields.integer("num_return_sequences", 1);
  options.length_penalty = fields.number("length_penalty", 1);
  options.early_stopping = early_stopping_in(fields);
  options.sample = sample_in(fields);
  options.no_repeat_ngram = fields.integer("no_repeat_ngram_size", 0);
  options.bad_words = bad_words_in(fields);
  options.suppressed = fields.ids("suppress_tokens");
  options.begin_suppressed = fields.ids("begin_suppress_tokens");
  options.forced_begin = optional_id(fields, "forced_bos_token_id");
  options.forced_end = fields.ids("forced_eos_token_id");
  options.renormalize = fields.boolean("renormalize_logits", false);
  options.start = optional_id(fields, "decoder_start_token_id");
  options.end_tokens = fields.ids("eos_token_id");
  if (own) {
    if (!options.start) options.start = optional_id(fields, "bos_token_id");
  } else {
    fill_in_defaults(EncoderDecoderConfig::from_json(read_text(folder_name, path), path).family, fields, options);
    if (!options.start) options.start = optional_id(fields, "bos_token_id");
  }
  if (options.beams > 1) options.sample.temperature = 0;
  return options;
}

std::string default_generation_config(const EncoderDecoderConfig& config) {
  return ids_of_family(config).dump(2) + "\n";
}

std::string generation_config_of(const char* function, const std::filesystem::path& folder,
                                 const EncoderDecoderConfig& config) {
  if (const auto own = folder / "generation_config.json"; io::is_file(own)) {
    std::string text = read_text(function, own.string());
    try {
      JsonFields(text, own.string());
      return text;
    } catch (const FormatError&) {}  // generating with the folder reports the error
  }
  const std::string path = (folder / "config.json").string();
  const JsonFields fields(read_text(function, path), path);
  nlohmann::ordered_json json = ids_of_family(config);
  for (const char* field : {"decoder_start_token_id",
                            "bos_token_id",
                            "eos_token_id",
                            "forced_bos_token_id",
                            "forced_eos_token_id",
                            "max_length",
                            "max_new_tokens",
                            "min_length",
                            "min_new_tokens",
                            "num_beams",
                            "num_return_sequences",
                            "length_penalty",
                            "early_stopping",
                            "do_sample",
                            "temperature",
                            "top_k",
                            "top_p",
                            "min_p",
                            "repetition_penalty",
                            "no_repeat_ngram_size",
                            "bad_words_ids",
                            "suppress_tokens",
                            "begin_suppress_tokens",
                            "renormalize_logits"})
    if (fields.has(field)) json[field] = fields.at(field);
  return json.dump(2) + "\n";
}

}  // namespace attn
