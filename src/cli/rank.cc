// src/cli/rank.cc: implements attn rank: the lines of a file that are nearest to a query.
#include "cli/encoder_options.h"
#include "cli/memory.h"
#include "cli/output.h"
#include "cli/verbs.h"

#include <attn/error.h>
#include <attn/ops.h>

#include "explain/json_values.h"

#include "runtime/format.h"

#include <algorithm>
#include <limits>
#include <memory>

namespace attn::cli {
namespace {

struct RankArguments {
  EncoderOptions model;
  std::string query;
  std::int64_t top = 10;
  bool json = false;
};

struct Found {
  double score;
  std::int64_t line;
  std::string text;
  /// The higher score comes first, of equal ones the earlier line. NaN comes last.
  bool operator<(const Found& other) const {
    const auto rank = [](double x) { return x == x ? x : -std::numeric_limits<double>::infinity(); };
    return std::pair(-rank(score), line) < std::pair(-rank(other.score), other.line);
  }
};

/// Returns the first of the names that the model has a prompt for; else the default prompt's text.
std::string prompt_of(const TextEncoder& encoder, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (encoder.prompts.texts.contains(name)) return encoder.prompt(name);
  return encoder.prompt("");
}

Tensor unit(const Tensor& x) { return x / maximum(norm(x, 2, {-1}, /*keepdim=*/true), full({1}, 1e-12, x.dtype())); }

/// Returns compute(), whose one text is the query: an error of it names the query.
template <typename Compute>
Tensor of_query(const Compute& compute) {
  try {
    return compute();
  } catch (const ValueError& error) { throw ValueError(runtime::format("rank: the query: {}", reason_of(error))); }
}

/// Returns the function that scores texts, [n]: by the cosine of the vectors, or by a model of pairs.
std::function<Tensor(const std::vector<std::string>&)> scorer(const TextEncoder& encoder,
                                                              const RankArguments& arguments) {
  EmbedOptions options{.prompt = {}, .batch_tokens = arguments.model.batch};
  const std::string& query = arguments.query;
  const bool named = !arguments.model.prompt.empty();
  if (named) options.prompt = encoder.prompt(arguments.model.prompt);
  if (encoder.config.labels > 1)
    throw ValueError(runtime::format("rank: {} gives a pair {} scores; it must give one", arguments.model.folder,
                                     encoder.config.labels));
  if (encoder.config.labels == 1) {
    of_query([&] { return encoder.scores({{query, ""}}, options); });  // so that an error of the query names no line
    return [&encoder, options, query](const std::vector<std::string>& texts) {
      std::vector<std::pair<std::string, std::string>> pairs;
      for (const std::string& text : texts) pairs.emplace_back(query, text);
      return encoder.scores(pairs, options).select(1, 0);
    };
  }
  if (!named) options.prompt = prompt_of(encoder, {"query"});
  const Tensor vector = unit(of_query([&] { return encoder.embed({query}, options); }));
  if (!named) options.prompt = prompt_of(encoder, {"document", "passage", "corpus"});
  else options.prompt.clear();
  return [&encoder, options, vector](const std::vector<std::string>& texts) {
    return linear(unit(encoder.embed(texts, options)), vector).select(1, 0);
  };
}

void run(const RankArguments& arguments) {
  if (arguments.query.empty()) throw UsageError{"a query is missing, as in: attn rank MODEL \"a question\" lines.txt"};
  if (arguments.top < 1) throw UsageError{runtime::format("--top is {}; it must be at least 1", arguments.top)};
  keep_freed_memory();
  const TextEncoder encoder = load_encoder(arguments.model);
  const auto score = scorer(encoder, arguments);
  Lines lines(arguments.model.lines);
  std::vector<Found> best;  // a heap: the worst is in front
  for (std::vector<std::string> texts = next_lines(lines); !texts.empty(); texts = next_lines(lines)) {
    const std::int64_t first = lines.count() - std::ssize(texts) + 1;
    const Tensor scores = computed(lines, texts, score).to(Dtype::f64);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      best.push_back({scores.select(0, at).item(), first + at, std::move(texts[i])});
      std::push_heap(best.begin(), best.end());
      if (std::ssize(best) <= arguments.top) continue;
      std::pop_heap(best.begin(), best.end());
      best.pop_back();
    }
  }
  std::sort(best.begin(), best.end());
  std::string shown;
  if (arguments.json) {
    shown = runtime::format("{{\n  \"attn_rank\": 1,\n  \"query\": {},\n  \"of\": {},\n  \"lines\": [",
                            explain_detail::json_string(arguments.query), lines.count());
    for (std::size_t i = 0; i < best.size(); ++i)
      shown += runtime::format("{}\n    {{\"line\": {}, \"score\": {}, \"text\": {}}}", i ? "," : "", best[i].line,
                               explain_detail::json_number(best[i].score, Dtype::f32),
                               explain_detail::json_string(best[i].text));
    return print(shown + "\n  ]\n}\n");
  }
  for (const Found& one : best) shown += runtime::format("{:.4f}  {}: {}\n", one.score, one.line, one_line(one.text));
  print(shown);
}

Run add_rank_options(Parser parser) {
  auto arguments = std::make_shared<RankArguments>();
  RankArguments& a = *arguments;
  parser
      .option("MODEL", a.model.folder,
              "A folder of an encoder, or of a cross-encoder, which scores pairs; or a GGUF file")
      .type_name("");
  parser.option("QUERY", a.query, "The text that is searched for").type_name("");
  parser.option("LINES", a.model.lines, "A text a line; - is stdin").type_name("");
  parser.option("--top", a.top, "How many lines (10)").type_name("N").check(whole_number);
  add_encoder_options(parser, a.model,
                      "The model's prompt before the query; query, and document for lines, without it");
  parser.flag("--json", a.json, "Lines, scores and texts as JSON");
  parser.footer(
      "A score is the cosine of the vectors, or what a cross-encoder gives the pair. It depends on no other line.\n"
      "\nExample\n  attn rank all-MiniLM-L6-v2 \"how do I save a file\" lines.txt --top 5");
  return run_with(arguments, run);
}

}  // namespace

const Verb rank_verb{"rank", "The lines of a file that are nearest to a query", add_rank_options};

}  // namespace attn::cli
