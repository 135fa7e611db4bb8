// src/cli/verbs.h: declares the verbs of the command, and the functions that read the values of their options.
#pragma once
#include "cli/parser.h"

#include <attn/attention.h>
#include <attn/explain_mechanisms.h>
#include <attn/mask.h>
#include <attn/score.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace attn::cli {

/// Throws a UsageError unless `rest` is empty.
void no_more(const std::vector<std::string>& rest);

/// Runs a verb with what the parser has put into its arguments. `rest`: the words after --.
using Run = std::function<void(const std::vector<std::string>& rest)>;

/// Returns what runs `run` with what the parser has put into the arguments; words after -- are a mistake.
template <typename Arguments>
Run run_with(std::shared_ptr<Arguments> arguments, void (*run)(const Arguments&)) {
  return [arguments, run](const std::vector<std::string>& rest) {
    no_more(rest);
    run(*arguments);
  };
}

struct Verb {
  const char* name;
  const char* description;
  /// Adds the verb's options to its parser. Called only for the verbs that the command line names.
  Run (*add_options)(Parser parser);
  bool knows_ranks = false;  // several processes can share its work
};

extern const Verb explain_verb, run_verb, info_verb, verify_verb, bench_verb, train_verb, generate_verb, chat_verb,
    embed_verb, rank_verb, perplexity_verb, convert_verb, completion_verb;
/// All of them, in the order of the help.
extern const std::array<const Verb*, 13> all_verbs;

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
/// Parse the mask blocks: the sizes of blocks of rows and keys, "64" or "64,16" (in JSON also [64, 16]); and of each
/// block of rows the blocks of keys that it sees, "0; 0 1; 0 2".
std::pair<std::int64_t, std::int64_t> parse_block_sizes(const std::string& option, const std::string& text);
Mask parse_blocks(const std::string& option, const std::string& text, std::pair<std::int64_t, std::int64_t> sizes);
ScoreExpression parse_score_mod(const std::string& option, const std::string& text,
                                const std::vector<std::pair<std::string, Tensor>>& tables = {});
Dtype parse_dtype(const std::string& option, const std::string& text);
Normalizer parse_normalizer(const std::string& option, const std::string& text);
/// Parses relative products, as ExplainRelative::parse.
std::vector<ExplainRelative> parse_relative(const std::string& option, const std::string& text);
Weights parse_weights(const std::string& option, const std::string& text);

}  // namespace attn::cli
