// src/runtime/call_scratch.cc: a block a thread.
#include "runtime/call_scratch.h"

#include "runtime/memory.h"

#include <memory>

namespace attn::runtime {

void* call_scratch(std::size_t bytes) {
  struct Block {
    std::unique_ptr<void, void (*)(void*)> data{nullptr, deallocate};
    std::size_t bytes = 0;
  };
  thread_local Block block;
  if (!block.data || block.bytes < bytes) {
    block.data.reset();
    block.data.reset(allocate(bytes));
    block.bytes = bytes;
  }
  return block.data.get();
}

}  // namespace attn::runtime
