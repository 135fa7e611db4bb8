// src/cli/call.h: one call of attention as a file says it: named tensors and named settings.
#pragma once
#include <attn/attention.h>

#include <map>
#include <string>

namespace attn::cli {

/// What a file holds. Tensors: q, k, v; attend, block, key_padding (masks); bias, alibi_slopes; sinks; query_lengths,
/// key_lengths, key_start, query_start; w_q, w_k, w (the score's). Settings: causal, mask, scale, score, score_mod,
/// softcap, temperature, weights, dtype. Tables: tensors under any other name, which score_mod looks up.
struct Call {
  std::string path;
  std::map<std::string, Tensor> tensors, tables;
  std::map<std::string, std::string> settings;
  std::map<std::string, std::string> options;  // of settings that the command line gave: their names there
};

/// JSON (an object; tensors as nested lists or {"dtype", "shape", "values"}) or safetensors (settings are its
/// metadata). The content decides which. FormatError, IoError; ValueError for a name that is not one of these.
Call load_call(const std::string& path);
/// ValueError for a table that score_mod does not name: a slip of the finger.
void check_tables(const Call& call);

struct AttentionCall {
  Tensor q, k, v;
  AttentionOptions options;
};
/// The call in the library's terms. ValueError for a tensor that is missing or a setting of the file that is not
/// understood; UsageError for one of the command line.
AttentionCall to_attention(const Call& call);

}  // namespace attn::cli
