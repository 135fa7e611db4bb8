// tests/support/tutorial.h: returns the figures of one tutorial by name, and checks that each of them can be computed.
#pragma once
#include "support/golden.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace attn::testing {

/// Holds the steps of tests/golden/full/<number>_*.json: their names and expected values.
class Tutorial {
 public:
  explicit Tutorial(const std::string& number);
  /// Returns the value of a step, with the bits of the file; throws ValueError if there is no step of that name.
  const Tensor& operator()(const std::string& name) const;
  const std::string& number() const { return number_; }
  /// Returns the names of the steps in the order of the tutorial.
  const std::vector<std::string>& names() const { return names_; }
  /// Returns the steps whose numbers the tutorial prints.
  const std::vector<std::string>& printed() const { return printed_; }

 private:
  std::string number_;
  std::vector<std::string> names_, printed_;
  std::map<std::string, Tensor> values_;
};

/// Holds how a step is computed, possibly in several ways, and the tolerance of each.
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

/// Adds steps that are random numbers, each drawn at its position in the tutorial's run.
void add_drawn(Steps& steps, const std::vector<std::pair<std::string, Tensor>>& drawn);

/// Checks that every step of the tutorial has a computation that gives its value and, if the tutorial prints the step,
/// its digits; and that every computation belongs to a step. Returns the number of steps.
std::size_t expect_every_step(const Tutorial& tutorial, const Steps& steps);

/// Checks that the numbers agree within half a unit of the last printed digit: the fourth decimal, or the fourth
/// decimal of the power of ten if torch prints powers of ten.
::testing::AssertionResult prints_as(const Tensor& ours, const Tensor& printed, double half_unit = 5e-5);

}  // namespace attn::testing
