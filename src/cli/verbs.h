// src/cli/verbs.h: the verbs of the command; each adds its options to the parser and says what to run.
#pragma once
#include <CLI/CLI.hpp>

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

namespace attn::cli {

struct Verb {
  CLI::App* parser;
  std::function<void()> run;
};

Verb add_explain(CLI::App& app);
Verb add_info(CLI::App& app);
Verb add_run(CLI::App& app);
Verb add_completion(CLI::App& app);

/// The place of `value` among `choices`; UsageError says which there are, and which was meant.
std::size_t choose(const std::string& option, const std::string& value, const std::vector<std::string>& choices);

}  // namespace attn::cli
