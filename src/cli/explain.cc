// src/cli/explain.cc: implements attn explain: parses its options and prints the explanation as text, JSON or SVG.
#include "cli/call.h"
#include "cli/output.h"
#include "cli/page.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "cli/weights.h"

#include <attn/explain_mechanisms.h>
#include <attn/explain_model.h>

#include "explain/options.h"

#include "io/write.h"

#include "model/gguf/model.h"
#if defined(ATTN_HAS_ICU)
#include "text/icu/word_break.h"
#endif

#include "runtime/format.h"

#include <algorithm>
#include <memory>
#include <span>

namespace attn::cli {
namespace {

struct ExplainArguments {
  std::vector<std::string> texts;
  std::string to, score = "scaled_dot", tokens = "auto", positions = "none", bias = "none", score_mod, returned, cache,
                  mask, blocks, block_size = "1", weights, model, svg, html, only, language, colour = "auto", linear,
                  normalizer, weight_mod, relative;
  std::int64_t query = 0, latent = 0;
  bool batch = false, causal = false, json = false, tangent = false;
  ExplainOptions explain;
  double sink = 0;
  Option score_mod_given, returned_given, cache_given, sink_given;
  Option to_given, query_given, svg_given, html_given, mask_given, blocks_given, block_size_given, weights_given,
      linear_given, latent_given, tangent_given, normalizer_given, weight_mod_given, relative_given;
  std::vector<Option> sizes;  // options that --weights replaces
  TrainedHead at;
  Option model_given, layer_given, head_given;
  std::vector<Option> with_model;  // options allowed with --model
  std::vector<Option> all;
};

#if defined(ATTN_HAS_ICU)
/// Splits into words with ICU where the text has words without spaces between them, else at spaces.
std::vector<std::string> cut_words(const std::string& text) {
  std::vector<std::string> words = text::split(text, text::Tokens::words);
  return text::split(text, text::Tokens::automatic) == words ? words : text::icu_words(text, "zh");
}
constexpr auto kCutWords = cut_words;
#else
constexpr std::vector<std::string> (*kCutWords)(const std::string&) = nullptr;
#endif

Mask mask_of(const ExplainArguments& arguments) {
  Mask mask;
  const auto join = [&](const Mask& more) { mask = mask.is_all() ? more : mask & more; };
  if (arguments.causal) join(Mask::causal(arguments.to_given.given() ? Align::top_left : Align::unset));
  if (arguments.mask_given.given()) join(parse_mask("--mask", arguments.mask));
  if (arguments.block_size_given.given() && !arguments.blocks_given.given())
    throw UsageError{"--block-size needs --blocks"};
  if (arguments.blocks_given.given() && arguments.html_given.given())
    throw UsageError{"--blocks and --html do not go together: the page has no lists of blocks"};
  if (arguments.blocks_given.given())
    join(parse_blocks("--blocks", arguments.blocks, parse_block_sizes("--block-size", arguments.block_size)));
  return mask;
}

/// Sets an option that is an enumeration to the value that one of the words names.
template <typename Words, typename Enum>
void set_chosen(Enum& to, const std::string& option, const std::string& value, const Words& words) {
  to = static_cast<Enum>(choose(option, value, {words.begin(), words.end()}));
}

Language language_of(const ExplainArguments& arguments) {
  if (arguments.language.empty()) return environment_language();
  if (const auto named = language_named(arguments.language)) return *named;
  Language language{};
  set_chosen(language, "--lang", arguments.language, explain_detail::kLanguages);
  return language;
}

/// Splits "weights,context" at commas, or at spaces.
std::vector<std::string> only_of(const std::string& names) {
  std::vector<std::string> result;
  for (std::size_t at = 0; (at = names.find_first_not_of(", ", at)) != std::string::npos;) {
    const std::size_t end = names.find_first_of(", ", at);
    result.push_back(names.substr(at, end - at));
    at = end;
  }
  return result;
}

ExplainOptions options_of(const ExplainArguments& arguments) {
  ExplainOptions options = arguments.explain;
  set_chosen(options.score, "--score", arguments.score, explain_detail::kScores);
  set_chosen(options.positions, "--positions", arguments.positions, explain_detail::kPositions);
  set_chosen(options.tokens, "--tokens", arguments.tokens, explain_detail::kTokens);
  set_chosen(options.bias, "--bias", arguments.bias, explain_detail::kBiases);
  options.cut_words = kCutWords;
  options.language = language_of(arguments);
  options.only = only_of(arguments.only);
  if (arguments.to_given.given()) options.to = arguments.to;
  if (arguments.query_given.given()) options.query = arguments.query;
  options.mask = mask_of(arguments);
  if (arguments.score_mod_given.given()) options.score_mod = parse_score_mod("--score-mod", arguments.score_mod);
  if (arguments.sink_given.given()) options.sink = arguments.sink;
  if (arguments.returned_given.given()) options.weights = parse_weights("--return-weights", arguments.returned);
  if (arguments.cache_given.given())
    set_chosen(options.cache.emplace(), "--cache", arguments.cache, explain_detail::kCaches);
  if (arguments.weights_given.given()) {
    for (const Option& size : arguments.sizes)
      if (size.given())
        throw UsageError{runtime::format("{} and --weights do not go together: the matrices say it", size.name())};
    load_weights(arguments.weights, options);
  }
  return options;
}

/// Explains the cross-attention of an encoder-decoder.
Explanation explain_cross(const ExplainArguments& arguments) {
  if (arguments.explain.gradients) throw UsageError{"--gradients is for language models, not for an encoder-decoder"};
  TrainedCross at{.layer = arguments.at.layer, .only = only_of(arguments.only), .language = language_of(arguments)};
  if (arguments.head_given.given()) at.head = arguments.at.head;
  return explain_translation(Translator::load(arguments.model), arguments.texts[0],
                             arguments.to_given.given() ? std::optional(arguments.to) : std::nullopt, at);
}

/// Explains one head of a trained model.
Explanation explain_trained(const ExplainArguments& arguments) {
  const bool crosses = is_encoder_decoder(arguments.model);
  for (const Option& option : arguments.all)
    if (option.given() && !(crosses && option == arguments.to_given) &&
        std::find(arguments.with_model.begin(), arguments.with_model.end(), option) == arguments.with_model.end())
      throw UsageError{runtime::format("{} and --model do not go together: the model says it", option.name())};
  if (arguments.texts.size() > 1) throw UsageError{"--model takes one text"};
  if (crosses) return explain_cross(arguments);
  TrainedHead at = arguments.at;
  at.gradients = arguments.explain.gradients;
  at.only = only_of(arguments.only);
  at.language = language_of(arguments);
  gguf::check_architecture(arguments.model);
  return explain_model(LanguageModel::load(arguments.model), Tokenizer::load(arguments.model), arguments.texts[0], at);
}

/// Returns the options that add steps to the call; nullopt if none is given.
std::optional<ExplainAdditions> additions_of(const ExplainArguments& arguments) {
  std::optional<ExplainAdditions> additions;
  for (const Option& option : {arguments.relative_given, arguments.normalizer_given, arguments.weight_mod_given}) {
    if (!option.given()) continue;
    additions.emplace();
    for (const Option& other : {arguments.linear_given, arguments.latent_given, arguments.tangent_given})
      if (other.given()) throw UsageError{runtime::format("{} and {} do not go together", option.name(), other.name())};
    if (arguments.html_given.given())
      throw UsageError{
          runtime::format("--html and {} do not go together: the page shows softmax attention", option.name())};
  }
  if (arguments.relative_given.given()) additions->relative = parse_relative("--relative", arguments.relative);
  if (arguments.normalizer_given.given())
    additions->normalizer = parse_normalizer("--normalizer", arguments.normalizer);
  if (arguments.weight_mod_given.given()) additions->weight_mod = parse_score_mod("--weight-mod", arguments.weight_mod);
  return additions;
}

/// Explains the mechanism that an option names, if one does.
std::optional<Explanation> explain_mechanism(const ExplainArguments& arguments, const ExplainOptions& options) {
  std::optional<Option> chosen;
  for (const Option& option : {arguments.linear_given, arguments.latent_given, arguments.tangent_given}) {
    if (!option.given()) continue;
    if (chosen) throw UsageError{runtime::format("{} and {} do not go together", chosen->name(), option.name())};
    chosen = option;
  }
  if (!chosen) return std::nullopt;
  if (arguments.batch || arguments.texts.size() > 1)
    throw UsageError{runtime::format("{} takes one text, and no batch", chosen->name())};
  if (arguments.html_given.given())
    throw UsageError{
        runtime::format("--html and {} do not go together: the page shows softmax attention", chosen->name())};
  const std::string& text = arguments.texts[0];
  if (*chosen == arguments.latent_given) return explain_latent_attention(text, arguments.latent, options);
  if (*chosen == arguments.tangent_given) return explain_tangent(text, options);
  constexpr std::array<const char*, 4> rules{"plain", "decay", "delta", "gated_delta"};
  LinearRule rule{};
  set_chosen(rule, "--linear", arguments.linear, rules);
  return explain_linear_attention(text, rule, options);
}

Explanation explain_texts(const ExplainArguments& arguments) {
  for (const Option& option : {arguments.layer_given, arguments.head_given})
    if (option.given()) throw UsageError{runtime::format("{} needs --model", option.name())};
  const ExplainOptions options = options_of(arguments);
  const std::optional<ExplainAdditions> additions = additions_of(arguments);
  if (std::optional<Explanation> mechanism = explain_mechanism(arguments, options)) return std::move(*mechanism);
  const bool batch = arguments.batch || arguments.texts.size() > 1;
  if (additions)
    return batch ? explain_attention_batch(arguments.texts, *additions, options)
                 : explain_attention(arguments.texts[0], *additions, options);
  return batch ? explain_batch(arguments.texts, options) : explain(arguments.texts[0], options);
}

/// Reads the text given as "-" from stdin, without the end of its last line.
void read_stdin(ExplainArguments& arguments) {
  std::vector<std::string*> wanted;
  for (std::string& text : arguments.texts)
    if (text == "-") wanted.push_back(&text);
  if (arguments.to == "-") wanted.push_back(&arguments.to);
  if (wanted.empty()) return;
  if (wanted.size() > 1) throw UsageError{"- is given twice; stdin can be read once (-- before a text that is a dash)"};
  std::string& text = *wanted.front();
  text = without_mark(read_file("-"));
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
}

void write(const std::string& path, const std::string& content) {
  if (path == standard_stream) return print(content);
  io::write_whole("explain", path, {std::as_bytes(std::span(content))});
}

void run(const ExplainArguments& arguments) {
  if (arguments.texts.empty())
    throw UsageError{"a text is missing, as in: attn explain \"Life is short, eat dessert first\""};
  choose("--color", arguments.colour, {"auto", "always", "never"});
  check_apart("--svg", arguments.svg, arguments.json);
  check_apart("--html", arguments.html, arguments.json);
  if (arguments.svg == standard_stream && arguments.html == standard_stream)
    throw UsageError{"--svg - and --html - both go to stdout"};
  if (arguments.html_given.given() && arguments.model_given.given())
    throw UsageError{
        "--html and --model do not go together: the page has no such folder; drop its files onto the page"};
  if (arguments.html_given.given() && arguments.weights_given.given())
    throw UsageError{"--html and --weights do not go together: the page draws its own matrices; drop the file onto it"};
  const Explanation explanation = arguments.model_given.given() ? explain_trained(arguments) : explain_texts(arguments);
  if (arguments.svg_given.given()) write(arguments.svg, to_svg(explanation));
  if (arguments.html_given.given()) write(arguments.html, page_of(explanation, kCutWords));
  if (arguments.json) return print(to_json(explanation));
  if (!arguments.svg_given.given() && !arguments.html_given.given())
    print(to_text(explanation, terminal_options(arguments.colour)));
}

Run add_explain_options(Parser parser) {
  auto arguments = std::make_shared<ExplainArguments>();
  ExplainArguments& a = *arguments;
  const Option text =
      parser
          .option("TEXT", a.texts, "The text, - for what stands on stdin; several make a batch, padded to the longest")
          .type_name("");
  parser.flag("--batch", a.batch, "Show a batch, with one text too");
  a.to_given = parser.option("--to", a.to, "Cross-attention: TEXT asks, this text answers (its keys and values)")
                   .type_name("TEXT2");
  parser.option("--score", a.score, "scaled_dot, dot, general or additive").type_name("NAME");
  parser.flag("--causal", a.causal, "No token sees a later one");
  a.mask_given =
      parser.option("--mask", a.mask, "Who sees whom: causal, window(2, 0), prefix(3), all, none, with & | ~ ( )")
          .type_name("EXPRESSION");
  a.blocks_given =
      parser.option("--blocks", a.blocks, "The blocks of keys that each block of rows sees: \"0; 0 1; 0 2\"")
          .type_name("LISTS");
  a.block_size_given =
      parser.option("--block-size", a.block_size, "Of --blocks (1): tokens, or rows,keys").type_name("ROWS,KEYS");
  parser.option("--softcap", a.explain.softcap, "Scores become X tanh(score / X)").type_name("X").check(number);
  parser.option("--bias", a.bias, "alibi, relative or alibi_symmetric: added to the scores").type_name("NAME");
  a.score_mod_given =
      parser.option("--score-mod", a.score_mod, "The score as an expression of s, b, h, i, j: s - 0.5 * (i - j)")
          .type_name("EXPRESSION");
  a.relative_given =
      parser
          .option("--relative", a.relative,
                  "A product with a table, added to the scores: \"distance(2, 2)\", with of_keys, operand, scale=X; + "
                  "joins several")
          .type_name("PRODUCTS");
  a.normalizer_given =
      parser
          .option(
              "--normalizer", a.normalizer,
              "softmax, softmax1, sigmoid(-3), sparsemax, entmax15 or relu_squared(0.1); without a number the usual "
              "one")
          .type_name("NAME");
  a.weight_mod_given = parser
                           .option("--weight-mod", a.weight_mod,
                                   "The weight (s) as an expression of s, b, h, i, j: s * exp(-abs(i - j))")
                           .type_name("EXPRESSION");
  parser.option("--temperature", a.explain.temperature, "Scores are divided by it").type_name("X").check(number);
  a.sink_given =
      parser.option("--sink", a.sink, "A logit that takes weight and gives no value").type_name("X").check(number);
  parser.option("--dropout", a.explain.dropout_p, "Each weight becomes 0 with this probability")
      .type_name("P")
      .check(number);
  a.returned_given =
      parser.option("--return-weights", a.returned, "Those alone: head_average, column_sums, rows(0, 5), top_k(3)")
          .type_name("NAME");
  parser.flag("--packed", a.explain.packed, "The sentences packed one behind the other, too");
  a.cache_given = parser.option("--cache", a.cache, "From a cache, too: same, or int8").type_name("NAME");
  parser.option("--heads", a.explain.heads, "Heads (1)").type_name("N").check(whole_number);
  a.sizes.push_back(
      parser.option("--dim", a.explain.dim, "Numbers of an embedding (3)").type_name("N").check(whole_number));
  a.sizes.push_back(parser.option("--dk", a.explain.dk, "Numbers of a query and a key, a head (2)")
                        .type_name("N")
                        .check(whole_number));
  a.sizes.push_back(
      parser.option("--dv", a.explain.dv, "Numbers of a value, a head (4)").type_name("N").check(whole_number));
  parser.option("--vocabulary", a.explain.vocabulary, "Rows of the random embedding (50000)")
      .type_name("N")
      .check(whole_number);
  parser.flag("--output-projection", a.explain.output_projection, "The heads, joined, times W_O");
  parser.flag("--learned-query", a.explain.learned_query, "One learned vector asks, not the tokens");
  parser.option("--seed", a.explain.seed, "Of the random embedding and matrices (123), as torch.manual_seed")
      .type_name("N")
      .check(whole_number);
  parser.option("--positions", a.positions, "none, sinusoidal or rotary").type_name("NAME");
  parser.option("--tokens", a.tokens, "auto, words or characters").type_name("NAME");
  a.weights_given =
      parser
          .option("--weights", a.weights,
                  "Own w_query, w_key, w_value (embedding, w_output ...): a safetensors file or a folder of .npy")
          .type_name("FILE");
  a.query_given =
      parser.option("--query", a.query, "Open row N (from 0; -1 the last): every product, sum, exponential, share")
          .type_name("N")
          .check(whole_number);
  const Option gradients = parser.flag("--gradients", a.explain.gradients,
                                       "Also the way back: dO to dV, dP, dS, dQ, dK of L = 1/2 sum of context^2");
  a.linear_given = parser
                       .option("--linear", a.linear,
                               "Linear attention instead: plain, decay, delta or gated_delta; --query opens a row")
                       .type_name("RULE");
  a.latent_given = parser.option("--latent", a.latent, "Latent attention instead, with rows of N numbers a token")
                       .type_name("N")
                       .check(whole_number);
  a.tangent_given = parser.flag("--tangent", a.tangent,
                                "Also forward mode: how scores, weights and context change along a drawn direction");
  a.model_given = parser.option("--model", a.model, "A trained head instead: a model's folder, as of attn generate")
                      .type_name("FOLDER");
  a.layer_given = parser.option("--layer", a.at.layer, "Of the model, from 0 (0)").type_name("N").check(whole_number);
  a.head_given = parser.option("--head", a.at.head, "Of the layer, from 0 (0)").type_name("N").check(whole_number);
  const Option only = parser.option("--only", a.only, "Steps to show, by name: weights,context").type_name("STEPS");
  const Option json = parser.flag("--json", a.json, "The same as JSON, in full precision");
  a.svg_given =
      parser.option("--svg", a.svg, "The same as a drawing, into FILE; - is stdout").type_name("FILE").check(file_name);
  a.html_given =
      parser.option("--html", a.html, "The page to play with in a browser, with this text and options; - is stdout")
          .type_name("FILE")
          .check(file_name);
  const Option language =
      parser.option("--lang", a.language, "en or zh (cn, zh-CN); without it LC_ALL, LC_MESSAGES or LANG says")
          .type_name("LANG");
  const Option colour = parser.option("--color,--colour", a.colour, "auto, always or never").type_name("WHEN");
  a.all = parser.options();
  a.with_model = {text, gradients, a.model_given, a.layer_given, a.head_given,
                  only, json,      a.svg_given,   language,      colour};
  parser.footer(
      "Examples\n"
      "  attn explain \"Life is short, eat dessert first\"\n"
      "  attn explain \"Life is short\" --query 2 --causal\n"
      "  attn explain \"Life is short\" --gradients\n"
      "  attn explain \"Life is short\" --linear gated_delta --query 2\n"
      "  attn explain \"Life is short\" --relative \"distance(2, 2)\" --normalizer sparsemax --query 1\n"
      "  attn explain \"Life is short\" --bias alibi --sink 1 --return-weights 'top_k(2)' --cache int8\n"
      "  attn explain --model FOLDER \"Life is short\" --layer 3 --head 1\n"
      "  attn explain --model opus-mt-en-de \"Life is short\" --to \"Das Leben ist kurz\" --layer 5 --svg who.svg\n"
      "  attn explain \"Life is short\" --to \"eat dessert first\"\n"
      "  attn explain --batch \"我叫张三\" \"他是谁\" \"李四\" --lang zh\n"
      "  attn explain \"to be or not to be\" --heads 2 --positions sinusoidal --dim 4 --svg be.svg\n"
      "  attn explain \"Life is short\" --heads 2 --html life.html");
  return [arguments](const std::vector<std::string>& rest) {
    read_stdin(*arguments);
    arguments->texts.insert(arguments->texts.end(), rest.begin(), rest.end());
    run(*arguments);
  };
}

}  // namespace

const Verb explain_verb{"explain", "Attention on a text, step by step, with the numbers", add_explain_options};

}  // namespace attn::cli
