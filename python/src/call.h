// python/src/call.h: the arguments of attention, from one tuple of options in a fixed order.
#pragma once
#include <attn/attention.h>

#include "arrays.h"
#include "terms.h"

namespace attn::python {

/// A tensor of a call that can have a gradient, and the array it is.
struct Leaf {
  Tensor* tensor;
  nb::object array;
};

struct Call {
  Reader read;
  Tensor q, k, v;
  AttentionOptions options;
  PyScore score;
  PyBias bias;
  PyScoreExpression score_mod;
  nb::handle sinks, out = Py_None;
  bool wants_logsumexp = false;

  /// `options`: a tuple, in the order of option_names(). Without k and v (invalid handles) they are a cache's. `keeps`:
  /// the tensors are good beyond the call.
  Call(const char* function, nb::handle q, nb::handle k, nb::handle v, nb::handle options, bool keeps = false);

  /// Those of q, k, v, sinks, the score, the bias and score_mod that are floating arrays.
  std::vector<Leaf> leaves(nb::handle q, nb::handle k, nb::handle v);
  /// After leaves were changed: the options hold them.
  void join();

 private:
  std::vector<Tensor> bias_values_, mod_values_;
};

/// The names of the options, in order.
nb::tuple option_names();

/// (output, weights, logsumexp, plan, dropout_seed): None for what was not asked for. `output`: the array that holds it
/// already, or invalid.
nb::tuple shown(const AttentionResult& result, nb::object output, const Call& call);

/// An attn.Mask or its text.
PyMask mask_of(nb::handle x, const char* function);
/// None, a name, an attn.Score.
PyScore score_of(nb::handle x, const char* function);
/// An attn.ScoreExpression: functions were traced before.
PyScoreExpression expression_of(nb::handle x, const char* function);
/// A name, an attn.Weights.
PyWeights weights_of(nb::handle x, const char* function);

}  // namespace attn::python
