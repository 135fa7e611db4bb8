// tests/support/tutorial.h: the figures of one tutorial by name, and the check that every one of them can be computed.
#pragma once
#include "support/golden.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace attn::testing {

/// The steps of tests/golden/full/<number>_*.json: what a step has as its inputs, and what it shall give.
class Tutorial {
 public:
  explicit Tutorial(const std::string& number);
  /// The step's value, with the bits the file gives; ValueError when there is none of that name.
  const Tensor& operator()(const std::string& name) const;
  const std::string& number() const { return number_; }
  /// In the order of the tutorial.
  const std::vector<std::string>& names() const { return names_; }
  /// Those whose numbers the tutorial prints.
  const std::vector<std::string>& printed() const { return printed_; }

 private:
  std::string number_;
  std::vector<std::string> names_, printed_;
  std::map<std::string, Tensor> values_;
};

/// How a step is computed, maybe in several ways, and how near each must come.
struct Step {
  bool exact;  ///< random numbers, copies, comparisons: the same bits; else within 2e-6 of the largest term
  std::vector<std::function<Tensor()>> ways;
  double largest_term = 0;  ///< of the sums; 0: the largest number of the result
};
template <typename... Ways>
Step exact(Ways... ways) {
  return {true, {ways...}};
}
template <typename... Ways>
Step close(Ways... ways) {
  return {false, {ways...}};
}
using Steps = std::map<std::string, Step>;

/// Adds steps that are random numbers, each drawn at its place of the tutorial's run.
void add_drawn(Steps& steps, const std::vector<std::pair<std::string, Tensor>>& drawn);

/// Every step of the tutorial has a computation here that gives its value, and where the tutorial prints it, its
/// digits; and there is no computation without a step. Returns how many steps there are.
std::size_t expect_every_step(const Tutorial& tutorial, const Steps& steps);

/// Half a unit of each number's last printed digit: the fourth decimal, or the fourth of its power of ten where torch
/// prints so.
::testing::AssertionResult prints_as(const Tensor& ours, const Tensor& printed, double half_unit = 5e-5);

}  // namespace attn::testing
