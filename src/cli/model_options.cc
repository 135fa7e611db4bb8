// src/cli/model_options.cc: adds the options that attn generate and attn chat share, and loads what they name.
#include "cli/model_options.h"

#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

#include <attn/error.h>

#include "model/gguf/model.h"

#include "runtime/format.h"

#include <array>
#include <cstdlib>

namespace attn::cli {
namespace {

constexpr std::int64_t longest_ngram = 3;

KvStorage storage_of(const ModelOptions& given) {
  return choose("--cache", given.storage, {"same", "int8"}) == 1 ? KvStorage::int8 : KvStorage::same;
}

bool guesses_by_ngrams(const ModelOptions& given) { return given.draft == "ngram"; }

}  // namespace

Option add_weights_dtype(Parser& parser, std::string& name) {
  return parser.option("--dtype", name, "Weights as f32, f64, bf16 or f16; as they are without it").type_name("NAME");
}

std::optional<Dtype> weights_dtype(const std::string& name) {
  if (name.empty()) return std::nullopt;
  return std::array{Dtype::f32, Dtype::f64, Dtype::bf16,
                    Dtype::f16}[choose("--dtype", name, {"f32", "f64", "bf16", "f16"})];
}

void add_model_options(Parser& parser, ModelOptions& o, const ModelDefaults& defaults) {
  o.tokens = defaults.tokens;
  o.temperature = defaults.temperature;
  o.min_p = defaults.min_p;
  parser
      .option("FOLDER", o.folder,
              "A GGUF file, or config.json, model.safetensors, tokenizer.json: of attn train, or Hugging Face's "
              "GPT-2, Llama, Mistral, Qwen, Gemma, Phi or SmolLM")
      .type_name("");
  parser.option("--tokens", o.tokens, runtime::format("At most so many new tokens ({})", defaults.tokens))
      .type_name("N")
      .check(whole_number);
  parser
      .option("--temperature", o.temperature,
              runtime::format("Logits are divided by it ({}); 0: always the likeliest", defaults.temperature))
      .type_name("X")
      .check(number);
  parser.option("--top-k", o.top_k, "Only the K likeliest (0: all)").type_name("K").check(whole_number);
  parser.option("--top-p", o.top_p, "Only the fewest that have this probability together (1)")
      .type_name("P")
      .check(number);
  parser
      .option("--min-p", o.min_p,
              runtime::format("Only those at least P times as probable as the likeliest ({}); 0: all", defaults.min_p))
      .type_name("P")
      .check(number);
  parser.option("--repetition-penalty", o.repetition_penalty, "Above 1: what was said is less likely (1)")
      .type_name("X")
      .check(number);
  parser.option("--seed", o.seed, "Of the draws (0); the same seed, the same text").type_name("N").check(whole_number);
  parser
      .option("--draft", o.draft, "A smaller model with the same tokens, or ngram: it guesses, the text stays the same")
      .type_name("MODEL");
  o.draft_tokens_given = parser.option("--draft-tokens", o.draft_tokens, "At most so many guesses at a time (7)")
                             .type_name("N")
                             .check(whole_number);
  parser.option("--cache", o.storage, "Keys and values as same, or rounded to int8 (same)").type_name("NAME");
  parser
      .option("--window", o.window,
              "A token sees N tokens up to itself, and the sinks; memory of others is freed (0: all)")
      .type_name("N")
      .check(whole_number);
  o.sinks_given = parser.option("--sinks", o.sinks, "With --window: the first N tokens are always seen (4)")
                      .type_name("N")
                      .check(whole_number);
  o.language_given =
      parser.option("--lang", o.language, "en or zh (cn, zh-CN); without it LC_ALL, LC_MESSAGES or LANG says")
          .type_name("NAME");
  add_weights_dtype(parser, o.dtype);
}

void check_options(const ModelOptions& given) {
  if (given.folder.empty())
    throw UsageError{
        "a model is missing: a GGUF file, or a folder of attn train or of Hugging Face's GPT-2, Llama, Mistral, Qwen, "
        "Gemma, Phi or SmolLM"};
  if (given.draft_tokens_given.given() && given.draft.empty()) throw UsageError{"--draft-tokens needs --draft"};
  if (given.sinks_given.given() && given.window == 0) throw UsageError{"--sinks needs --window"};
  if (given.language_given.given() && !language_named(given.language)) choose("--lang", given.language, {"en", "zh"});
  storage_of(given);
  weights_dtype(given.dtype);
}

void check_architectures(const ModelOptions& given) {
  gguf::check_architecture(given.folder);
  if (!given.draft.empty() && !guesses_by_ngrams(given)) gguf::check_architecture(given.draft);
}

SpeakingModel load_model(const ModelOptions& given, const Ranks& ranks) {
  std::optional<Tokenizer> tokenizer;
  everywhere(ranks, [&] {
    check_architectures(given);
    tokenizer = Tokenizer::load(given.folder);
  });
  SpeakingModel loaded{.tokenizer = std::move(*tokenizer),
                       .model = LanguageModel::load(given.folder, weights_dtype(given.dtype), ranks),
                       .draft = std::nullopt};
  if (given.draft.empty() || guesses_by_ngrams(given)) return loaded;
  everywhere(ranks, [&] {
    check_draft_tokens(loaded.tokenizer, Tokenizer::load(given.draft), given.draft);
    loaded.draft.emplace(LanguageModel::load(given.draft, weights_dtype(given.dtype)));
  });
  return loaded;
}

GenerateOptions generate_options(const ModelOptions& given, const SpeakingModel& loaded) {
  // strtod gives infinity or 0 for numbers outside the range of double
  const auto number_of = [](const std::string& text) { return std::strtod(text.c_str(), nullptr); };
  return {.tokens = given.tokens,
          .sample = {.temperature = number_of(given.temperature),
                     .top_k = given.top_k,
                     .top_p = number_of(given.top_p),
                     .repetition_penalty = number_of(given.repetition_penalty),
                     .min_p = number_of(given.min_p)},
          .seed = given.seed,
          .draft = {.model = loaded.draft ? &*loaded.draft : nullptr,
                    .ngram = guesses_by_ngrams(given) ? longest_ngram : 0,
                    .tokens = given.draft_tokens}};
}

ModelCacheOptions cache_options(const ModelOptions& given, const LanguageModel& model) {
  return {.dtype = model.dtype(),
          .storage = storage_of(given),
          .window = given.window,
          .sinks = given.window > 0 ? given.sinks : 0};
}

}  // namespace attn::cli
