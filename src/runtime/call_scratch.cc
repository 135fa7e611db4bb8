// src/runtime/call_scratch.cc: keeps one block of scratch memory for each calling thread.
#include "runtime/call_scratch.h"

#include "runtime/thread_block.h"

namespace attn::runtime {

void* call_scratch(std::size_t bytes) {
  constinit static thread_local ThreadBlock block;
  return block.at_least(bytes);
}

}  // namespace attn::runtime
