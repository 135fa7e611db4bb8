// src/cli/verbs.h: the verbs of the command; each adds its options to the parser and says what to run.
#pragma once
#include "cli/parser.h"

#include <attn/attention.h>
#include <attn/mask.h>
#include <attn/score.h>

#include <functional>
#include <string>
#include <vector>

namespace attn::cli {

struct Verb {
  Parser parser;
  std::function<void(const std::vector<std::string>& rest)> run;  // rest: the words after --
};

Verb add_explain(Parser app);
Verb add_generate(Parser app);
Verb add_info(Parser app);
Verb add_run(Parser app);
Verb add_verify(Parser app);
Verb add_bench(Parser app);
Verb add_train(Parser app);
Verb add_completion(Parser app);

/// What is wrong with a whole number, or any number, given as an option's value; "" when nothing is.
std::string whole_number(const std::string& value);
std::string number(const std::string& value);
/// The same of a file that is written: "" names none.
std::string file_name(const std::string& value);

/// UsageError unless `rest` is empty.
void no_more(const std::vector<std::string>& rest);

/// The place of `value` among `choices`; UsageError says which there are, and which was meant.
std::size_t choose(const std::string& option, const std::string& value, const std::vector<std::string>& choices);

/// The mask of `option`, the expression of one, a dtype, none or full or rows(0, 5) or ...; UsageError shows the place
/// that was not understood.
Mask parse_mask(const std::string& option, const std::string& text);
ScoreExpression parse_score_mod(const std::string& option, const std::string& text,
                                const std::vector<std::pair<std::string, Tensor>>& tables = {});
Dtype parse_dtype(const std::string& option, const std::string& text);
Weights parse_weights(const std::string& option, const std::string& text);

}  // namespace attn::cli
