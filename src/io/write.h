// src/io/write.h: a file appears whole or not at all.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace attn::io {

/// Writes the pieces one after the other to a temporary name in the same folder, syncs, renames. On any failure the old
/// file stays, the temporary one goes, and an IoError names function, path and reason. A link is followed; what is no
/// regular file (a pipe, a device) is written directly.
void write_whole(const char* function, const std::string& path, const std::vector<std::span<const std::byte>>& pieces);

/// Removes the temporary files of write_whole whose process was killed: those in the folder of a process of this machine that is no more, or had
/// this one's number (in a container it is always the same). For callers that write nothing now, and that nobody elsewhere shares the folder with.
void remove_leftovers(const std::string& folder);

}  // namespace attn::io
