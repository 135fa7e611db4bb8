// src/cli/perplexity.cc: implements attn perplexity: how well a language model predicts a text.
#include "cli/memory.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

#include <attn/autograd.h>
#include <attn/error.h>
#include <attn/ops.h>

#include "explain/json_values.h"
#include "model/generate_internal.h"
#include "model/gguf/model.h"
#include "model/tokenizer_state.h"

#include "runtime/format.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>

namespace attn::cli {
namespace {

using Ids = std::vector<std::int64_t>;

constexpr std::int64_t usual_window = 512;
constexpr std::int64_t most_logits = std::int64_t{1} << 23;  // of the rows whose logits are in memory together: 32 MiB

struct PerplexityArguments {
  std::string model, file, dtype;
  std::int64_t window = usual_window, skip = 0;
  bool json = false, log_probabilities = false;
  Option window_given, skip_given;
};

std::string name_of(const std::string& file) { return file == standard_stream ? "stdin" : file; }

/// Windows of equal length, side by side. The first `skip` tokens of each are read, those after them counted too. What
/// is left at the end of the text is not read.
struct Windows {
  std::int64_t tokens, skip, count;
};

Windows windows_of(const PerplexityArguments& arguments, std::int64_t tokens, std::int64_t context) {
  if (tokens < 2)
    throw ValueError(
        runtime::format("perplexity: {} has {}; 2 are needed", name_of(arguments.file), counted(tokens, "token")));
  const std::int64_t most = std::min(tokens, context);
  const std::int64_t window = arguments.window_given.given() ? arguments.window : std::min(usual_window, most);
  if (window < 2 || window > most)
    throw ValueError(runtime::format("perplexity: window is {}; it must be from 2 to {}, the tokens of the {}", window,
                                     most, tokens < context ? "text" : "context"));
  const std::int64_t skip = arguments.skip_given.given() ? arguments.skip : std::min(window / 2 + 1, window - 1);
  if (skip < 1 || skip >= window)
    throw ValueError(
        runtime::format("perplexity: skip is {}; it must be from 1 to {}, one less than the window", skip, window - 1));
  return {window, skip, tokens / window};
}

/// The result of the model: log p of each token that is counted.
struct Measured {
  std::vector<double> log_probabilities;
  Ids tokens;
  double sum = 0, squares = 0;

  double mean() const { return -sum / static_cast<double>(std::ssize(tokens)); }
  double perplexity() const { return std::exp(mean()); }
  /// Returns the standard error of the perplexity.
  double error() const {
    const auto n = static_cast<double>(std::ssize(tokens));
    return n < 2 ? 0 : perplexity() * std::sqrt(std::max(0.0, squares / n - mean() * mean()) / (n - 1));
  }
};

/// Adds log p of the tokens ids[skip], ids[skip + 1] ... of a window.
void measure(const LanguageModel& model, const Ids& ids, std::int64_t skip, Measured& measured) {
  const Tensor hidden = model.hidden(tensor<std::int64_t>(ids).unsqueeze(0))[0];
  const Dtype dtype = model.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  const std::int64_t at_once = std::max<std::int64_t>(1, most_logits / model.config.vocab_size);
  for (std::int64_t from = skip; from < std::ssize(ids); from += at_once) {
    const std::int64_t to = std::min(from + at_once, std::ssize(ids));
    const Ids targets(ids.begin() + from, ids.begin() + to);
    const Tensor losses = cross_entropy(model.logits(hidden.slice(0, from - 1, to - 1)).to(dtype),
                                        tensor<std::int64_t>(targets), {.reduction = Reduction::none});
    for (const double loss : losses.to_vector()) {
      if (std::isnan(loss)) throw ValueError("perplexity: a logit is NaN; the model's weights are damaged");
      measured.log_probabilities.push_back(-loss);
      measured.sum -= loss;
      measured.squares += loss * loss;
    }
    measured.tokens.insert(measured.tokens.end(), targets.begin(), targets.end());
  }
}

std::string as_json(const PerplexityArguments& arguments, const Windows& windows, const Measured& measured,
                    std::int64_t tokens, double seconds) {
  const auto number = [](double x) { return explain_detail::json_number(x, Dtype::f64); };
  std::string result = runtime::format(
      "{{\n  \"attn_perplexity\": 1,\n  \"perplexity\": {},\n  \"error\": {},\n  \"nats_per_token\": {},\n"
      "  \"tokens\": {},\n  \"counted\": {},\n  \"windows\": {},\n  \"window\": {},\n  \"skip\": {},\n",
      number(measured.perplexity()), number(measured.error()), number(measured.mean()), tokens,
      std::ssize(measured.tokens), windows.count, windows.tokens, windows.skip);
  if (arguments.log_probabilities) {
    std::string numbers;
    for (const double x : measured.log_probabilities) numbers += (numbers.empty() ? "" : ", ") + number(x);
    result += runtime::format("  \"ids\": [{}],\n  \"log_probabilities\": [{}],\n",
                              runtime::join(measured.tokens, ", "), numbers);
  }
  const auto read = static_cast<double>(windows.count * windows.tokens);
  return result + runtime::format("  \"seconds\": {:.3f},\n  \"tokens_per_second\": {:.1f}\n}}\n", seconds,
                                  seconds > 0 ? read / seconds : 0);
}

void run(const PerplexityArguments& arguments) {
  if (arguments.model.empty() || arguments.file.empty())
    throw UsageError{"a model and a text are needed, as in: attn perplexity model.gguf text.txt"};
  if (arguments.log_probabilities && !arguments.json) throw UsageError{"--log-probabilities needs --json"};
  const std::optional<Dtype> dtype = weights_dtype(arguments.dtype);
  const std::string text = without_mark(read_file(arguments.file));

  keep_freed_memory();
  const NoGrad no_grad;
  gguf::check_architecture(arguments.model);
  const Tokenizer tokenizer = Tokenizer::load(arguments.model);
  const LanguageModel model = LanguageModel::load(arguments.model, dtype);
  // each window begins as a text does, with the begin token of the tokenizer, if it has one
  const Ids before = state_of(tokenizer).before();
  const Ids of_text = tokenizer.encode(text);
  Ids ids = before;
  ids.insert(ids.end(), of_text.begin(), of_text.end());
  check_tokens("perplexity: " + name_of(arguments.file), ids, tokenizer, model.config.vocab_size);
  const Windows windows = windows_of(arguments, std::ssize(ids), model.config.context);
  const std::int64_t begin = std::min<std::int64_t>(std::ssize(before), windows.tokens - 1);

  const bool redraws = can_redraw();
  Measured measured;
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t n = 0; n < windows.count; ++n) {
    Ids window(ids.begin() + n * windows.tokens, ids.begin() + (n + 1) * windows.tokens);
    std::copy_n(before.begin(), begin, window.begin());
    measure(model, window, std::max(windows.skip, begin), measured);
    if (redraws)
      std::fputs(runtime::format("\r{} of {}: {:.4f}\033[K", n + 1, windows.count, measured.perplexity()).c_str(),
                 stderr);
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  if (redraws) std::fputs("\r\033[K", stderr);
  if (arguments.json) return print(as_json(arguments, windows, measured, std::ssize(ids), spent.count()));
  print(runtime::format("perplexity {:.4f} +/- {:.4f}\n{} of {} counted: {} of {}, without the first {} of each\n",
                        measured.perplexity(), measured.error(), std::ssize(measured.tokens),
                        counted(std::ssize(ids), "token"), counted(windows.count, "window"), windows.tokens,
                        windows.skip));
}

Run add_perplexity_options(Parser parser) {
  auto arguments = std::make_shared<PerplexityArguments>();
  PerplexityArguments& a = *arguments;
  parser.option("MODEL", a.model, "A GGUF file, or a model's folder").type_name("");
  parser.option("FILE", a.file, "A text; - is stdin").type_name("");
  a.window_given = parser.option("--window", a.window, "Tokens of a window (512, or all that text or context have)")
                       .type_name("N")
                       .check(whole_number);
  a.skip_given =
      parser.option("--skip", a.skip, "The first N tokens of a window are read, not counted (half of it, and one)")
          .type_name("N")
          .check(whole_number);
  add_weights_dtype(parser, a.dtype);
  parser.flag("--json", a.json, "The same as JSON, in full precision");
  parser.flag("--log-probabilities", a.log_probabilities, "In the JSON, log p of each token, as in training");
  parser.footer(
      "The exponential of the mean of -log p, over windows side by side; llama.cpp's measure if nothing is given.\n"
      "\nExample\n  attn perplexity model.gguf /usr/share/common-licenses/GPL-3");
  return run_with(arguments, run);
}

}  // namespace

const Verb perplexity_verb{"perplexity", "How well a language model predicts a text", add_perplexity_options};

}  // namespace attn::cli
