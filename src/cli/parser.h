// src/cli/parser.h: declares the parser of the command line. Only parser.cc includes CLI11, because CLI11 takes long to
// compile.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace attn::cli {

/// A handle to an option or to an argument without a name; the parser owns the option.
class Option {
 public:
  Option() = default;
  explicit Option(CLI::Option* option) : option_(option) {}

  /// Sets the name of the value in help: "N", "FILE"; "" for none.
  Option& type_name(const std::string& name);
  /// Sets a check of the value: `wrong` returns what is wrong with it, or "" if it is valid.
  Option& check(std::string (*wrong)(const std::string&));
  /// Makes the option take exactly one value each time it is given, so that the words after it are arguments.
  Option& one_value();

  bool given() const;
  /// Returns the name, such as "--query".
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
  /// Sets the text below the help's list of options.
  void footer(const std::string& text);

  std::string name() const;
  std::string description() const;
  std::vector<Option> options() const;
  std::vector<Parser> verbs() const;
  /// Returns whether the user gave this verb.
  bool parsed() const;
  /// Returns the help, which ends in one line end.
  std::string help() const;

  /// Parses the arguments and sets the options' values. Returns the text to print for --help or --version, else "".
  /// Throws a UsageError.
  std::string parse(std::vector<std::string> arguments);
  /// Returns the words that no option has taken.
  std::vector<std::string> remaining() const;

 private:
  CLI::App* app_;
};

/// Owns the parser of the whole command; `version` returns what --version prints.
class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& description, std::string (*version)());
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  Parser parser() { return Parser(app_); }

 private:
  CLI::App* app_;
};

}  // namespace attn::cli
