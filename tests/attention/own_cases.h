// tests/attention/own_cases.h: cases that a test has in a table of its own, beside those of attn verify.
#pragma once
#include "verify/compare.h"

#include <gtest/gtest.h>

#include <span>

namespace attn::testing {

/// A line of attn verify, and the digest that f32 and f64 have on every machine, target and number of threads.
struct OwnCase {
  const char *line, *digest;
};

/// Compares each case on all targets; those of f32 and f64 also with their digests.
inline void expect_digests(std::span<const OwnCase> table) {
  for (const OwnCase& c : table) {
    const VerifyReport report = cases::compare({c.line}, cases::all_ways());
    EXPECT_TRUE(report.passed()) << report.difference << "; again: attn verify '" << report.line << "'";
    const Dtype dtype = cases::parse_case(c.line).dtype;
    if (dtype == Dtype::f32 || dtype == Dtype::f64) { EXPECT_EQ(report.digest, c.digest) << c.line; }
  }
}

}  // namespace attn::testing
