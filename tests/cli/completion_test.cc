// tests/cli/completion_test.cc: attn completion as the shells themselves use it; a shell that is not here is left out.
#include "cli/command.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>

namespace attn::testing {
namespace {

bool there_is(const std::string& program) { return shell("command -v " + program + " >/dev/null").code == 0; }

/// What is offered at the end of each line, of files those beside "a call.json".
struct Offer {
  const char *line, *words;
};
const Offer kOffers[] = {{"attn tr", "train"},
                         {"attn --v", "--version"},
                         {"attn help tr", "train"},
                         {"attn completion ", "bash fish zsh"},
                         {"attn train --si", "--size"},
                         {"attn train --size ", "baby nano small"},
                         {"attn train --size n", "nano"},
                         {"attn train --tokens ", "bpe characters words"},
                         {"attn explain --tokens ", "auto characters words"},
                         {"attn explain --score a", "additive"},
                         {"attn explain train --caus", "--causal"},
                         {"attn explain train --ste", ""},
                         {"attn explain --causal x --soft", "--softcap"},
                         {"attn verify --qu", "--quick"},
                         {"attn explain a", ""},
                         {"attn run a", "a call.json"},
                         {"attn train --out a", "a call.json"},
                         {"attn embed --dtype b", "bf16"},
                         {"attn rank --to", "--top"},
                         {"attn rank a", "a call.json"},
                         {"attn perplexity --log", "--log-probabilities"},
                         {"attn convert --type Q", "Q4_0 Q8_0"},
                         {"attn chat --draft a", "a call.json"},
                         {"attn train --dtype ", "bf16 f32"}};

/// More of them. Not for zsh, which takes two seconds for one.
const Offer kMoreOffers[] = {{"attn explain --html a", "a call.json"},
                             {"attn em", "embed"},
                             {"attn embed a", "a call.json"},
                             {"attn embed --ou", "--out"},
                             {"attn embed --out a", "a call.json"},
                             {"attn ra", "rank"},
                             {"attn rank --dtype f", "f16 f32 f64"},
                             {"attn per", "perplexity"},
                             {"attn perplexity a", "a call.json"},
                             {"attn perplexity --dtype b", "bf16"},
                             {"attn conv", "convert"},
                             {"attn convert a", "a call.json"},
                             {"attn convert --ty", "--type"},
                             {"attn ch", "chat"},
                             {"attn chat a", "a call.json"},
                             {"attn chat --form", "--format"},
                             {"attn chat --format l", "llama3"},
                             {"attn info a", "a call.json"}};

TEST(Completion, Bash) {
  const Said bash = attn_says("completion bash");
  EXPECT_EQ(bash.code, 0);
  EXPECT_NE(bash.out.find("complete -F _attn attn"), std::string::npos);
  for (const char* option : {"--causal", "--query", "--positions", "--return-weights"})
    EXPECT_NE(bash.out.find(option), std::string::npos) << option;
  const Folder folder, scripts;
  const std::string script = scripts.write("attn.bash", bash.out);
  const Said completed = shell("bash -c '. " + script +
                               "; COMP_WORDS=(attn explain --cau); COMP_CWORD=2; _attn; echo \"${COMPREPLY[@]}\"'");
  EXPECT_EQ(completed.out, "--causal\n") << completed.err;
  const auto values = [&](const std::string& verb, const std::string& option) {
    return shell("bash -c '. " + script + "; COMP_WORDS=(attn " + verb + " " + option +
                 " \"\"); COMP_CWORD=3; _attn; echo \"${COMPREPLY[@]}\"'")
        .out;
  };
  EXPECT_EQ(values("explain", "--tokens"), "auto words characters\n");
  EXPECT_EQ(values("train", "--tokens"), "characters words bpe\n");
  EXPECT_EQ(values("explain", "--lang"), "en zh\n");
  EXPECT_EQ(values("explain", "--bias"), "none alibi relative alibi_symmetric\n");
  // A word that is cut at "=", as bash gives it.
  EXPECT_EQ(shell("bash -c '. " + script +
                  "; COMP_WORDS=(attn train --size = n); COMP_CWORD=4; _attn; echo \"${COMPREPLY[@]}\"'")
                .out,
            "nano\n");
  EXPECT_EQ(shell("bash -c '. " + script +
                  "; COMP_WORDS=(attn train --size =); COMP_CWORD=3; _attn; echo \"${COMPREPLY[@]}\"'")
                .out,
            "nano baby small\n");
  EXPECT_EQ(values("explain", "--cache"), "same int8\n");
  EXPECT_EQ(
      shell("bash -c '. " + script + "; COMP_WORDS=(attn help tr); COMP_CWORD=2; _attn; echo \"${COMPREPLY[@]}\"'").out,
      "train\n");
  folder.write("a call.json", "{}");
  const std::string at = "cd '" + folder.file(".") + "' && bash -c '. " + script + "; COMP_WORDS=(";
  EXPECT_EQ(shell(at + "attn run \"a c\"); COMP_CWORD=2; _attn; printf \"<%s>\" \"${COMPREPLY[@]}\"'").out,
            "<a call.json>");
  EXPECT_EQ(shell(at + "attn run --out \"a c\"); COMP_CWORD=3; _attn; printf \"<%s>\" \"${COMPREPLY[@]}\"'").out,
            "<a call.json>");
  const auto offered = [&](const std::string& line) {
    std::string words;
    std::istringstream parts(line + (line.ends_with(' ') ? "''" : ""));
    int count = 0;
    for (std::string word; parts >> word; ++count) words += " " + word;
    const std::string offer =
        scripts.write("offer", ". " + script + "\nCOMP_WORDS=(" + words + "); COMP_CWORD=" + std::to_string(count - 1) +
                                   "; _attn; printf '%s\\n' \"${COMPREPLY[@]}\"");
    return shell("cd '" + folder.file(".") + "' && bash " + offer + " | LC_ALL=C sort | paste -sd ' '").out;
  };
  for (const Offer& offer : kOffers) {
    if (offer.line == std::string("attn completion ")) continue;  // bash offers --help there, too
    EXPECT_EQ(offered(offer.line), offer.words + std::string("\n")) << offer.line;
  }
  for (const Offer& offer : kMoreOffers) EXPECT_EQ(offered(offer.line), offer.words + std::string("\n")) << offer.line;
}

TEST(Completion, Fish) {
  if (!there_is("fish")) GTEST_SKIP() << "not installed: fish (./setup --dev)";
  const Folder folder;
  folder.write("a call.json", "{}");
  const std::string begin = "cd '" + folder.file(".") + "' && HOME=$PWD fish --no-config -c '" +
                            attn_command.substr(1, attn_command.size() - 2) +
                            " completion fish | source; complete -C \"";
  const auto offered = [&](const std::string& line) {
    return shell(begin + line + "\"' | cut -f 1 | LC_ALL=C sort | paste -sd ' '").out;
  };
  for (const Offer& offer : kOffers) EXPECT_EQ(offered(offer.line), offer.words + std::string("\n")) << offer.line;
  for (const Offer& offer : kMoreOffers) EXPECT_EQ(offered(offer.line), offer.words + std::string("\n")) << offer.line;
  EXPECT_EQ(offered("attn train --size=n"), "--size=nano\n");
}

TEST(Completion, Zsh) {
  if (!there_is("zsh")) GTEST_SKIP() << "not installed: zsh (./setup --dev)";
  const Folder folder;
  folder.write("a call.json", "{}");
  folder.write("_attn", attn_says("completion zsh").out);
  // A shell on a terminal of its own, which prints what it would offer. Nothing is typed before its line editor is
  // ready and it ends only when told to: a terminal may lose what it holds when its mode changes or its owner leaves.
  folder.write(".zshrc", R"(compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
  typeset -a hits
  builtin compadd -O hits "$@"
  for hit in $hits; do print -r -- "<${(Q)hit}>"; done
}
last() { print -r -- END }
ready() { print -r -- READY }
PROMPT=
autoload -Uz compinit
eval $LOAD
comppostfuncs=(last)
zle -C offer complete-word _main_complete
zle -N zle-line-init ready
bindkey '^I' offer
)");
  folder.write("outer", R"(zmodload zsh/zpty || exit
export ZDOTDIR=$PWD LOAD=$1
zpty inner zsh -d -i
zpty -r inner said '*READY' || exit
zpty -n -w inner "$2"$'\t'
zpty -r inner said '*END'
print -r -- "$said"
)");
  const auto said = [&](const std::string& line, const std::string& how) {
    return shell("cd '" + folder.file(".") + "' && timeout 60 zsh -f outer '" + how + "' '" + line + "'").out;
  };
  const std::string probe = said("nothing", "compinit -u -D");
  if (probe.find("END") == std::string::npos) GTEST_SKIP() << "a zsh without terminals: " << probe;
  const auto offered = [&](const std::string& line, const std::string& how = "fpath=($PWD $fpath); compinit -u -D") {
    std::string words, text = said(line, how);
    std::set<std::string> hits;
    for (std::smatch hit; std::regex_search(text, hit, std::regex("<([^<>]*)>")); text = hit.suffix())
      hits.insert(hit[1]);
    for (const std::string& hit : hits) words += (words.empty() ? "" : " ") + hit;
    return words;
  };
  for (const Offer& offer : kOffers)
    EXPECT_EQ(offered(offer.line), offer.words) << said(offer.line, "fpath=($PWD $fpath); compinit -u -D");
  EXPECT_EQ(offered("attn train --size=n"), "nano");
  EXPECT_EQ(offered("attn explain --cau", "compinit -u -D; source $PWD/_attn"), "--causal");
}

}  // namespace
}  // namespace attn::testing
