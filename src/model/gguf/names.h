// src/model/gguf/names.h: lists the tensors of a model's GGUF file and the parameter that each belongs to.
#pragma once
#include "model/gguf/architecture.h"
#include "model/stored.h"

#include <vector>

namespace attn::gguf {

/// A tensor of the file and the rows of a parameter that it holds.
struct Stored : StoredTensor {
  /// Returns whether it belongs to a linear layer or to the table of tokens.
  bool is_matrix() const {
    return sizes.size() == 2 && parameter != "positions.weight" && parameter != "segments.weight";
  }
  std::int64_t head_rows = 0;  // of a head, if the rows of rotary pairs are neighbours; else 0
  double added = 0;            // 1: the file holds 1 + weight, as of Gemma's norms
};

std::vector<Stored> stored_tensors(const Architecture& architecture, const ModelConfig& config);

}  // namespace attn::gguf
