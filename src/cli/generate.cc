// src/cli/generate.cc: implements attn generate: continues prompts with a model from a folder.
#include "cli/memory.h"
#include "cli/output.h"
#include "cli/verbs.h"

#include <attn/error.h>
#include <attn/generate.h>

#include "explain/json_values.h"
#include "model/generate_internal.h"

#include "runtime/format.h"
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

namespace attn::cli {
namespace {

struct Arguments {
  std::string folder, prompt = "\n", prompts, dtype;
  std::vector<std::string> stop;
  std::string temperature = "1", top_p = "1", repetition_penalty = "1";
  GenerateTextOptions options{.tokens = {.tokens = 200}};
  bool stream = false, json = false;
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
                                               const Arguments& arguments) {
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

std::string as_json(const std::vector<std::string>& prompts, const std::vector<GeneratedText>& texts) {
  std::string result = "{\n  \"attn_generate\": 1,\n  \"texts\": [";
  for (std::size_t i = 0; i < texts.size(); ++i)
    result +=
        runtime::format("{}\n    {{\"prompt\": {}, \"text\": {}, \"finish\": \"{}\", \"tokens\": [{}]}}", i ? "," : "",
                        explain_detail::json_string(prompts[i]), explain_detail::json_string(texts[i].text),
                        name_of(texts[i].finish), runtime::join(texts[i].tokens, ", "));
  return result + "\n  ]\n}\n";
}

void run(const Arguments& arguments) {
  if (arguments.folder.empty())
    throw UsageError{
        "a folder is missing: of a model that attn train wrote, or of Hugging Face's GPT-2, Llama, Mistral or Qwen"};
  if (arguments.prompt_given.given() && arguments.prompts_given.given())
    throw UsageError{"--prompt and --prompts do not go together"};
  const std::vector<std::string> prompts =
      arguments.prompts_given.given() ? lines_of(arguments.prompts) : std::vector{arguments.prompt};
  if (arguments.stream && prompts.size() > 1) throw UsageError{"--stream is for one prompt"};
  if (arguments.stream && arguments.json) throw UsageError{"--stream and --json do not go together"};
  GenerateTextOptions options = arguments.options;
  // strtod gives infinity or 0 for numbers outside the range of double
  const auto number_of = [](const std::string& text) { return std::strtod(text.c_str(), nullptr); };
  options.tokens.sample.temperature = number_of(arguments.temperature);
  options.tokens.sample.top_p = number_of(arguments.top_p);
  options.tokens.sample.repetition_penalty = number_of(arguments.repetition_penalty);
  options.stop = arguments.stop;
  std::optional<Dtype> dtype;
  if (!arguments.dtype.empty())
    dtype = std::array{Dtype::f32, Dtype::f64, Dtype::bf16,
                       Dtype::f16}[choose("--dtype", arguments.dtype, {"f32", "f64", "bf16", "f16"})];

  keep_freed_memory();
  const Tokenizer tokenizer = Tokenizer::load(arguments.folder);
  const std::vector<std::vector<std::int64_t>> ids = encoded(tokenizer, prompts, arguments);
  const LanguageModel model = LanguageModel::load(arguments.folder, dtype);
  const bool stream = arguments.stream || (prompts.size() == 1 && !arguments.json && isatty(STDOUT_FILENO));
  if (stream) {
    GenerateTextOptions nothing = options;  // generates no tokens: errors are reported before the prompt is printed
    nothing.tokens.tokens = std::min<std::int64_t>(options.tokens.tokens, 0);
    generate_text_of_ids(model, tokenizer, ids, nothing);
    print(prompts[0]);
    options.on_text = [](std::size_t, std::string_view piece) {
      print(piece);
      return true;
    };
  }
  const std::vector<GeneratedText> texts = generate_text_of_ids(model, tokenizer, ids, options);
  if (arguments.json) return print(as_json(prompts, texts));
  if (stream) return print("\n");
  std::string shown;
  for (std::size_t i = 0; i < texts.size(); ++i) shown += (i ? "---\n" : "") + prompts[i] + texts[i].text + "\n";
  print(shown);
}

}  // namespace

Verb add_generate(Parser app) {
  Parser parser = app.add_verb("generate", "A language model goes on with a text");
  auto arguments = std::make_shared<Arguments>();
  Arguments& a = *arguments;
  parser
      .option("FOLDER", a.folder,
              "A GGUF file, or config.json, model.safetensors, tokenizer.json: of attn train, or Hugging Face's "
              "GPT-2, Llama, Mistral or Qwen")
      .type_name("");
  a.prompt_given =
      parser.option("--prompt", a.prompt, "The text to go on with; a line's end without it").type_name("TEXT");
  a.prompts_given = parser.option("--prompts", a.prompts, "A prompt a line, all at once; - is stdin").type_name("FILE");
  parser.option("--tokens", a.options.tokens.tokens, "At most so many new tokens (200)")
      .type_name("N")
      .check(whole_number);
  parser.option("--temperature", a.temperature, "Logits are divided by it (1); 0: always the likeliest")
      .type_name("X")
      .check(number);
  parser.option("--top-k", a.options.tokens.sample.top_k, "Only the K likeliest (0: all)")
      .type_name("K")
      .check(whole_number);
  parser.option("--top-p", a.top_p, "Only the fewest that have this probability together (1)")
      .type_name("P")
      .check(number);
  parser.option("--repetition-penalty", a.repetition_penalty, "Above 1: what was said is less likely (1)")
      .type_name("X")
      .check(number);
  parser.option("--seed", a.options.tokens.seed, "Of the draws (0); the same seed, the same text")
      .type_name("N")
      .check(whole_number);
  parser.option("--stop", a.stop, "The text ends before this one; may be given more than once")
      .type_name("TEXT")
      .one_value();
  parser.option("--dtype", a.dtype, "Weights as f32, f64, bf16 or f16; as they are without it").type_name("NAME");
  parser.flag("--stream", a.stream, "Each piece as soon as it is there, as on a terminal");
  parser.flag("--json", a.json, "Texts, tokens and why each ended as JSON");
  parser.footer(
      "What is printed depends neither on the other prompts nor on the number of threads.\n"
      "\nExample\n  attn generate model --prompt \"The licenses for\" --tokens 100 --temperature 0.8 --top-k 40");
  return {parser, [arguments](const std::vector<std::string>& rest) {
            if (arguments->folder.empty() && rest.size() == 1) arguments->folder = rest[0];
            else no_more(rest);
            run(*arguments);
          }};
}

}  // namespace attn::cli
