// tests/runtime/floating_point_test.cc: what the caller did to rounding and denormals ends at the door, and is there
// again outside.
#include "runtime/parallel.h"

#include <attn/runtime.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <limits>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace attn {
namespace {

/// 1 / 3 in the current rounding, and whether denormals live; volatile keeps the compiler from knowing.
float third() {
  volatile float one = 1, three = 3;
  return one / three;
}
bool denormals_live() {
  volatile float least = std::numeric_limits<float>::min(), half = 0.5f;
  volatile float denormal = least * half;
  return denormal != 0 && denormal + denormal == least;
}

const float nearest_third = 1.0f / 3.0f;

struct Found {
  std::atomic<int> rounded{0}, flushed{0};
};
void expect_default_inside(int threads, std::int64_t parts) {
  const int before = num_threads();
  set_num_threads(threads);
  Found found;
  runtime::parallel_for(parts, [&](std::int64_t) {
    found.rounded += third() != nearest_third || std::fegetround() != FE_TONEAREST;
    found.flushed += !denormals_live();
  });
  set_num_threads(before);
  EXPECT_EQ(found.rounded, 0) << threads << " threads, " << parts << " parts";
  EXPECT_EQ(found.flushed, 0) << threads << " threads, " << parts << " parts";
}

TEST(FloatingPoint, RoundingIsNearestInsideAndTheCallersOutside) {
  for (int rounding : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO})
    for (int threads : {1, 2, 3})
      for (std::int64_t parts : {1, 2, 100}) {
        std::fesetround(rounding);
        const float outside = third();
        expect_default_inside(threads, parts);
        EXPECT_EQ(std::fegetround(), rounding);
        EXPECT_EQ(third(), outside);
        std::fesetround(FE_TONEAREST);
      }
}

TEST(FloatingPoint, APartThatChangesRoundingDisturbsNobody) {
  for (int threads : {1, 2}) {
    set_num_threads(threads);
    std::atomic<int> wrong{0};
    runtime::parallel_for(100, [&](std::int64_t) {
      wrong += std::fegetround() != FE_TONEAREST;
      std::fesetround(FE_UPWARD);
    });
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(std::fegetround(), FE_TONEAREST);
  }
}

TEST(FloatingPoint, TheCallersFlagsStayAsTheyWere) {
  std::feclearexcept(FE_ALL_EXCEPT);
  runtime::parallel_for(10, [](std::int64_t) { third(); });
  EXPECT_EQ(std::fetestexcept(FE_ALL_EXCEPT), 0);
  std::feraiseexcept(FE_DIVBYZERO);
  runtime::parallel_for(10, [](std::int64_t) { third(); });
  EXPECT_EQ(std::fetestexcept(FE_ALL_EXCEPT), FE_DIVBYZERO);
  std::feclearexcept(FE_ALL_EXCEPT);
}

#if defined(__x86_64__)
TEST(FloatingPoint, FlushingOfDenormalsEndsAtTheDoor) {
  const unsigned before = _mm_getcsr();
  for (unsigned flush : {0x8000u, 0x0040u, 0x8040u}) {  // FTZ, DAZ, both
    for (int threads : {1, 2, 3})
      for (std::int64_t parts : {1, 2, 100}) {
        _mm_setcsr(before | flush);
        EXPECT_FALSE(denormals_live());
        expect_default_inside(threads, parts);
        EXPECT_EQ(_mm_getcsr() & 0x8040u, flush);
        _mm_setcsr(before);
      }
  }
}
#endif

}  // namespace
}  // namespace attn
