// tests/attention/combined_options_test.cc: four options drawn at random, and the bits of the specification on every
// kernel and way there is.
#include "verify/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace attn::cases {
namespace {

using Random = std::mt19937;

std::string one_of(Random& random, const std::vector<std::string>& words) { return words[random() % words.size()]; }

/// What may be asked for, each with the words it may be asked for in.
const std::map<std::string, std::vector<std::string>> options = {
    {"score", {"score=additive A=7", "score=additive A=16", "score=general"}},
    {"mask",
     {"mask=causal(bottom_right)", "mask=window(9,3,bottom_right)", "mask=bool",
      "mask=causal(bottom_right)&window(70,0,bottom_right)|prefix(3)", "mask=~window(20,5,bottom_right)",
      "mask=blocks(16,32,2)", "mask=blocks(1,8,5)&causal(bottom_right)"}},
    {"bias", {"bias=dense", "bias=key", "bias=alibi", "bias=relative"}},
    {"score_mod",
     {"score_mod=s-slope[h]*(i(bottom_right)-j)", "score_mod=max(s,0.1*s)+0.1*h",
      "score_mod=where((i(bottom_right)-j)//8%3!=1,2.5*tanh(s/2.5),-inf)"}},
    {"softcap", {"softcap=2", "softcap=30"}},
    {"temperature", {"temperature=0.5", "temperature=3"}},
    {"sinks", {"sinks=1"}},
    {"dropout", {"dropout=0.1", "dropout=0.5"}},
    {"lengths",
     {"lengths=keys hidden=nan", "lengths=rows", "lengths=starts hidden=nan", "lengths=all", "lengths=packed"}},
    {"layout", {"layout=turned"}},
    {"heads", {"Hk=2", "Hk=1", "Hv=2"}},
    {"weights", {"weights=full", "weights=head_average", "weights=column_sums", "weights=rows", "weights=top_k"}},
    {"cache",
     {"cache=pages16", "cache=pages64", "cache=block", "cache=pages32 storage=int8", "cache=block storage=int8"}},
};

/// Whether the words go together, as inputs.cc has it.
bool together(const std::string& line) {
  const auto has = [&](const char* word) { return line.find(word) != std::string::npos; };
  if (has("lengths=packed") &&
      (has("mask=bool") || has("mask=blocks") || has("bias=dense") || has("bias=key") || has("cache=")))
    return false;
  if (has("cache=") && has("lengths=") && !has("lengths=keys")) return false;
  return true;
}

/// The words of `begin` drawn one of each, and four options, which are in `names`.
std::string drawn(Random& random, const std::vector<std::vector<std::string>>& begin, std::set<std::string>& names) {
  std::vector<std::string> all;
  for (const auto& [name, words] : options) all.push_back(name);
  while (true) {
    std::shuffle(all.begin(), all.end(), random);
    std::string line;
    for (const std::vector<std::string>& words : begin) line += one_of(random, words);
    names = {all.begin(), all.begin() + 4};
    for (const std::string& name : names)
      if (line.find(name + "=") == std::string::npos) line.append(" ").append(one_of(random, options.at(name)));
    if (together(line)) return line;
  }
}
std::string drawn(Random& random, std::set<std::string>& names) {
  return drawn(random,
               {{"attention f32", "attention f32", "attention f64"},
                {" B=1", " B=2", " B=3"},
                {" Hq=4"},
                {" Tq=1 Tk=90", " Tq=3 Tk=1100", " Tq=35 Tk=140", " Tq=70 Tk=140"},
                {" D=8", " D=17", " D=32"},
                {"", " Dv=5", " Dv=24"}},
               names);
}

/// The specification's bits by query tiles, heads together and key splits of each instruction set, and by the library
/// on 1, 2 and 3 threads.
TEST(CombinedOptions, FourAtRandomHaveTheBitsOfTheSpecification) {
  constexpr int cases = 300;
  std::set<std::set<std::string>> seen;
  std::map<std::string, int> of_each;
  std::vector<std::string> lines;
  Random random(20);
  for (int n = 0; n < cases; ++n) {
    std::set<std::string> names;
    lines.push_back(drawn(random, names));
    seen.insert(names);
    for (const std::string& name : names) ++of_each[name];
  }
  for (const auto& [name, words] : options) EXPECT_GT(of_each[name], 40) << name;
  EXPECT_GT(seen.size(), 150U) << "different fours";
  const VerifyReport report = compare(lines, all_ways());
  EXPECT_TRUE(report.passed()) << report.difference << "\nattn verify '" << report.line << "'";
  for (const VerifyRow& row : report.rows)
    if (row.name.find("strips") != std::string::npos || row.name.find("library") != std::string::npos) {
      EXPECT_EQ(row.cases, cases) << row.name;
    }
}

/// Few rows over 8 bits, which are widened in registers, of as many keys as end anywhere in a tile.
TEST(CombinedOptions, FourAtRandomOverBytesHaveTheBitsOfTheSpecification) {
  std::vector<std::string> lines;
  Random random(60);
  while (lines.size() < 150) {
    std::set<std::string> names;
    lines.push_back(drawn(random,
                          {{"attention f32", "attention f32", "attention f64"},
                           {" B=1", " B=2"},
                           {" Hq=4"},
                           {" Tq=1", " Tq=2", " Tq=5", " Tq=8"},
                           {" Tk=5", " Tk=20", " Tk=40", " Tk=77", " Tk=100", " Tk=150", " Tk=1050"},
                           {" D=16", " D=32", " D=64", " D=80", " D=120", " D=128"},
                           {"", " Dv=16", " Dv=40"},
                           {" cache=pages16 storage=int8", " cache=pages64 storage=int8", " cache=block storage=int8"}},
                          names));
    std::string& line = lines.back();
    if (lines.size() % 3 == 0 && line.find("score=") == std::string::npos)  // whose projections are rounded to 16 bits
      line.replace(line.find("f32") == std::string::npos ? line.find("f64") : line.find("f32"), 3,
                   lines.size() % 2 ? "bf16" : "f16");
  }
  const VerifyReport report = compare(lines, all_ways());
  EXPECT_TRUE(report.passed()) << report.difference << "\nattn verify '" << report.line << "'";
}

/// bf16 and f16: one target's bits whatever the cut, near the specification of the widened inputs.
TEST(CombinedOptions, FourAtRandomOfSixteenBitsAgreeHoweverTheyAreCut) {
  std::vector<std::string> lines;
  Random random(40);
  while (lines.size() < 60) {
    std::set<std::string> names;
    std::string line = drawn(random, names);
    const std::size_t dtype = line.find(line.starts_with("attention f32") ? "f32" : "f64");
    line.replace(dtype, 3, lines.size() % 2 ? "bf16" : "f16");
    lines.push_back(line);
  }
  const VerifyReport report = compare(lines, all_ways());
  EXPECT_TRUE(report.passed()) << report.difference << "\nattn verify '" << report.line << "'";
}

}  // namespace
}  // namespace attn::cases
