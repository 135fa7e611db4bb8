// src/runtime/call_scratch.h: memory that a call shares with the parts of its work, kept between calls.
#pragma once
#include <cstddef>

namespace attn::runtime {

/// At least `bytes`, 64-byte aligned, of this thread's own that is not its `thread_scratch`: the parts it runs itself
/// use that one. Its content is undefined; a later call of the same thread may hand out the same memory again. Grows,
/// never shrinks.
void* call_scratch(std::size_t bytes);

}  // namespace attn::runtime
