// python/src/tape.h: a recorded call: what a framework's autograd keeps between its forward and its backward pass.
#pragma once
#include "arrays.h"

namespace attn::python {

/// The library's own record of a call. Its gradients are those of the library: all it can differentiate, any number of
/// times.
struct Tape {
  std::vector<Tensor> inputs;   // where gradients are wanted
  std::vector<Tensor> outputs;  // of the call; undefined where it gave none
  Framework framework = Framework::numpy;
};

}  // namespace attn::python
