// src/cli/completion.cc: implements attn completion: prints shell scripts that complete verbs and options, made from
// the parser itself.
#include "cli/output.h"
#include "cli/verbs.h"

#include "runtime/format.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <ranges>

namespace attn::cli {
namespace {

/// Returns the words that each option accepts. The key is the option's name; verb and option where a verb differs.
const std::map<std::string, std::string>& values_of_options() {
  static const std::map<std::string, std::string> values{
      {"--score", "scaled_dot dot general additive"},
      {"--positions", "none sinusoidal rotary"},
      {"--bias", "none alibi relative alibi_symmetric"},
      {"--cache", "same int8"},
      {"--rank-cache", "auto heads spans"},
      {"explain --tokens", "auto words characters"},
      {"train --tokens", "characters words bpe"},
      {"train --size", "nano baby small"},
      {"--lang", "en zh"},
      {"--color", "auto always never"},
      {"--colour", "auto always never"},
      {"--normalizer", "softmax softmax1 sigmoid sparsemax entmax15 relu_squared"},
      {"--return-weights", "none full head_average column_sums"},
      {"--dtype", "f32 f64 bf16 f16"},
      {"train --dtype", "f32 bf16"},
      {"--format", "chatml llama3 gemma mistral"},
      {"--type", "F32 F16 BF16 Q8_0 Q4_0"}};
  return values;
}

/// Returns the words that the option of this verb accepts; null if there is no list.
const std::string* values_of(const Parser& verb, const std::string& option) {
  for (const std::string& key : {verb.name() + " " + option, option})
    if (const auto found = values_of_options().find(key); found != values_of_options().end()) return &found->second;
  return nullptr;
}

/// The options whose value is a file or a folder.
constexpr std::array file_options{"--weights", "--svg", "--html", "--out", "--log", "--model", "--prompts", "--draft"};
/// The verbs whose arguments are files or folders.
constexpr std::array file_verbs{"run", "train", "generate", "chat", "perplexity", "embed", "rank", "convert", "info"};

bool takes_file(const std::string& option) {
  return std::find(file_options.begin(), file_options.end(), option) != file_options.end();
}
bool names_file(const Parser& verb) {
  return std::find(file_verbs.begin(), file_verbs.end(), verb.name()) != file_verbs.end();
}

struct Described {
  std::string name, text;
  bool takes_value = false;
};

std::vector<Described> options_of(const Parser& parser) {
  std::vector<Described> result;
  for (const Option& option : parser.options())
    for (const std::string& name : option.long_names())
      result.push_back({"--" + name, option.description(), option.takes_value()});
  return result;
}

std::string names(const std::vector<Described>& options) {
  std::string result;
  for (const Described& option : options) result += (result.empty() ? "" : " ") + option.name;
  return result;
}

std::string verb_names(const Parser& app) {
  std::string result;
  for (const Parser& verb : app.verbs()) result += (result.empty() ? "" : " ") + verb.name();
  return result;
}

std::string bash(const Parser& app) {
  std::string script =
      "# bash completion of attn: source <(attn completion bash)\n_attn() {\n  local "
      "word=\"${COMP_WORDS[COMP_CWORD]}\" "
      "before=\"${COMP_WORDS[COMP_CWORD-1]}\"\n  COMPREPLY=()\n"
      "  if [ \"$word\" = = ]; then word=; elif [ \"$before\" = = ]; then before=\"${COMP_WORDS[COMP_CWORD-2]}\"; fi\n "
      " case \"${COMP_WORDS[1]} $before\" in\n";
  // The first pattern that fits counts: backwards, those of one verb come before those of all.
  for (const auto& [option, values] : std::views::reverse(values_of_options()))
    script += runtime::format("    {}\"{}\") COMPREPLY=($(compgen -W \"{}\" -- \"$word\")); return ;;\n",
                              option.starts_with("-") ? "*\" \"" : "", option, values);
  std::string files;
  for (const char* option : file_options) files += runtime::format("{}*\" {}\"", files.empty() ? "" : "|", option);
  // A file name may contain spaces, so each line of compgen's output is one name.
  script += runtime::format(
      "    {}) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$word\"); return ;;\n  "
      "esac\n",
      files);
  script += runtime::format(
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W \"{} help --help --version\" -- \"$word\")); "
      "return; fi\n",
      verb_names(app));
  script +=
      runtime::format("  case \"${{COMP_WORDS[1]}}\" in\n    help) COMPREPLY=($(compgen -W \"{}\" -- \"$word\")) ;;\n",
                      verb_names(app));
  for (const Parser& verb : app.verbs()) {
    const bool shells = verb.name() == "completion", files = names_file(verb);
    script += runtime::format("    {}) {}mapfile -t COMPREPLY < <(compgen -W \"{}{}\" -- \"$word\"{}) ;;\n",
                              verb.name(), files ? "compopt -o filenames 2>/dev/null; " : "", names(options_of(verb)),
                              shells ? " bash zsh fish" : "", files ? "; compgen -f -- \"$word\"" : "");
  }
  return script + "  esac\n}\ncomplete -F _attn attn\n";
}

/// Quotes a text in single quotes, with a backslash before each character of `special`.
std::string quoted(const std::string& text, const std::string& special) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string::npos) result += '\\';
    if (c == '\'') result += "'\\'";
    result += c;
  }
  return result;
}
constexpr const char* kZshSpecial = "[]:";
constexpr const char* kHelpText = "What a verb takes";

std::string zsh(const Parser& app) {
  std::string script =
      "#compdef attn\n# zsh completion of attn: attn completion zsh > \"${fpath[1]}/_attn\"\n_attn() {\n  if (( "
      "CURRENT == 2 )); then\n    "
      "local -a verbs\n    verbs=(";
  for (const Parser& verb : app.verbs())
    script += runtime::format("'{}:{}' ", verb.name(), quoted(verb.description(), kZshSpecial));
  script += runtime::format(
      "'help:{}')\n    _describe verb verbs\n    _arguments '--help[Help]' '--version[Version]'\n    return\n  fi\n",
      kHelpText);
  script +=
      runtime::format("  case \"$words[2]\" in\n    help) shift words; (( CURRENT-- )); _arguments '1:verb:({})' ;;\n",
                      verb_names(app));
  for (const Parser& verb : app.verbs()) {
    script += runtime::format("    {}) shift words; (( CURRENT-- )); _arguments", verb.name());
    for (const Option& option : verb.options())
      for (const std::string& name : option.long_names()) {
        const std::string full = "--" + name;
        const std::string* values = values_of(verb, full);
        std::string action;
        if (values != nullptr) action = runtime::format(":value:({})", *values);
        else if (takes_file(full)) action = ":file:_files";
        else if (option.takes_value()) action = ":value:";
        script += runtime::format(" '{}{}[{}]{}'", full, action.empty() ? "" : "=",
                                  quoted(option.description(), kZshSpecial), action);
      }
    script += verb.name() == "completion" ? " '1:shell:(bash zsh fish)'"
              : names_file(verb)          ? " '*:file:_files'"
                                          : " '*:argument: '";
    script += " ;;\n";
  }
  return script +
         "  esac\n}\nif [[ \"${funcstack[1]}\" == _attn ]]; then _attn \"$@\"; elif (( $+functions[compdef] )); then "
         "compdef _attn attn; else print -u2 \"attn: completion needs compinit first\"; fi\n";
}

std::string fish(const Parser& app) {
  std::string script =
      "# fish completion of attn: attn completion fish > ~/.config/fish/completions/attn.fish\nfunction __attn_verb\n  "
      "set -l words "
      "(commandline -opc)\n  test (count $words) -gt 1; and contains -- $words[2] $argv\nend\ncomplete -c attn -f\n";
  for (const Parser& verb : app.verbs()) {
    const std::string& name = verb.name();
    script += runtime::format("complete -c attn -n __fish_use_subcommand -a {} -d '{}'\n", name,
                              quoted(verb.description(), ""));
    for (const Described& option : options_of(verb)) {
      const std::string* values = values_of(verb, option.name);
      const std::string more = values != nullptr         ? runtime::format(" -x -a '{}'", *values)
                               : takes_file(option.name) ? " -r -F"
                               : option.takes_value      ? " -x"
                                                         : "";
      script += runtime::format("complete -c attn -n '__attn_verb {}' -l {} -d '{}'{}\n", name, option.name.substr(2),
                                quoted(option.text, ""), more);
    }
  }
  script += runtime::format("complete -c attn -n __fish_use_subcommand -a help -d '{}'\n", kHelpText);
  script +=
      "complete -c attn -n __fish_use_subcommand -l help -d Help\ncomplete -c attn -n __fish_use_subcommand -l version "
      "-d Version\n";
  script += runtime::format("complete -c attn -n '__attn_verb help' -a '{}'\n", verb_names(app));
  script += "complete -c attn -n '__attn_verb completion' -a 'bash zsh fish'\n";
  std::string files;
  for (const char* verb : file_verbs) files += std::string(" ") + verb;
  return script + runtime::format("complete -c attn -n '__attn_verb{}' -F\n", files);
}

Run add_completion_options(Parser parser) {
  auto shell = std::make_shared<std::string>();
  parser.option("SHELL", *shell, "bash, zsh or fish").type_name("");
  parser.footer(
      "Examples\n  source <(attn completion bash)\n  source <(attn completion zsh)\n  attn completion fish | source");
  return [shell](const std::vector<std::string>& rest) {
    no_more(rest);
    if (shell->empty()) throw UsageError{"which shell? bash, zsh or fish"};
    const std::size_t which = choose("SHELL", *shell, {"bash", "zsh", "fish"});
    CommandLine command("attn", "", [] { return std::string(); });
    const Parser app = command.parser();
    std::vector<Run> runs;  // they own what the options write to
    for (const Verb* verb : all_verbs)
      runs.push_back(verb->add_options(command.parser().add_verb(verb->name, verb->description)));
    print(which == 0 ? bash(app) : which == 1 ? zsh(app) : fish(app));
  };
}

}  // namespace

const Verb completion_verb{"completion", "Completion for bash, zsh or fish", add_completion_options};

}  // namespace attn::cli
