// src/io/write.h: writes a file completely or not at all.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace attn::io {

/// Writes the pieces one after another to a file without a name in the folder of `path` (or to one with a temporary
/// name if the system has no such files), syncs it, gives it a temporary name, and renames it to `path`. On any failure
/// the old file stays, the temporary file is removed, and an IoError names the function, the path and the reason.
/// Temporary files that killed processes left in the folder are removed first. A symbolic link to a file is followed. A
/// path that exists and is not a regular file (a pipe, a device) is written directly. A path with a zero byte is a
/// ValueError.
void write_whole(const char* function, const std::string& path, const std::vector<std::span<const std::byte>>& pieces);

/// Removes the temporary files in the folder that write_whole left when its process was killed. These are the files
/// that nobody holds locked; files that another process, container or machine is still writing stay.
void remove_leftovers(const std::string& folder);

}  // namespace attn::io
