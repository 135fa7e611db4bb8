// python/src/terms.h: pairs masks, biases, scores and expressions with the arrays from which they are made, so that
// gradients reach these arrays.
#pragma once
#include <attn/attention.h>

#include "arrays.h"

#include <string>
#include <utility>
#include <vector>

namespace attn::python {

/// A mask. `arrays`: the arrays that it holds. If it holds any, a copy is made from `made` and `parts`: `made` is the
/// name of a method of Mask or of a function of the module operator, and `parts` are its arguments.
struct PyMask {
  Mask mask;
  std::vector<nb::object> arrays = {};
  const char* made = nullptr;
  std::vector<nb::object> parts = {};
};

/// A plan. `told`: the steps of a plan that was copied or pickled. They are stored as text, because the plan's numbers
/// mean something else on a machine with other kernels.
struct PyPlan {
  Plan plan;
  std::vector<PlanStep> told = {};
  std::vector<PlanStep> steps() const { return told.empty() ? plan.steps() : told; }
};

/// The choice of weights to return. `arrays`: the indices, if there are any.
struct PyWeights {
  Weights weights;
  std::vector<nb::object> arrays = {};
};

/// A bias. `arrays`: for each term the array from which it was made, or None for copied numbers; behind the table of a
/// relative product its operand, if it has one.
struct PyBias {
  Bias bias;
  std::vector<nb::object> arrays;
};

/// Returns the result of __reduce__ with which a call of T's method `name` with these arguments makes the object again.
/// Arrays stay arrays: the bias of a copied module uses the copied parameter.
template <typename T, typename... Arguments>
nb::tuple made_again(const char* name, Arguments&&... arguments) {
  return nb::make_tuple(nb::module_::import_("attn._copies").attr("made"),
                        nb::make_tuple(nb::type<T>(), name, std::forward<Arguments>(arguments)...));
}

/// A score function. `arrays`: w, or w_q, w_k, w.
struct PyScore {
  Score score;
  std::vector<nb::object> arrays;
};

/// An array that an expression indexes.
struct PyLookup {
  const void* tensor;  // the identity of the tensor
  nb::object array;
  std::string name;
};

/// A score_mod expression. `arrays`: the arrays that it indexes.
struct PyScoreExpression {
  ScoreExpression expression;
  std::vector<PyLookup> arrays;

  nb::object array_of(const Tensor& values) const {
    for (const PyLookup& each : arrays)
      if (each.tensor == values.impl()) return each.array;
    return nb::none();
  }
};

/// Returns the same bias term over other values, and another operand if it has one.
Bias with_values(const Bias::Term& term, const Tensor& values, const Tensor& operand);

void add_mask(nb::module_& m);
void add_bias(nb::module_& m);
void add_score(nb::module_& m);
void add_score_expression(nb::module_& m);
void add_weights(nb::module_& m);
void add_attention(nb::module_& m);
void add_passes(nb::module_& m);
void add_jvp(nb::module_& m);
void add_recurrent(nb::module_& m);
void add_latent(nb::module_& m);
void add_tape(nb::module_& m);
void add_cache(nb::module_& m);
void add_explain(nb::module_& m);
void add_ranks(nb::module_& m);
void add_runtime(nb::module_& m);
void add_verify(nb::module_& m);
void add_xla(nb::module_& m);
void add_random(nb::module_& m);
void add_checksum(nb::module_& m);
void add_tokenizer(nb::module_& m);
void add_models(nb::module_& m);
void add_generation(nb::module_& m);
void add_encoder(nb::module_& m);
void add_encoder_decoder(nb::module_& m);
void add_chat(nb::module_& m);
void add_refusals(nb::module_& m);

}  // namespace attn::python
