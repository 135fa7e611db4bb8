// src/cli/weights.h: loads the user's own matrices for attn explain.
#pragma once
#include <attn/explain.h>

#include <string>

namespace attn::cli {

/// Loads w_query, w_key, w_value and, if present, embedding from a safetensors file or a folder of .npy files.
void load_weights(const std::string& path, ExplainOptions& options);

}  // namespace attn::cli
