// python/src/passes.h: reads the arguments of a pass of attention: a few arrays and a few numbers.
#pragma once
#include <attn/attention.h>

#include "call_tensors.h"
#include "errors.h"
#include "scalars.h"

namespace attn::python {

/// The arguments of a pass: a tuple of arrays (q, k, v, mask, bias, sinks; the last three may be None), and one of
/// numbers (scale, softcap, causal, window_left, window_right, bottom_right, dropout_p, dropout_seed). If dropout_seed
/// is None, a seed is drawn.
struct Pass {
  Reader read;
  Tensor q, k, v;
  AttentionOptions options;

  Pass(const char* function, const nb::tuple& operands, const nb::tuple& numbers) : read(function) {
    if (nb::len(operands) != 6 || nb::len(numbers) != 8)
      throw type_error("{}: six operands and eight numbers are needed", function);
    q = read(operands[0], "q"), k = read(operands[1], "k"), v = read(operands[2], "v");
    options.sinks = read.optional(operands[5], "sinks");
    options.scale = number(numbers[0], {function, "scale"});
    options.softcap = number(numbers[1], {function, "softcap"});
    const Align align = flag(numbers[5], {function, "bottom_right"}) ? Align::bottom_right : Align::top_left;
    const std::int64_t left = whole(numbers[3], {function, "window_left"}),
                       right = whole(numbers[4], {function, "window_right"});
    if (flag(numbers[2], {function, "causal"})) options.mask = Mask::causal(align);
    if (left != -1 || right != -1) options.mask = options.mask & Mask::window(left, right, align);
    if (const Tensor mask = read.optional(operands[3], "mask"); mask.defined())
      options.mask = options.mask & Mask::attend(mask);
    if (const Tensor bias = read.optional(operands[4], "bias"); bias.defined()) options.bias = Bias::dense(bias);
    options.dropout_p = number(numbers[6], {function, "dropout_p"});
    const nb::object given = numbers[7];
    if (!given.is_none()) options.dropout_seed = seed(given, {function, "dropout_seed"});
  }
};

}  // namespace attn::python
