// src/runtime/call_scratch.h: declares the scratch memory that a call shares among its parts and keeps between calls.
#pragma once
#include <cstddef>

namespace attn::runtime {

/// Returns at least `bytes` of this thread's own memory, 64-byte aligned. It is not the thread's `thread_scratch`,
/// because the parts that this thread runs itself use that. The content is undefined. A later call on the same thread
/// may return the same memory. The memory grows and never shrinks.
void* call_scratch(std::size_t bytes);

}  // namespace attn::runtime
