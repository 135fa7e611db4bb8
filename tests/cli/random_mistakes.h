// tests/cli/random_mistakes.h: wrong command lines at random: a mistake that no other word can mend, and words around
// it.
#pragma once
#include "cli/command.h"

#include <random>
#include <string>
#include <vector>

namespace attn::testing {

/// An option of a verb as its --help has it.
struct HelpOption {
  std::string name, value;  // "--heads", "N"; a switch has no value
  bool many = false;        // may be given more than once
};

/// Draws command lines that cannot be right.
class RandomMistakes {
 public:
  RandomMistakes(std::uint64_t seed, const Folder& folder);
  /// The arguments behind `attn`.
  std::vector<std::string> next();

 private:
  struct Verb {
    std::string name;
    std::vector<HelpOption> options;
  };
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(draw_() % n); }
  template <typename T>
  const T& any(const std::vector<T>& values) {
    return values[below(values.size())];
  }
  std::string garbage();
  std::string wrong_value(const std::string& kind);
  std::string wrong_file();
  std::string wrong_line();
  std::vector<std::string> mistake(const Verb& verb);

  std::mt19937_64 draw_;
  const Folder& folder_;
  std::vector<Verb> verbs_;
};

}  // namespace attn::testing
