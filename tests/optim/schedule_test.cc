// tests/optim/schedule_test.cc: learning rates beside those of torch's schedulers.
#include <attn/optim.h>

#include "support/golden.h"

#include <gtest/gtest.h>

#include <limits>

namespace attn::optim {
namespace {

using Json = nlohmann::json;

TEST(Schedule, IsTorchsSequenceOfLinearAndCosine) {
  for (const Json& c : attn::testing::golden("optim/schedules.json").at("cases")) {
    const std::string decay = c.at("decay");
    const Schedule schedule{.peak = c.at("peak"),
                            .last = c.at("last"),
                            .warmup = c.at("warmup"),
                            .steps = c.at("steps"),
                            .decay = decay == "cosine" ? Schedule::Decay::cosine : Schedule::Decay::linear};
    const std::vector<double> lr = c.at("lr");
    // torch multiplies its way from step to step: an error of some last digits a step
    for (std::size_t i = 0; i < lr.size(); ++i)
      EXPECT_NEAR(schedule(static_cast<std::int64_t>(i)), lr[i],
                  schedule.peak * std::numeric_limits<double>::epsilon() * 4 * static_cast<double>(i + 1))
          << decay << " step " << i;
    EXPECT_EQ(schedule(1'000'000), schedule.last);
  }
  for (const Schedule::Decay decay : {Schedule::Decay::cosine, Schedule::Decay::linear}) {  // no step is left to fall
    const Schedule schedule{.peak = 2, .last = 0.5, .warmup = 3, .steps = 3, .decay = decay};
    std::vector<double> rates;
    for (std::int64_t step = 0; step < 6; ++step) rates.push_back(schedule(step));
    EXPECT_EQ(rates, (std::vector<double>{0.5, 1, 1.5, 2, 0.5, 0.5}));
  }
  EXPECT_EQ((Schedule{.peak = 2, .warmup = 3, .decay = Schedule::Decay::none}(1)), 1);
  EXPECT_EQ((Schedule{.peak = 2, .warmup = 3, .decay = Schedule::Decay::none}(99)), 2);
}

}  // namespace
}  // namespace attn::optim
