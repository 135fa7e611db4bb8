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

/// Removes the temporary files in the folder that write_whole left when its process was killed: those that nobody holds locked, whichever process,
/// container or machine is at work on the others.
void remove_leftovers(const std::string& folder);

}  // namespace attn::io
