// src/cli/weights.h: the user's own matrices for attn explain.
#pragma once
#include <attn/explain.h>

#include <string>

namespace attn::cli {

/// From a safetensors file, or a folder of .npy files: w_query, w_key, w_value, and embedding when it is there.
void load_weights(const std::string& path, ExplainOptions& options);

}  // namespace attn::cli
