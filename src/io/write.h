// src/io/write.h: a file appears whole or not at all.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace attn::io {

/// Writes the pieces one after the other to a file without a name in the same folder (where the system has none, to one
/// with a temporary name), syncs, names it, renames that. On any failure the old file stays, the temporary one goes,
/// and an IoError names function, path and reason. What a killed process left in the folder goes first. A link is
/// followed; what is no regular file (a pipe, a device) is written directly. ValueError for a path with a zero byte.
void write_whole(const char* function, const std::string& path, const std::vector<std::span<const std::byte>>& pieces);

/// Removes the temporary files in the folder that write_whole left when its process was killed: those that nobody holds
/// locked, whichever process, container or machine is at work on the others.
void remove_leftovers(const std::string& folder);

}  // namespace attn::io
