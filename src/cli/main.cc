// src/cli/main.cc: runs the command attn: finds the verb, and reports every failure by one line and an exit code.
#include "cli/chinese.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/suggest.h"
#include "cli/verbs.h"

#include <attn/error.h>
#include <attn/runtime.h>

#include <fcntl.h>
#include "runtime/format.h"
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>

namespace attn::cli {

const std::array<const Verb*, 13> all_verbs{
    &explain_verb, &run_verb,   &info_verb, &verify_verb,     &bench_verb,   &train_verb,     &generate_verb,
    &chat_verb,    &embed_verb, &rank_verb, &perplexity_verb, &convert_verb, &completion_verb};

namespace {

constexpr int kFailed = 1, kUsage = 2;

constexpr std::size_t kLongest = 500;  // the most bytes of an error line

/// Of several processes only the first prints: an error that ends one process ends all of them, with the same text.
int complain(int code, const std::string& who, std::string_view what, Language language) {
  if (launch().rank != 0) return code;
  const std::string text = language == Language::zh ? error_in_chinese(what) : std::string(what);
  const std::string line = shortened(one_line(runtime::format("{}: {}", who, text)), kLongest - 1) + "\n";
  say(line);
  return code;
}

/// Returns the first line of an error; some errors add a picture below it.
std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

/// Reports an unknown argument and, if a known word is similar, suggests that word.
[[noreturn]] void unknown_argument(const Parser& app, const Parser* verb, const std::string& given) {
  std::vector<std::string> known;
  if (given.starts_with("-")) {
    for (const Option& option : (verb ? *verb : app).options())
      for (const std::string& name : option.long_names()) known.push_back("--" + name);
    const std::string name = given.substr(0, given.find('='));
    const std::string meant = nearest(name, known);
    throw UsageError{
        runtime::format("there is no option {}{}", name,
                        meant.empty() ? runtime::format(" (attn {}--help lists them)", verb ? verb->name() + " " : "")
                                      : runtime::format("; did you mean {}?", meant))};
  }
  if (verb != nullptr)
    throw UsageError{runtime::format("\"{}\" is one argument too many (attn {} --help)", given, verb->name())};
  for (const Parser& each : app.verbs()) known.push_back(each.name());
  const std::string meant = nearest(given, known);
  throw UsageError{runtime::format("there is no verb \"{}\"; {}", given,
                                   meant.empty() ? runtime::format("there are {}", runtime::join(known, ", "))
                                                 : runtime::format("did you mean {}?", meant))};
}

/// Rewrites "attn help" and "attn help VERB" to --help.
void rewrite_help(const Parser& app, std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] != "help") return;
  while (!arguments.empty() && arguments[0] == "help") arguments.erase(arguments.begin());
  const std::vector<Parser> verbs = app.verbs();
  const auto named = [&](const Parser& verb) { return verb.name() == arguments[0]; };
  if (!arguments.empty() && !arguments[0].starts_with("-") && std::none_of(verbs.begin(), verbs.end(), named))
    unknown_argument(app, nullptr, arguments[0]);
  arguments.insert(arguments.begin() + (arguments.empty() ? 0 : 1), "--help");
}

/// A verb's parser, and what runs it: empty unless the command line names the verb.
struct NamedVerb {
  const Verb* verb;
  Parser parser;
  Run run;
};

/// Runs the command line and reports what is wrong.
int run(int argc, char** argv) {
  CommandLine command("attn", "Attention on a text, with every number, and on tensors.",
                      [] { return "attn " + version(); });
  Parser app = command.parser();
  std::vector<NamedVerb> verbs;
  for (const Verb* verb : all_verbs) verbs.push_back({verb, app.add_verb(verb->name, verb->description), {}});
  // The footer is set after the verbs are added, because they would inherit it.
  app.footer("attn VERB --help says more.  attn explain \"Life is short, eat dessert first\"");
  const auto given = [&] {
    return std::find_if(verbs.begin(), verbs.end(), [](const NamedVerb& verb) { return verb.parser.parsed(); });
  };
  const auto who = [&] { return given() == verbs.end() ? "attn" : "attn " + given()->parser.name(); };
  std::vector<std::string> rest;  // the words after --, which are never options
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  std::vector<std::string> arguments = words;
  const auto language = [&] { return command_language(words); };  // only help and errors ask
  const auto help = [&](std::string text) { return language() == Language::zh ? help_in_chinese(text) : text; };
  const auto of_ranks = [&](const RankError& error) {
    const Complaint what = complaint_of(error);
    return complain(what.usage ? kUsage : kFailed, what.usage ? who() : "attn", what.text, language());
  };
  const auto refused = [&](int code, const std::string& name, const std::string& text) {
    try {
      if (given() == verbs.end() || given()->verb->knows_ranks) refuse_together(text);
    } catch (const RankError& error) { return of_ranks(error); }
    return complain(code, name, text, language());
  };
  try {
    const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
    if (dashes != arguments.end()) rest.assign(dashes + 1, arguments.end());
    arguments.erase(dashes, arguments.end());
    rewrite_help(app, arguments);
    for (NamedVerb& each : verbs)
      if (std::find(arguments.begin(), arguments.end(), each.verb->name) != arguments.end())
        each.run = each.verb->add_options(each.parser);
    if (arguments.empty() && rest.empty()) {
      say(help(app.help()));
      return kUsage;
    }
    if (const std::string text = app.parse(std::move(arguments)); !text.empty()) {
      if (launch().rank == 0) print(help(text));
      return 0;
    }
    const bool none = given() == verbs.end();
    const std::vector<std::string> unknown = app.remaining();
    if (!unknown.empty()) unknown_argument(app, none ? nullptr : &given()->parser, unknown.front());
    if (none)
      throw UsageError{
          "which verb? explain, run, info, verify, bench, train, generate, chat, embed, rank, perplexity, convert or "
          "completion (attn --help)"};
    if (!given()->verb->knows_ranks) one_process(given()->parser.name());
    given()->run(rest);
    return 0;
  } catch (const ReaderGone&) { return 0; } catch (const UsageError& error) {
    return refused(kUsage, who(), error.text);
  } catch (const RankError& error) { return of_ranks(error); } catch (const Error& error) {
    return refused(kFailed, "attn", std::string(first_line(error.what())));
  } catch (const std::bad_alloc&) {
    return complain(kFailed, who(), "not enough memory", language());
  } catch (const std::exception& error) { return complain(kFailed, who(), error.what(), language()); }
}

}  // namespace
}  // namespace attn::cli

namespace {

/// For each standard stream that the caller has closed, opens /dev/null in the wrong direction, so that using the
/// stream fails. Otherwise the next file that is opened would get its descriptor, and errors and progress would be
/// written into that file.
void keep_streams_apart() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0)
      static_cast<void>(::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
}

}  // namespace

int main(int argc, char** argv) {
  keep_streams_apart();
  std::signal(SIGPIPE, SIG_IGN);  // write() to a closed pipe then returns an error instead of ending the process
  std::signal(SIGXFSZ, SIG_IGN);  // likewise for a write beyond the limit of file sizes
  try {
    const int code = attn::cli::run(argc, argv);
    attn::cli::leave_ranks();
    return code;
  } catch (...) {
    std::fputs("attn: failed\n", stderr);
    return 1;
  }
}
