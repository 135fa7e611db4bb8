// src/cli/verbs.h: declares the verbs of the command. Each add function adds a verb and its options to the parser, and
// returns the function that runs it.
#pragma once
#include "cli/parser.h"

#include <attn/attention.h>
#include <attn/mask.h>
#include <attn/score.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace attn::cli {

/// Throws a UsageError unless `rest` is empty.
void no_more(const std::vector<std::string>& rest);

struct Verb {
  Parser parser;
  std::function<void(const std::vector<std::string>& rest)> run;  // `rest`: the words after --
  bool knows_ranks = false;                                       // several processes can share its work
};

/// Returns the verb that runs `run` with what the parser has put into the arguments; words after -- are a mistake.
template <typename Arguments>
Verb verb_of(Parser parser, std::shared_ptr<Arguments> arguments, void (*run)(const Arguments&)) {
  return {parser, [arguments, run](const std::vector<std::string>& rest) {
            no_more(rest);
            run(*arguments);
          }};
}

Verb add_explain(Parser app);
Verb add_generate(Parser app);
Verb add_chat(Parser app);
Verb add_perplexity(Parser app);
Verb add_info(Parser app);
Verb add_run(Parser app);
Verb add_verify(Parser app);
Verb add_bench(Parser app);
Verb add_train(Parser app);
Verb add_embed(Parser app);
Verb add_rank(Parser app);
Verb add_convert(Parser app);
Verb add_completion(Parser app);

/// Return what is wrong with an option's value that must be a whole number, or any number; "" if it is valid.
std::string whole_number(const std::string& value);
std::string number(const std::string& value);
/// Returns what is wrong with the name of an output file, which must not be empty; "" if it is valid.
std::string file_name(const std::string& value);

/// Returns the index of `value` in `choices`; else throws a UsageError that lists them or suggests a similar one.
std::size_t choose(const std::string& option, const std::string& value, const std::vector<std::string>& choices);

/// Parse the text of an option: a mask, a score_mod expression, a dtype, or weights (none, full, rows(0, 5), ...). If
/// that fails, a UsageError shows the place in the text.
Mask parse_mask(const std::string& option, const std::string& text);
ScoreExpression parse_score_mod(const std::string& option, const std::string& text,
                                const std::vector<std::pair<std::string, Tensor>>& tables = {});
Dtype parse_dtype(const std::string& option, const std::string& text);
Weights parse_weights(const std::string& option, const std::string& text);

}  // namespace attn::cli
