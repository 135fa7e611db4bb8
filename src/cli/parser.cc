// src/cli/parser.cc: implements the parser of the command line with CLI11.
#include "cli/parser.h"

#include "cli/output.h"

#include <CLI/CLI.hpp>

#include <algorithm>

namespace attn::cli {
namespace {

/// Rewords two of CLI11's messages: "--heads: 1 required N missing" for an option without its value, and "At Most 1
/// required ..." for an option that is given twice.
std::string in_our_words(const CLI::ParseError& error) {
  const std::string text = error.what(), option = text.substr(0, text.find(':'));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) == nullptr) return text;
  return option + (text.ends_with(" missing") ? " needs a value" : " is given more than once");
}

}  // namespace

Option& Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}
Option& Option::check(std::string (*wrong)(const std::string&)) {
  option_->check(wrong);
  return *this;
}
Option& Option::one_value() {
  option_->allow_extra_args(false);
  return *this;
}
bool Option::given() const { return option_->count() > 0; }
std::string Option::name() const { return option_->get_name(); }
std::vector<std::string> Option::long_names() const { return option_->get_lnames(); }
std::string Option::description() const { return option_->get_description(); }
bool Option::takes_value() const { return option_->get_items_expected_max() > 0; }

Parser Parser::add_verb(const std::string& name, const std::string& description) {
  CLI::App* verb = app_->add_subcommand(name, description);
  verb->allow_extras();
  return Parser(verb);
}
Option Parser::option(const std::string& names, std::string& value, const std::string& description) {
  return Option(app_->add_option(names, value, description));
}
Option Parser::option(const std::string& names, std::vector<std::string>& value, const std::string& description) {
  return Option(app_->add_option(names, value, description));
}
Option Parser::option(const std::string& names, double& value, const std::string& description) {
  return Option(app_->add_option(names, value, description));
}
Option Parser::option(const std::string& names, std::int64_t& value, const std::string& description) {
  return Option(app_->add_option(names, value, description));
}
Option Parser::option(const std::string& names, std::uint64_t& value, const std::string& description) {
  return Option(app_->add_option(names, value, description));
}
Option Parser::flag(const std::string& names, bool& value, const std::string& description) {
  return Option(app_->add_flag(names, value, description));
}
void Parser::footer(const std::string& text) { app_->footer(text); }

std::string Parser::name() const { return app_->get_name(); }
std::string Parser::description() const { return app_->get_description(); }
std::vector<Option> Parser::options() const {
  std::vector<Option> result;
  for (CLI::Option* option : app_->get_options()) result.emplace_back(option);
  return result;
}
std::vector<Parser> Parser::verbs() const {
  std::vector<Parser> result;
  for (CLI::App* verb : app_->get_subcommands([](CLI::App*) { return true; })) result.emplace_back(verb);
  return result;
}
bool Parser::parsed() const { return app_->parsed(); }
std::string Parser::help() const {
  std::string text = app_->help();
  text.erase(text.find_last_not_of('\n') + 1);
  return text + "\n";
}

std::string Parser::parse(std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes the arguments in reverse order
  try {
    app_->parse(std::move(arguments));
  } catch (const CLI::CallForVersion& wish) {
    return wish.what() + std::string("\n");
  } catch (const CLI::Success&) {  // --help
    return help();
  } catch (const CLI::ParseError& error) { throw UsageError{in_our_words(error)}; }
  return {};
}
std::vector<std::string> Parser::remaining() const { return app_->remaining(true); }

CommandLine::CommandLine(const std::string& name, const std::string& description, std::string (*version)())
    : app_(new CLI::App(description, name)) {
  app_->set_version_flag("--version", version, "Print the version");
  app_->allow_extras();
}
CommandLine::~CommandLine() { delete app_; }

}  // namespace attn::cli
