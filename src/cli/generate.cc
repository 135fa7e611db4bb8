// src/cli/generate.cc: implements attn generate: continues prompts with a model from a folder, or answers them with an
// encoder-decoder.
#include "cli/memory.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/translate.h"
#include "cli/verbs.h"

#include <attn/error.h>
#include <attn/generate.h>

#include "explain/json_values.h"
#include "model/generate_internal.h"

#include "runtime/format.h"
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>

namespace attn::cli {
namespace {

struct GenerateArguments {
  ModelOptions model;
  TranslationOptions translation;
  std::string prompt = "\n", prompts;
  std::vector<std::string> stop;
  std::int64_t samples = 1;
  bool stream = false, json = false, log_probabilities = false;
  Option prompt_given, prompts_given;
};

/// Returns the lines of a file; the last line may lack its line end.
std::vector<std::string> lines_of(const std::string& path) {
  const std::string text = without_mark(read_file(path)), name = path == "-" ? "stdin" : path;
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    if (lines.back().empty())
      throw ValueError(runtime::format("{}: line {} is empty; each line is a prompt", name, lines.size()));
    at = end + 1;
  }
  if (lines.empty()) throw ValueError(runtime::format("{} holds no line; each line is a prompt", name));
  return lines;
}

/// Encodes the prompts. An error names the line of the --prompts file. Without --prompt and --prompts it says that a
/// prompt is missing.
std::vector<std::vector<std::int64_t>> encoded(const Tokenizer& tokenizer, const std::vector<std::string>& prompts,
                                               const GenerateArguments& arguments) {
  std::vector<std::vector<std::int64_t>> ids;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    try {
      ids.push_back(tokenizer.encode(prompts[i], /*add_special=*/true));
    } catch (const ValueError& error) {
      if (arguments.prompt_given.given()) throw;
      if (!arguments.prompts_given.given())
        throw UsageError{"--prompt is missing: the line's end that stands for it is no token of this model"};
      throw ValueError(runtime::format("{}: line {}: {}", arguments.prompts == "-" ? "stdin" : arguments.prompts, i + 1,
                                       error.what()));
    }
  }
  return ids;
}

const char* name_of(Finish finish) {
  constexpr const char* names[] = {"length", "end", "stop", "stopped"};
  return names[static_cast<int>(finish)];
}

std::string as_json(const std::vector<std::string>& prompts, const std::vector<GeneratedText>& texts,
                    const GenerateArguments& arguments, double seconds) {
  std::string result = "{\n  \"attn_generate\": 1,\n  \"texts\": [";
  std::int64_t tokens = 0, guessed = 0, right = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const GeneratedText& text = texts[i];
    result +=
        runtime::format("{}\n    {{\"prompt\": {}, \"text\": {}, \"finish\": \"{}\", \"tokens\": [{}]", i ? "," : "",
                        explain_detail::json_string(prompts[i / static_cast<std::size_t>(arguments.samples)]),
                        explain_detail::json_string(text.text), name_of(text.finish), runtime::join(text.tokens, ", "));
    if (arguments.log_probabilities) {
      std::string numbers;
      for (const double x : text.log_probabilities)
        numbers += (numbers.empty() ? "" : ", ") + explain_detail::json_number(x, Dtype::f64);
      result += ", \"log_probabilities\": [" + numbers + "]";
    }
    result += "}";
    tokens += std::ssize(text.tokens);
    guessed += text.guessed;
    right += text.guessed_right;
  }
  result += "\n  ],\n";
  if (!arguments.model.draft.empty())
    result += runtime::format("  \"draft\": {{\"guessed\": {}, \"right\": {}, \"acceptance\": {}}},\n", guessed, right,
                              explain_detail::json_number(
                                  guessed ? static_cast<double>(right) / static_cast<double>(guessed) : 0, Dtype::f64));
  return result + runtime::format("  \"seconds\": {:.3f},\n  \"tokens_per_second\": {:.1f}\n}}\n", seconds,
                                  seconds > 0 ? static_cast<double>(tokens) / seconds : 0);
}

void run(const GenerateArguments& arguments) {
  check_options(arguments.model);
  if (arguments.prompt_given.given() && arguments.prompts_given.given())
    throw UsageError{"--prompt and --prompts do not go together"};
  const std::vector<std::string> prompts =
      arguments.prompts_given.given() ? lines_of(arguments.prompts) : std::vector{arguments.prompt};
  if (is_encoder_decoder(arguments.model.folder))
    return run_translation(arguments.model, arguments.translation,
                           {.texts = prompts, .samples = arguments.samples, .json = arguments.json});
  check_no_translation(arguments.translation);
  const bool one = prompts.size() == 1 && arguments.samples == 1;
  if (arguments.stream && !one) throw UsageError{"--stream is for one text"};
  if (arguments.stream && arguments.json) throw UsageError{"--stream and --json do not go together"};
  if (arguments.log_probabilities && !arguments.json) throw UsageError{"--log-probabilities needs --json"};

  keep_freed_memory();
  const SpeakingModel loaded = load_model(arguments.model);
  const std::vector<std::vector<std::int64_t>> ids = encoded(loaded.tokenizer, prompts, arguments);
  GenerateTextOptions options{.tokens = generate_options(arguments.model, loaded), .stop = arguments.stop};
  options.tokens.samples = arguments.samples;
  options.tokens.log_probabilities = arguments.log_probabilities;
  std::optional<ModelCache> cache;
  const std::int64_t count = std::ssize(prompts);  // generate says if there are too many samples
  if (arguments.samples > 0 && count > 0 && arguments.samples <= ModelCacheOptions::most_sequences / count) {
    ModelCacheOptions cache_of = cache_options(arguments.model, loaded.model);
    cache_of.sequences = count * arguments.samples;
    if (arguments.samples > 1) cache_of.page_rows = 64;  // samples share the pages of their prompt
    cache.emplace(loaded.model.config, cache_of);
    options.tokens.model_cache = &*cache;
  }
  const bool stream = arguments.stream || (one && !arguments.json && isatty(STDOUT_FILENO));
  if (stream) {
    GenerateTextOptions nothing = options;  // generates no tokens: errors are reported before the prompt is printed
    nothing.tokens.tokens = std::min<std::int64_t>(options.tokens.tokens, 0);
    generate_text_of_ids(loaded.model, loaded.tokenizer, ids, nothing);
    print(prompts[0]);
    options.on_text = [](std::size_t, std::string_view piece) {
      print(piece);
      return true;
    };
  }
  const auto start = std::chrono::steady_clock::now();
  const std::vector<GeneratedText> texts = generate_text_of_ids(loaded.model, loaded.tokenizer, ids, options);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  if (arguments.json) return print(as_json(prompts, texts, arguments, spent.count()));
  if (stream) return print("\n");
  std::string shown;
  for (std::size_t i = 0; i < texts.size(); ++i)
    shown += (i ? "---\n" : "") + prompts[i / static_cast<std::size_t>(arguments.samples)] + texts[i].text + "\n";
  print(shown);
}

Run add_generate_options(Parser parser) {
  auto arguments = std::make_shared<GenerateArguments>();
  GenerateArguments& a = *arguments;
  add_model_options(parser, a.model, {.tokens = 200, .temperature = "1", .min_p = "0"});
  a.prompt_given =
      parser.option("--prompt", a.prompt, "The text to go on with; a line's end without it").type_name("TEXT");
  a.prompts_given = parser.option("--prompts", a.prompts, "A prompt a line, all at once; - is stdin").type_name("FILE");
  parser.option("--samples", a.samples, "Texts of each prompt (1), as of seed, seed + 1, ...")
      .type_name("N")
      .check(whole_number);
  parser.option("--stop", a.stop, "The text ends before this one; may be given more than once")
      .type_name("TEXT")
      .one_value();
  add_translation_options(parser, a.translation);
  parser.flag("--stream", a.stream, "Each piece as soon as it is there, as on a terminal");
  parser.flag("--json", a.json, "Texts, tokens, why each ended, tokens a second, as JSON");
  parser.flag("--log-probabilities", a.log_probabilities, "In the JSON, log p of each token, as in training");
  a.translation.all = parser.options();
  parser.footer(
      "What is printed depends neither on the other prompts, nor on a draft, nor on the number of threads.\n"
      "\nExample\n  attn generate model --prompt \"The licenses for\" --tokens 100 --temperature 0.8 --top-k 40\n"
      "  attn generate opus-mt-en-de --prompts lines.txt --beams 4");
  return [arguments](const std::vector<std::string>& rest) {
    if (arguments->model.folder.empty() && rest.size() == 1) arguments->model.folder = rest[0];
    else no_more(rest);
    run(*arguments);
  };
}

}  // namespace

const Verb generate_verb{"generate",
                         "A language model goes on with a text; an encoder-decoder answers or translates it",
                         add_generate_options};

}  // namespace attn::cli
