// python/src/module.cc: defines attn._core, the extension module; python/attn/ is the public package.
#include "errors.h"
#include "terms.h"

#include <stdexcept>

namespace nb = nanobind;

namespace {

/// Raises an error in a second interpreter of the process (such as mod_wsgi's). Objects that are looked up once, by
/// this module and by nanobind, belong to the first interpreter, and the second one would replace them.
void refuse_second_interpreter() {
  static PyInterpreterState* const first = PyInterpreterState_Get();
  static auto* const first_internals = nb::detail::internals;
  if (PyInterpreterState_Get() == first) return;
  nb::detail::internals = first_internals;
  throw std::runtime_error("attn: another interpreter of this process has loaded attn; it can be used in one of them");
}

}  // namespace

NB_MODULE(_core, m) {
  using namespace attn::python;
  refuse_second_interpreter();
  nb::set_leak_warnings(false);  // classes live as long as the process; tests measure leaks
  add_errors(m);
  add_mask(m);
  add_bias(m);
  add_score(m);
  add_score_expression(m);
  add_weights(m);
  add_passes(m);
  add_jvp(m);
  add_recurrent(m);
  add_latent(m);
  add_tape(m);
  add_attention(m);
  add_cache(m);
  add_ranks(m);
  add_explain(m);
  add_verify(m);
  add_xla(m);
  add_runtime(m);
  add_random(m);
  add_checksum(m);
  add_tokenizer(m);
  add_models(m);
  add_generation(m);
  add_encoder(m);
  add_encoder_decoder(m);
  add_chat(m);
  add_refusals(m);  // last, because it reads the functions that were added before
}
