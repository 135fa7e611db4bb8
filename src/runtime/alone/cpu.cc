// src/runtime/alone/cpu.cc: reports a processor that has a name and the reference code alone.
#include "runtime/cpu.h"

#include "runtime/once.h"

namespace attn::runtime {

const Cpu& cpu() {
  constinit static Once<Cpu> here;
  return here.get([] {
    Cpu result;
    result.name = "WebAssembly";
    return result;
  });
}

}  // namespace attn::runtime
