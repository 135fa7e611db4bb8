// src/runtime/thread_scratch.cc: keeps one block of scratch memory for each thread.
#include "runtime/thread_scratch.h"

#include "runtime/thread_block.h"

#include <utility>

namespace attn::runtime {
namespace {

constinit thread_local ThreadBlock this_scratch;

}  // namespace

void* thread_scratch(std::size_t bytes) { return this_scratch.at_least(bytes); }

OwnScratch::OwnScratch() noexcept
    : data_(std::exchange(this_scratch.data, nullptr)), bytes_(std::exchange(this_scratch.bytes, 0)) {}
OwnScratch::~OwnScratch() {
  deallocate(this_scratch.data);
  this_scratch.data = data_;
  this_scratch.bytes = bytes_;
}

}  // namespace attn::runtime
