// src/model/gguf/architecture.h: the architectures of GGUF files that attn reads.
#pragma once
#include <attn/gguf.h>

#include "model/family.h"

namespace attn::gguf {

struct Architecture {
  const char* name;  // of general.architecture, and before the keys
  Family family;
  // The rows of q and k are stored in the order of rotary pairs that are neighbours: element i of a head's first half
  // is next to element i of its second half.
  bool neighbours;
};

/// Mistral's models are written as llama.
inline constexpr Architecture architectures[] = {{"llama", Family::llama, true},     {"qwen2", Family::qwen2, false},
                                                 {"qwen3", Family::qwen3, false},    {"gemma2", Family::gemma2, false},
                                                 {"gemma3", Family::gemma3, false},  {"phi3", Family::phi3, false},
                                                 {"smollm3", Family::smollm3, true}, {"gpt2", Family::gpt2, false}};

/// The layers that have no window (Gemma) or do not rotate (SmolLM 3) are every n-th; 0: none.
constexpr std::int64_t layer_period(Family family) {
  return family == Family::gemma2 ? 2 : family == Family::gemma3 ? 6 : family == Family::smollm3 ? 4 : 0;
}

/// Returns the file's architecture; ValueError for one that is not in the table.
const Architecture& architecture_of(const GgufFile& file);

}  // namespace attn::gguf
