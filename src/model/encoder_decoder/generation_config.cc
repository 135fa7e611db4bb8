// src/model/encoder_decoder/generation_config.cc: reads the settings of generation from a folder's files.
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

/// Sampling is what do_sample says; a temperature without it counts for nothing.
SampleOptions sample_in(const JsonFields& fields) {
  SampleOptions sample{.temperature = 0, .repetition_penalty = fields.number("repetition_penalty", 1)};
  if (!fields.boolean("do_sample", false)) return sample;
  sample.temperature = fields.number("temperature", 1);
  sample.top_k = fields.integer("top_k", 50);
  sample.top_p = fields.number("top_p", 1);
  sample.min_p = fields.number("min_p", 0);
  return sample;
}

/// Fills in what a config.json without generation_config.json leaves to the class of the model.
void fill_in_defaults(EncoderDecoderConfig::Family family, const JsonFields& fields, TranslateOptions& options) {
  using Family = EncoderDecoderConfig::Family;
  const bool t5 = family == Family::t5, pegasus = family == Family::pegasus, marian = family == Family::marian;
  const std::int64_t end = t5 || pegasus ? 1 : marian ? 0 : 2;
  if (!fields.has("eos_token_id")) options.end_tokens = {end};
  if (!fields.has("forced_eos_token_id") && !t5 && family != Family::m2m_100) options.forced_end = {end};
  if (!options.start && family != Family::mbart) options.start = t5 || pegasus ? 0 : marian ? 58100 : 2;
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

}  // namespace attn
