// python/src/terms.h: biases, scores and expressions beside the arrays they are made of, so that gradients find their
// way back.
#pragma once
#include <attn/attention.h>

#include "arrays.h"

#include <string>
#include <utility>
#include <vector>

namespace attn::python {

/// A mask; `arrays`: those that it holds; `parts`: where there are some, what `made` makes it of, which is a name of
/// Mask's or of the module operator.
struct PyMask {
  Mask mask;
  std::vector<nb::object> arrays = {};
  const char* made = nullptr;
  std::vector<nb::object> parts = {};
};

/// A plan; `told`: the steps of one that was copied or pickled, since the library's numbers mean something else where
/// it has other kernels.
struct PyPlan {
  Plan plan;
  std::vector<PlanStep> told = {};
  std::vector<PlanStep> steps() const { return told.empty() ? plan.steps() : told; }
};

/// Which weights; `arrays`: the indices, where it has some.
struct PyWeights {
  Weights weights;
  std::vector<nb::object> arrays = {};
};

/// A bias; `arrays`: of each term what it was made of, or None (numbers that were copied).
struct PyBias {
  Bias bias;
  std::vector<nb::object> arrays;
};

/// What __reduce__ gives: T's method `name` with these arguments makes the object again. Arrays stay arrays: the bias
/// of a copied module is over the copied parameter.
template <typename T, typename... Arguments>
nb::tuple made_again(const char* name, Arguments&&... arguments) {
  return nb::make_tuple(nb::module_::import_("attn._copies").attr("made"),
                        nb::make_tuple(nb::type<T>(), name, std::forward<Arguments>(arguments)...));
}

/// How a query and a key make a number; `arrays`: w, or w_q, w_k, w.
struct PyScore {
  Score score;
  std::vector<nb::object> arrays;
};

/// What an expression looks up.
struct PyLookup {
  const void* tensor;  // the identity of the tensor
  nb::object array;
  std::string name;
};

/// A function of a score; `arrays`: what it looks up.
struct PyScoreExpression {
  ScoreExpression expression;
  std::vector<PyLookup> arrays;

  nb::object array_of(const Tensor& values) const {
    for (const PyLookup& each : arrays)
      if (each.tensor == values.impl()) return each.array;
    return nb::none();
  }
};

/// The term over other values.
Bias with_values(const Bias::Term& term, const Tensor& values);

void add_mask(nb::module_& m);
void add_bias(nb::module_& m);
void add_score(nb::module_& m);
void add_score_expression(nb::module_& m);
void add_weights(nb::module_& m);
void add_attention(nb::module_& m);
void add_passes(nb::module_& m);
void add_tape(nb::module_& m);
void add_cache(nb::module_& m);
void add_explain(nb::module_& m);
void add_runtime(nb::module_& m);
void add_verify(nb::module_& m);
void add_random(nb::module_& m);
void add_checksum(nb::module_& m);
void add_refusals(nb::module_& m);

}  // namespace attn::python
