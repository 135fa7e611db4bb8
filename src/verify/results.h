// src/verify/results.h: holds the results of a case from one way to compute it.
#pragma once
#include <attn/tensor.h>

#include <vector>

namespace attn::cases {

/// Holds a named result; attention gives output, logsumexp and the weights that the case requests.
struct Result {
  const char* name;
  Tensor values;
};
using Results = std::vector<Result>;

}  // namespace attn::cases
