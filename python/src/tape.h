// python/src/tape.h: holds a recorded call: what a framework's autograd keeps between its forward and its backward
// pass.
#pragma once
#include "arrays.h"

namespace attn::python {

/// Holds the library's own record of a call. It gives gradients of everything the library can differentiate, any number
/// of times.
struct Tape {
  std::vector<Tensor> inputs;   // those that need gradients
  std::vector<Tensor> outputs;  // undefined for results that were not requested
  Framework framework = Framework::numpy;
};

}  // namespace attn::python
