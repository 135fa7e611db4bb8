// src/cli/memory.h: what the command asks of the system's allocator.
#pragma once

namespace attn::cli {

/// Memory that is freed stays with the process: each step of training and each token allocates what the last one freed, and handing it
/// to the system and back cost a fifth of a training step.
void keep_freed_memory();

}  // namespace attn::cli
