// python/src/latent.h: reads the arguments of latent attention.
#pragma once
#include <attn/latent_attention.h>

#include "call.h"

namespace attn::python {

struct LatentCall {
  Call call;
  LatentOperands operands;
  LatentForm form;

  /// `arrays`: q_nope, q_rope, latent, k_rope, w_uk, w_uv; latent and k_rope are None if a cache holds them. `options`:
  /// as for Call.
  LatentCall(const char* function, nb::tuple arrays, nb::handle options, nb::handle form, bool keeps);

  /// Returns the arrays of the operands and of the options that can have a gradient.
  std::vector<Leaf> leaves();

 private:
  nb::tuple arrays_;
};

}  // namespace attn::python
