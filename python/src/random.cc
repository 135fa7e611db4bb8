// python/src/random.cc: binds the library's generator, which dropout without a seed draws from.
#include <attn/random.h>

#include "scalars.h"
#include "terms.h"

namespace attn::python {

void add_random(nb::module_& m) {
  m.def(
      "manual_seed", [](nb::handle x) { manual_seed(seed(x, {"manual_seed", "seed"})); }, nb::arg("seed").none(),
      "Seeds the library's generator, whose numbers are torch's: dropout of NumPy arrays draws from it.");
}

}  // namespace attn::python
