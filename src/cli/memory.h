// src/cli/memory.h: configures the system's allocator for the command.
#pragma once

namespace attn::cli {

/// Makes malloc keep freed memory in the process. The library itself keeps large blocks. Returning smaller ones, and
/// those of the C++ library, to the system and requesting them again would still take 2 to 4 % of a small model's
/// training step.
void keep_freed_memory();

}  // namespace attn::cli
