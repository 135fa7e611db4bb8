// src/cli/parser.h: the command line's parser, behind a header that compiles fast: only parser.cc includes CLI11.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace attn::cli {

/// A handle to an option, or to an argument without a name; the parser owns it.
class Option {
 public:
  Option() = default;
  explicit Option(CLI::Option* option) : option_(option) {}

  /// What help calls its value: "N", "FILE"; "" for nothing.
  Option& type_name(const std::string& name);
  /// `wrong` says what is wrong with a value, "" when nothing is.
  Option& check(std::string (*wrong)(const std::string&));
  /// One value each time it is given; the words after it are arguments.
  Option& one_value();

  bool given() const;
  /// "--query"
  std::string name() const;
  std::vector<std::string> long_names() const;
  std::string description() const;
  bool takes_value() const;
  bool operator==(const Option&) const = default;

 private:
  CLI::Option* option_ = nullptr;
};

/// A handle to the parser of the command, or of one of its verbs.
class Parser {
 public:
  explicit Parser(CLI::App* app) : app_(app) {}

  Parser add_verb(const std::string& name, const std::string& description);
  Option option(const std::string& names, std::string& value, const std::string& description);
  Option option(const std::string& names, std::vector<std::string>& value, const std::string& description);
  Option option(const std::string& names, double& value, const std::string& description);
  Option option(const std::string& names, std::int64_t& value, const std::string& description);
  Option option(const std::string& names, std::uint64_t& value, const std::string& description);
  Option flag(const std::string& names, bool& value, const std::string& description);
  /// Below the help's list of options.
  void footer(const std::string& text);

  std::string name() const;
  std::string description() const;
  std::vector<Option> options() const;
  std::vector<Parser> verbs() const;
  /// Whether the verb was given.
  bool parsed() const;
  /// The help, with one line's end.
  std::string help() const;

  /// Sets the options' values. The text to print instead of running, of --help and --version; else "". UsageError.
  std::string parse(std::vector<std::string> arguments);
  /// The words that no option took.
  std::vector<std::string> remaining() const;

 private:
  CLI::App* app_;
};

/// Owns the parser of the whole command; `version` is what --version prints.
class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& description, const std::string& version);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  Parser parser() { return Parser(app_); }

 private:
  CLI::App* app_;
};

}  // namespace attn::cli
