// src/cli/weights.h: loads the user's own matrices for attn explain.
#pragma once
#include <attn/explain.h>

#include <string>

namespace attn::cli {

/// Loads w_query, w_key, w_value and, if present, embedding, w_output, query_vector, score_w_query, score_w_key and
/// score_w from a safetensors file or a folder of .npy files.
void load_weights(const std::string& path, ExplainOptions& options);

}  // namespace attn::cli
