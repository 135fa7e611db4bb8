// src/cli/translate.cc: answers or translates texts with an encoder-decoder.
#include "cli/translate.h"

#include "cli/memory.h"
#include "cli/output.h"
#include "cli/verbs.h"

#include <attn/error.h>

#include "explain/json_values.h"

#include "runtime/format.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace attn::cli {
namespace {

/// Texts that are computed together before they are printed.
constexpr std::size_t texts_at_once = 64;

bool is_given(const TranslationOptions& options, const char* name) {
  return std::any_of(options.all.begin(), options.all.end(),
                     [&](const Option& one) { return one.given() && one.name() == name; });
}

/// Changes the folder's settings by the options that are given.
TranslateOptions options_of(const ModelOptions& model, const TranslationOptions& given, std::int64_t samples,
                            const TranslateOptions& of_folder) {
  const auto number_of = [](const std::string& text) { return std::strtod(text.c_str(), nullptr); };
  TranslateOptions options = of_folder;
  if (is_given(given, "--tokens")) options.tokens = model.tokens;
  if (is_given(given, "--beams")) options.beams = given.beams;
  if (is_given(given, "--length-penalty")) options.length_penalty = number_of(given.length_penalty);
  if (is_given(given, "--temperature")) {
    options.sample.temperature = number_of(model.temperature);
    if (!is_given(given, "--beams") && options.sample.temperature > 0) options.beams = 1;
  }
  if (is_given(given, "--top-k")) options.sample.top_k = model.top_k;
  if (is_given(given, "--top-p")) options.sample.top_p = number_of(model.top_p);
  if (is_given(given, "--min-p")) options.sample.min_p = number_of(model.min_p);
  if (is_given(given, "--repetition-penalty")) options.sample.repetition_penalty = number_of(model.repetition_penalty);
  if (is_given(given, "--samples")) options.returned = samples;
  if (options.beams > 1 && !is_given(given, "--temperature")) options.sample.temperature = 0;
  options.seed = model.seed;
  return options;
}

std::string as_json(const std::string& prompt, const TranslatedText& text) {
  return runtime::format("\n    {{\"prompt\": {}, \"text\": {}, \"finish\": \"{}\", \"score\": {}, \"tokens\": [{}]}}",
                         explain_detail::json_string(prompt), explain_detail::json_string(text.text),
                         text.finish == Finish::end ? "end" : "length",
                         explain_detail::json_number(text.score, Dtype::f64), runtime::join(text.tokens, ", "));
}

}  // namespace

void add_translation_options(Parser& parser, TranslationOptions& o) {
  o.own = {parser.option("--beams", o.beams, "Of an encoder-decoder: beam search with N beams; as its files say")
               .type_name("N")
               .check(whole_number),
           parser.option("--length-penalty", o.length_penalty, "Scores are divided by length^X; above 0: longer texts")
               .type_name("X")
               .check(number),
           parser.option("--source-lang", o.source_language, "The texts' language: eng_Latn (NLLB), en_XX (mBART)")
               .type_name("NAME"),
           parser.option("--target-lang", o.target_language, "The language to translate into").type_name("NAME")};
}

void check_no_translation(const TranslationOptions& options) {
  for (const Option& one : options.own)
    if (one.given())
      throw UsageError{runtime::format("{} is for encoder-decoders, such as T5, BART, Marian or NLLB", one.name())};
}

void run_translation(const ModelOptions& model, const TranslationOptions& given, const TranslationTask& task) {
  for (const char* name :
       {"--draft", "--draft-tokens", "--cache", "--window", "--sinks", "--stream", "--stop", "--log-probabilities"})
    if (is_given(given, name))
      throw UsageError{runtime::format("{} is for language models, not for an encoder-decoder", name)};
  if (!is_given(given, "--prompt") && !is_given(given, "--prompts"))
    throw UsageError{"--prompt is missing: an encoder-decoder answers a text"};
  keep_freed_memory();
  Translator translator = Translator::load(model.folder, weights_dtype(model.dtype));
  translator.set_languages(given.source_language, given.target_language);
  const TranslateOptions options = options_of(model, given, task.samples, translator.defaults);
  const auto start = std::chrono::steady_clock::now();
  std::string json;
  std::int64_t tokens = 0;
  for (std::size_t begin = 0; begin < task.texts.size(); begin += texts_at_once) {
    const std::size_t end = std::min(begin + texts_at_once, task.texts.size());
    const std::vector<std::string> texts(task.texts.begin() + static_cast<std::ptrdiff_t>(begin),
                                         task.texts.begin() + static_cast<std::ptrdiff_t>(end));
    const auto said = translator.translate(texts, options);
    std::string shown;
    for (std::size_t i = 0; i < texts.size(); ++i)
      for (const TranslatedText& text : said[i]) {
        tokens += std::ssize(text.tokens);
        if (task.json) json += (json.empty() ? "" : ",") + as_json(texts[i], text);
        else shown += one_line(text.text) + "\n";
      }
    if (!task.json) print(shown);
  }
  if (!task.json) return;
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  print("{\n  \"attn_generate\": 1,\n  \"texts\": [" + json +
        runtime::format("\n  ],\n  \"seconds\": {:.3f},\n  \"tokens_per_second\": {:.1f}\n}}\n", spent.count(),
                        spent.count() > 0 ? static_cast<double>(tokens) / spent.count() : 0));
}

}  // namespace attn::cli
