// tests/cli/random_mistakes_test.cc: 500 wrong command lines (ATTN_TEST_FULL=1: 5,000) end with one clean, short line.
#include "cli/random_mistakes.h"

#include <attn/text.h>

#include <gtest/gtest.h>

#include <fcntl.h>
#include <spawn.h>

#include <algorithm>
#include <iostream>
#include <sstream>

extern char** environ;

namespace attn::testing {

RandomMistakes::RandomMistakes(std::uint64_t seed, const Folder& folder) : draw_(seed), folder_(folder) {
  for (const char* name : {"explain", "run", "info", "verify", "bench", "train", "generate", "chat", "perplexity",
                           "convert", "completion"}) {
    Verb verb{.name = name, .options = {}};
    std::istringstream help(attn_says(verb.name + " --help").out);
    for (std::string line; std::getline(help, line);) {
      std::istringstream words(line);
      HelpOption option;
      words >> option.name >> option.value;
      if (!line.starts_with("  --")) continue;
      option.name = option.name.substr(0, option.name.find(','));
      const bool value = line.size() > 4 + option.name.size() && line[2 + option.name.size()] == ' ' &&
                         line[3 + option.name.size()] != ' ';
      if (!value) option.value.clear();
      option.many = line.find(" ... ") != std::string::npos;
      verb.options.push_back(option);
    }
    if (verb.options.empty()) verb.options.push_back({"--shell", "NAME"});  // none of its own: there is no such option
    verbs_.push_back(verb);
  }
}

/// Bytes that no option means; some are long, some are not UTF-8, some would move the cursor of a terminal.
std::string RandomMistakes::garbage() {
  static const std::vector<std::string> known{"?",
                                              "1e",
                                              "0x",
                                              "two",
                                              "\x1b[2J",
                                              "\xff\xfe",
                                              "%s%n",
                                              "1 2",
                                              "caus al",
                                              "s +",
                                              "((((",
                                              "'\"",
                                              "\xe4\xbd\xa0",
                                              "f33",
                                              "\r\n",
                                              "\xc2\x9b"
                                              "1m",
                                              "top_k(-1)",
                                              "--",
                                              "\xe2\x80\xae",
                                              "a=b"};
  std::string text = "?" + any(known);
  if (below(8) == 0) text += std::string(below(100000), static_cast<char>('(' + below(60)));
  for (std::size_t n = below(6); n > 0; --n) text += static_cast<char>(1 + below(255));
  return text;
}

std::string RandomMistakes::wrong_file() {
  switch (below(4)) {
    case 0: return "/nowhere/" + garbage().substr(0, 3000);
    case 1: return "/";
    case 2: return folder_.write("empty", "");
    default: {  // no JSON, no tensors
      static const std::vector<std::string> starts{"",
                                                   "{\"q\": [[1",
                                                   "{\"q\": [[1]], \"k\": [[1, 2]], \"v\": [[1]]",
                                                   "{}",
                                                   "[",
                                                   "\x93NUMPY",
                                                   "PK\x03\x04",
                                                   std::string("\x20\0\0\0\0\0\0\0{\"q\":", 13),
                                                   "{\"q\": 1, \"k\": [[1]], \"v\": [[1]]}"};
      return folder_.write("wrong", any(starts) + garbage());
    }
  }
}

/// Of attn verify and attn bench: at least one field is none.
std::string RandomMistakes::wrong_line() {
  static const std::vector<std::string> words{"attention", "f32",        "matmul", "bf16", "B=2", "Tq=3", "mask=causal",
                                              "D=8",       "bias=alibi", "",       "B=",   "=",   "M=-1"};
  std::string line;
  for (std::size_t n = below(6); n > 0; --n) line += any(words) + " ";
  return line + garbage();
}

/// A value that an option of this kind, by its name in --help, does not take.
std::string RandomMistakes::wrong_value(const std::string& kind) {
  if (kind == "FILE" || kind == "FOLDER") return "/nowhere/" + garbage().substr(0, 3000);
  if (kind == "N" || kind == "K" || kind == "X" || kind == "P") {
    static const std::vector<std::string> numbers{"",    "x", "-",   "1e", "99999999999999999999", "1.5.2", "0x",
                                                  "1,5", " ", "--1", "one"};
    if (below(2) == 0) return any(numbers);
  }
  return garbage();
}

std::vector<std::string> RandomMistakes::mistake(const Verb& verb) {
  const HelpOption& option = any(verb.options);
  // A text may be anything, and what is written fails only when there is something to write.
  const bool checked = !option.value.empty() && !option.value.starts_with("TEXT") && option.value != "WORDS" &&
                       option.name != "--out" && option.name != "--svg" && option.name != "--log" &&
                       option.name != "--weights" && option.name != "--model" && option.name != "--prompts";
  switch (below(8)) {
    case 0: return {"--" + std::string(1, static_cast<char>('a' + below(26))) + "q" + garbage()};
    case 1: return {option.name + "q", "1"};
    case 2: return {"-" + std::string(1, static_cast<char>('i' + below(17)))};
    case 3:
      if (checked) return {option.name, wrong_value(option.value)};
      break;
    case 4:
      if (checked) return {option.name + "=" + wrong_value(option.value)};
      break;
    case 5:
      if (!option.many && !option.value.empty()) return {option.name + "=1", option.name + "=2"};
      break;
    case 6:
      if (verb.name == "verify" || verb.name == "bench") return {wrong_line()};
      break;
    default: break;
  }
  if (verb.name == "run" || verb.name == "generate" || verb.name == "chat") return {wrong_file()};
  if (verb.name == "train") return {wrong_value("FILE")};
  return {"--n" + garbage()};
}

std::vector<std::string> RandomMistakes::next() {
  if (below(12) == 0) return {"q" + garbage(), "--help" + garbage()};  // no verb
  const Verb& verb = any(verbs_);
  std::vector<std::string> arguments = mistake(verb);
  arguments.insert(arguments.begin(), verb.name);
  for (std::size_t n = below(4); n > 0; --n) {  // more of the same, right or wrong
    const HelpOption& option = any(verb.options);
    arguments.push_back(option.name);
    if (!option.value.empty() && below(8) != 0)
      arguments.push_back(below(2) == 0 ? std::to_string(below(9)) : wrong_value(option.value));
  }
  return arguments;
}

namespace {

/// Runs attn with these arguments in the folder, a minute at most.
Said attn_given(const std::vector<std::string>& arguments, const Folder& folder) {
  std::vector<std::string> whole{"timeout", "-s", "KILL", "60", command_path()};
  whole.insert(whole.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : whole) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::string out = folder.file("out"), err = folder.file("err");
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&files, 2, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addchdir_np(&files,
                                       folder.file("").c_str());  // what is written, against expectation, goes with it
  pid_t id = 0;
  int status = 0;
  const int failed = posix_spawnp(&id, "timeout", &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (failed == 0) ::waitpid(id, &status, 0);
  return {failed != 0         ? -failed
          : WIFEXITED(status) ? WEXITSTATUS(status)
                              : -WTERMSIG(status),
          content_of(out), content_of(err)};
}

/// As a shell would have to be given it.
std::string shown(const std::vector<std::string>& arguments) {
  std::ostringstream text;
  for (const std::string& argument : arguments) {
    text << " $'";
    for (const unsigned char byte : argument.substr(0, 300)) {
      const char* digits = "0123456789abcdef";
      if (byte >= 0x20 && byte < 0x7f && byte != '\'' && byte != '\\') text << byte;
      else text << "\\x" << digits[byte / 16] << digits[byte % 16];
    }
    text << "'" << (argument.size() > 300 ? "..." + std::to_string(argument.size()) : "");
  }
  return text.str();
}

TEST(RandomCommandLines, EndWithOneLine) {
  const char* given = std::getenv("ATTN_TEST_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 20240607;
  const char* full = std::getenv("ATTN_TEST_FULL");
  const int lines = full != nullptr && std::string(full) == "1" ? 5000 : 500;
  std::cout << lines << " wrong command lines, seed " << seed << " (ATTN_TEST_SEED repeats a run)" << std::endl;
  ::setenv("LANG", "C", 1);
  const Folder folder;
  RandomMistakes mistakes(seed, folder);
  int failures = 0;
  for (int i = 0; i < lines && failures < 10; ++i) {
    const std::vector<std::string> arguments = mistakes.next();
    const Said said = attn_given(arguments, folder);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", line " + std::to_string(i) + ": attn" + shown(arguments));
    const bool clean = std::none_of(said.err.begin(), said.err.end(),
                                    [](unsigned char c) { return (c < 0x20 && c != '\n') || c == 0x7f; });
    const bool right = (said.code == 1 || said.code == 2) && said.out.empty() && said.err.starts_with("attn") &&
                       said.err.size() <= 500 && clean && std::count(said.err.begin(), said.err.end(), '\n') == 1 &&
                       !text::invalid_utf8(said.err);
    EXPECT_TRUE(right) << "exit " << said.code << ", " << said.out.size() << " bytes on stdout, " << said.err.size()
                       << " on stderr: " << said.err.substr(0, 600);
    failures += right ? 0 : 1;
  }
}

}  // namespace
}  // namespace attn::testing
