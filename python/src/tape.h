// python/src/tape.h: declares a recorded call, which a framework's autograd keeps between its forward and its backward
// pass.
#pragma once
#include "call_tensors.h"

namespace attn::python {

/// The library's own record of a call. From it the gradients of everything that the library can differentiate can be
/// computed, any number of times.
struct Tape {
  std::vector<Tensor> inputs;   // those that need gradients
  std::vector<Tensor> outputs;  // undefined for results that were not requested
  Framework framework = Framework::numpy;
};

}  // namespace attn::python
