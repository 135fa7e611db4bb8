// src/ranks/verify.h: compares what ranks compute together with what this process computes alone.
#pragma once
#include <attn/ranks.h>

#include <string>
#include <vector>

namespace attn {

struct RankRow {
  std::string name;
  std::int64_t cases = 0, different = 0;
};

/// Collective. Every rank also computes alone, so that processors that differ are found too.
std::vector<RankRow> verify_ranks(const Ranks& ranks);

}  // namespace attn
