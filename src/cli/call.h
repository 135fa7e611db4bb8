// src/cli/call.h: one call of attention as a file says it: named tensors and named settings.
#pragma once
#include <attn/attention.h>

#include <map>
#include <string>

namespace attn::cli {

/// What a file holds. Tensors: q, k, v; attend, block, key_padding (masks); bias, alibi_slopes; sinks; query_lengths,
/// key_lengths, key_start, query_start; w_q, w_k, w (the score's). Settings: causal, mask, scale, score, softcap,
/// temperature, weights, dtype.
struct Call {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> settings;
};

/// JSON (an object; tensors as nested lists or {"dtype", "shape", "values"}) or safetensors (settings are its metadata).
/// The content decides which. FormatError, IoError; ValueError for a name that is not one of these.
Call load_call(const std::string& path);

struct AttentionCall {
  Tensor q, k, v;
  AttentionOptions options;
};
/// The call in the library's terms. ValueError for a tensor that is missing or a setting that is not understood.
AttentionCall to_attention(const Call& call);

}  // namespace attn::cli
