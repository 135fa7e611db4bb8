// src/cli/train_texts.h: declares how the texts and pairs of a training are read.
#pragma once
#include <attn/train.h>

#include <string>
#include <vector>

namespace attn::cli {

/// Returns the texts as one. Unless `any_bytes`, they must be UTF-8.
std::string read_texts(const std::vector<std::string>& paths, bool any_bytes);
/// Returns the pairs of a file whose lines are SOURCE<tab>TARGET. Throws a ValueError that names the line of a mistake.
std::vector<TextPair> read_pairs(const std::string& path, bool any_bytes);

}  // namespace attn::cli
