// tests/tutorials/steps_test.cc: the check of the tutorials' steps finds what is missing, wrong or too much; there are
// 211 steps.
#include "support/tutorial.h"

#include <gtest/gtest-spi.h>

namespace attn::testing {
namespace {

/// Every step "computed" as its own value.
Steps copies(const Tutorial& tutorial) {
  Steps steps;
  for (const std::string& name : tutorial.names()) steps[name] = exact([value = tutorial(name)] { return value; });
  return steps;
}

TEST(TutorialSteps, AreTwoHundredAndEleven) {
  std::size_t steps = 0;
  for (const std::string number : {"000", "001", "002", "003", "004"}) {
    const Tutorial tutorial(number);
    steps += expect_every_step(tutorial, copies(tutorial));
  }
  EXPECT_EQ(steps, 211u);
}

TEST(TutorialSteps, AMissingStepFails) {
  const Tutorial tutorial("004");
  Steps steps = copies(tutorial);
  steps.erase("keys");
  EXPECT_NONFATAL_FAILURE(expect_every_step(tutorial, steps), "no computation for this step");
}

TEST(TutorialSteps, AStepTooMuchFails) {
  const Tutorial tutorial("004");
  Steps steps = copies(tutorial);
  steps["kees"] = steps["keys"];
  EXPECT_NONFATAL_FAILURE(expect_every_step(tutorial, steps), "004 has no step kees");
}

TEST(TutorialSteps, AWrongStepFails) {
  const Tutorial tutorial("004");
  Steps steps = copies(tutorial);
  steps["keys"] = close([&] { return tutorial("keys") * 1.000004; });
  EXPECT_NONFATAL_FAILURE(expect_every_step(tutorial, steps), "apart");
  steps["keys"] = close([&] { return tutorial("keys") * 1.000001; });
  expect_every_step(tutorial, steps);
  steps["keys"] = exact([&] { return tutorial("keys") * 1.000001; });
  EXPECT_NONFATAL_FAILURE(expect_every_step(tutorial, steps), "is not");
}

TEST(TutorialSteps, WrongDigitsFail) {
  const Tensor printed = tensor<double>({0.1235, -2.0});
  EXPECT_TRUE(prints_as(tensor<double>({0.12346, -2.00004}), printed));
  EXPECT_FALSE(prints_as(tensor<double>({0.12344, -2.0}), printed));
  EXPECT_FALSE(prints_as(tensor<double>({0.1235}), printed));
  const Tensor powers = tensor<double>({1.2346e-8, 2.0e-5});  // printed as powers of ten: their digits count
  EXPECT_TRUE(prints_as(tensor<double>({1.23463e-8, 2.0e-5}), powers));
  EXPECT_FALSE(prints_as(tensor<double>({1.2350e-8, 2.0e-5}), powers));
}

}  // namespace
}  // namespace attn::testing
