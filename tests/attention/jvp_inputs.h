// tests/attention/jvp_inputs.h: options that have tangents, and operands with the direction in which they move.
#pragma once
#include <attn/attention_jvp.h>

#include "attention/every_option.h"

#include <string>
#include <vector>

namespace attn::testing {

/// The options that have a tangent.
inline std::vector<Option> moving_options() {
  std::vector<Option> all = every_option();
  std::erase_if(all, [](const Option& option) {
    const std::string name = option.name;
    return name == "score callable" || name == "additive score" || name == "general score";
  });
  return all;
}

/// Operands and a direction; every value is the same in all floating types.
struct Direction {
  Tensor q, k, v;
  AttentionTangents tangents;

  explicit Direction(const OptionSizes& z, const AttentionOptions& options = {})
      : q(exact({1, z.heads, z.rows, z.dim}, z.dtype, 1)), k(exact({1, z.heads, z.rows, z.dim}, z.dtype, 2)),
        v(exact({1, z.heads, z.rows, z.dim}, z.dtype, 3)) {
    tangents.q = exact(q.sizes(), z.dtype, 4), tangents.k = exact(k.sizes(), z.dtype, 5),
    tangents.v = exact(v.sizes(), z.dtype, 6);
    if (options.sinks.defined()) tangents.sinks = exact(options.sinks.sizes(), options.sinks.dtype(), 7);
    for (const Bias::Term& term : options.bias.terms())
      tangents.bias.push_back(exact(term.values.sizes(), term.values.dtype(), 8));
  }

  /// The operands, and the sinks and bias terms of options, after a step of length h.
  static Tensor by(const Tensor& x, const Tensor& tangent, double h) { return add(x, mul(tangent, h)); }
  Direction moved(double h) const {
    Direction there = *this;
    there.q = by(q, tangents.q, h), there.k = by(k, tangents.k, h), there.v = by(v, tangents.v, h);
    return there;
  }
  AttentionOptions moved(const AttentionOptions& options, double h) const {
    AttentionOptions there = options;
    if (options.sinks.defined()) there.sinks = by(options.sinks, tangents.sinks, h);
    there.bias = {};
    for (std::size_t n = 0; n < tangents.bias.size(); ++n) {
      const Bias::Term& term = options.bias.terms()[n];
      const Tensor values = by(term.values, tangents.bias[n], h);
      there.bias = there.bias + (term.kind == Bias::Kind::dense ? Bias::dense(values)
                                 : term.kind == Bias::Kind::alibi
                                     ? Bias::alibi(values, term.align, term.symmetric)
                                     : Bias::relative(values, term.bidirectional, term.max_distance, term.align));
    }
    return there;
  }
};

}  // namespace attn::testing
