// src/verify/results.h: the results of a case by one way to compute it.
#pragma once
#include <attn/tensor.h>

#include <vector>

namespace attn::cases {

/// Named results: attention gives output and logsumexp.
struct Result {
  const char* name;
  Tensor values;
};
using Results = std::vector<Result>;

}  // namespace attn::cases
