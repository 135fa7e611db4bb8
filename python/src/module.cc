// python/src/module.cc: attn._core, the library as Python sees it; the package in python/attn/ is its face.
#include "errors.h"
#include "terms.h"

namespace nb = nanobind;

NB_MODULE(_core, m) {
  using namespace attn::python;
  nb::set_leak_warnings(false);  // classes live as long as the process; what leaks is measured by the tests
  add_errors(m);
  add_mask(m);
  add_bias(m);
  add_score(m);
  add_score_expression(m);
  add_weights(m);
  add_passes(m);
  add_tape(m);
  add_attention(m);
  add_cache(m);
  add_explain(m);
  add_verify(m);
  add_runtime(m);
  add_random(m);
  add_checksum(m);
}
