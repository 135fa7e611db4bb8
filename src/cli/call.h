// src/cli/call.h: describes one attention call read from a file: named tensors and named settings.
#pragma once
#include <attn/attention.h>

#include <map>
#include <string>

namespace attn::cli {

/// The content of a file. Tensors: q, k, v; attend, block, key_padding, blocks (masks); bias, alibi_slopes; sinks;
/// query_lengths, key_lengths, key_start, query_start; w_q, w_k, w (the score's). Settings: causal, mask, block_size,
/// scale, score, score_mod, softcap, temperature, weights, dtype. Tables: tensors of any other name, which score_mod
/// looks up.
struct Call {
  std::string path;
  std::map<std::string, Tensor> tensors, tables;
  std::map<std::string, std::string> settings;
  std::map<std::string, std::string> options;  // for a setting from the command line, the option that set it
};

/// Loads JSON (an object; tensors as nested lists or {"dtype", "shape", "values"}) or safetensors (settings are its
/// metadata); the content decides which. Throws FormatError or IoError, and a ValueError for an unknown name.
Call load_call(const std::string& path);
/// Throws a ValueError for a table that score_mod does not look up, because its name is probably misspelt.
void check_tables(const Call& call);

struct AttentionCall {
  Tensor q, k, v;
  AttentionOptions options;
};
/// Converts the call to the library's types. Throws a ValueError for a missing tensor or a wrong setting of the file,
/// and a UsageError for a wrong setting of the command line.
AttentionCall to_attention(const Call& call);

}  // namespace attn::cli
