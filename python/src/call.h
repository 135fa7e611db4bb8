// python/src/call.h: reads the arguments of attention; all options come in one tuple of fixed order.
#pragma once
#include <attn/attention.h>

#include "call_tensors.h"
#include "terms.h"

namespace attn::python {

/// A tensor of a call that can have a gradient, with the array it was read from.
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
  PyScoreExpression score_mod, weight_mod;
  nb::handle sinks, out = Py_None;
  bool wants_logsumexp = false;

  /// `options` is a tuple in the order of option_names(). If k and v are invalid handles, the keys and values are those
  /// of a cache, or others. `keeps`: the tensors stay valid after the call. `q_name`: the name of q in errors.
  Call(const char* function, nb::handle q, nb::handle k, nb::handle v, nb::handle options, bool keeps = false,
       const char* q_name = "q");

  /// Returns the arrays of q, k, v, sinks, the score, the bias and the floating tables of score_mod and of
  /// weight_mod. Left out are options that are not given, and bias terms of copied numbers.
  std::vector<Leaf> leaves(nb::handle q, nb::handle k, nb::handle v);
  /// Updates the options after tensors of leaves() were changed.
  void join();

 private:
  std::vector<Tensor> bias_values_, mod_values_;
};

/// Returns the names of the options, in order.
nb::tuple option_names();

/// Returns (output, weights, logsumexp, plan, dropout_seed), with None for results that were not requested. `output` is
/// the array that already holds the output, or an invalid handle.
nb::tuple shown(const AttentionResult& result, nb::object output, const Call& call);

/// Reads an attn.Mask, or the text of one.
PyMask mask_of(nb::handle x, const char* function);
/// Reads "scaled_dot", "dot" or an attn.Score.
PyScore score_of(nb::handle x, const char* function);
/// Reads the text of a normalizer.
Normalizer normalizer_of(nb::handle x, const char* function);
/// Reads an attn.ScoreExpression; Python code has already traced functions to such expressions.
PyScoreExpression expression_of(nb::handle x, const char* function, const char* name = "score_mod");
/// Reads a name of weights, a text such as "top_k(3)" or an attn.Weights.
PyWeights weights_of(nb::handle x, const char* function);

}  // namespace attn::python
