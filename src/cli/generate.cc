// src/cli/generate.cc: implements attn generate: continues prompts with a model from a folder, or answers them with an
// encoder-decoder.
#include "cli/memory.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/translate.h"
#include "cli/verbs.h"

#include <attn/error.h>
#include <attn/generate.h>

#include "explain/json_values.h"
#include "io/checksum.h"
#include "model/generate_internal.h"

#include "runtime/format.h"
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>

namespace attn::cli {
namespace {

struct GenerateArguments {
  ModelOptions model;
  TranslationOptions translation;
  std::string prompt = "\n", prompts, rank_cache = "auto";
  std::vector<std::string> stop;
  std::int64_t samples = 1;
  double rank_timeout = 600;
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

/// Returns how the ranks share the cache.
KvSharing sharing_of(const GenerateArguments& a) {
  return static_cast<KvSharing>(choose("--rank-cache", a.rank_cache, {"auto", "heads", "spans"}));
}

/// Throws for a wrong call. `translation`: the model is an encoder-decoder.
void check(const GenerateArguments& a, bool& translation) {
  check_options(a.model);
  if (!(a.rank_timeout >= 0))
    throw ValueError(runtime::format("generate: rank_timeout is {}; it must be 0 or more", a.rank_timeout));
  if (sharing_of(a) == KvSharing::spans && a.model.window > 0)
    throw UsageError{"--rank-cache spans and --window do not go together"};
  if (a.prompt_given.given() && a.prompts_given.given()) throw UsageError{"--prompt and --prompts do not go together"};
  translation = is_encoder_decoder(a.model.folder);
  if (translation) return one_process("generate with an encoder-decoder");
  check_no_translation(a.translation);
  if (a.stream && a.json) throw UsageError{"--stream and --json do not go together"};
  if (a.log_probabilities && !a.json) throw UsageError{"--log-probabilities needs --json"};
}

/// Returns the prompts that rank 0 reads; none of them holds a line's end.
std::vector<std::string> prompts_of_first(const GenerateArguments& arguments, const Ranks& ranks) {
  if (!arguments.prompts_given.given()) return {arguments.prompt};
  std::vector<std::string> prompts;
  at_first(ranks, [&] { prompts = lines_of(arguments.prompts); });
  if (ranks.size() == 1) return prompts;
  const std::string all = ranks.from_first(runtime::join(prompts, "\n"));
  prompts.clear();
  for (std::size_t at = 0; at <= all.size();) {
    const std::size_t end = std::min(all.find('\n', at), all.size());
    prompts.push_back(all.substr(at, end - at));
    at = end + 1;
  }
  return prompts;
}

/// Throws at every rank unless all have the same text.
void compare_digests(const char* what, const std::function<std::string()>& text, const Ranks& ranks) {
  if (ranks.size() == 1) return;
  std::string digest;
  everywhere(ranks, [&] {
    const std::string whole = text();
    digest = runtime::format("{:016x}", io::xxh64(std::as_bytes(std::span(whole))));
  });
  ranks.same(what, digest);
}

/// Throws at every rank unless all have the same options: they decide what the ranks do together from here on.
void compare_options(const GenerateArguments& a, const Ranks& ranks) {
  const auto text = [&] {
    const ModelOptions& m = a.model;
    const bool from_file = a.prompts_given.given();  // rank 0 reads the file, whatever its name at the others
    return runtime::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}\n{}\n{}\n{}\n{}\n{}", m.dtype, m.draft,
                           m.storage, m.temperature, m.top_p, m.min_p, m.repetition_penalty, m.top_k, m.tokens,
                           m.draft_tokens, m.window, m.sinks, m.seed, a.samples, a.log_probabilities, a.stream, a.json,
                           a.rank_cache, from_file, from_file ? "" : a.prompt, runtime::join(a.stop, "\n"));
  };
  compare_digests("generate: the digest of the options", text, ranks);
}

/// Prints a text at rank 0 as it grows. A failure there, or a closed pipe, ends the text at all ranks before the next
/// token.
class Stream {
 public:
  explicit Stream(const Ranks& ranks) : ranks_(ranks) {}
  void print(std::string_view piece) {
    if (ranks_.rank() != 0 || gone_ || failure_) return;
    try {
      cli::print(piece);
    } catch (const ReaderGone&) { gone_ = true; } catch (...) {
      failure_ = std::current_exception();
    }
  }
  void check() const {
    if (ranks_.any(gone_, failure_)) throw ReaderGone();
  }

 private:
  const Ranks& ranks_;
  bool gone_ = false;
  std::exception_ptr failure_;
};

void generate(const GenerateArguments& arguments, const Ranks& ranks) {
  bool translation = false;
  everywhere(ranks, [&] { check(arguments, translation); });
  compare_options(arguments, ranks);
  const std::vector<std::string> prompts = prompts_of_first(arguments, ranks);
  if (translation)
    return run_translation(arguments.model, arguments.translation,
                           {.texts = prompts, .samples = arguments.samples, .json = arguments.json});
  const bool one = prompts.size() == 1 && arguments.samples == 1;
  if (arguments.stream && !one) throw UsageError{"--stream is for one text"};

  const SpeakingModel loaded = load_model(arguments.model, ranks);
  compare_digests("generate: the digest of the tokenizer", [&] { return loaded.tokenizer.to_json(); }, ranks);
  std::vector<std::vector<std::int64_t>> ids;
  GenerateTextOptions options;
  std::optional<ModelCache> cache;
  const bool terminal = ranks.from_first(isatty(STDOUT_FILENO) ? "yes" : "no") == "yes",
             streams = arguments.stream || (one && !arguments.json && terminal);
  Stream stream(ranks);
  everywhere(ranks, [&] {
    ids = encoded(loaded.tokenizer, prompts, arguments);
    options = {.tokens = generate_options(arguments.model, loaded), .stop = arguments.stop};
    options.tokens.samples = arguments.samples;
    options.tokens.log_probabilities = arguments.log_probabilities;
    const std::int64_t count = std::ssize(prompts);  // generate says if there are too many samples
    if (arguments.samples > 0 && count > 0 && arguments.samples <= ModelCacheOptions::most_sequences / count) {
      ModelCacheOptions cache_of = cache_options(arguments.model, loaded.model);
      cache_of.sequences = count * arguments.samples;
      cache_of.sharing = sharing_of(arguments);
      if (arguments.samples > 1) cache_of.page_rows = 64;  // samples share the pages of their prompt
      cache.emplace(loaded.model, cache_of);
      options.tokens.model_cache = &*cache;
    }
    GenerateTextOptions nothing = options;  // generates no tokens: errors are reported before the prompt is printed
    nothing.tokens.tokens = std::min<std::int64_t>(options.tokens.tokens, 0);
    generate_text_of_ids(loaded.model, loaded.tokenizer, ids, nothing);
  });
  if (streams) {
    stream.print(prompts[0]);
    options.on_text = [&](std::size_t, std::string_view piece) {
      stream.print(piece);
      return true;
    };
    options.tokens.on_pass = [&] { stream.check(); };
  }
  const auto start = std::chrono::steady_clock::now();
  std::vector<GeneratedText> texts;
  try {
    texts = generate_text_of_ids(loaded.model, loaded.tokenizer, ids, options);
  } catch (const std::bad_alloc&) {  // others may have memory, and wait for what this rank computes
    if (ranks.size() == 1) throw;
    say(runtime::format("attn generate: rank {}: not enough memory\n", ranks.rank()));
    ranks.transport().abort(1);
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  if (streams) stream.print("\n"), stream.check();
  at_first(ranks, [&] {
    if (arguments.json) return print(as_json(prompts, texts, arguments, spent.count()));
    if (streams) return;
    std::string shown;
    for (std::size_t i = 0; i < texts.size(); ++i)
      shown += (i ? "---\n" : "") + prompts[i / static_cast<std::size_t>(arguments.samples)] + texts[i].text + "\n";
    print(shown);
  });
}

void run(const GenerateArguments& arguments) {
  keep_freed_memory();
  with_ranks("generate", [&](const Ranks& ranks) { generate(arguments, ranks); }, arguments.rank_timeout);
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
  parser
      .option("--rank-cache", a.rank_cache,
              "Ranks have heads of the cache, or spans of 1024 tokens; auto: by the numbers of ranks and key heads")
      .type_name("NAME");
  parser.option("--rank-timeout", a.rank_timeout, "Seconds without the other ranks that end one: 600; 0: none")
      .type_name("S")
      .check(number);
  a.translation.all = parser.options();
  parser.footer(
      "What is printed depends neither on the other prompts, nor on a draft, nor on the number of threads or ranks.\n"
      "mpirun -n 4 attn generate ... divides the weights and the cache among 4 ranks.\n"
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
                         add_generate_options, /*knows_ranks=*/true};

}  // namespace attn::cli
