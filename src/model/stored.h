// src/model/stored.h: the tensors of a model's file, and where each belongs in the model.
#pragma once
#include "model/family.h"

#include <string>
#include <vector>

namespace attn {

/// One tensor of the file: rows of one of the model's parameters.
struct StoredTensor {
  std::string name;       // in the file
  Dims sizes;             // in the file
  std::string parameter;  // in the model
  std::int64_t row = 0, rows = 0;
  bool transposed = false;  // [in, out] in the file, as GPT-2's maps are
};

std::vector<StoredTensor> stored_tensors(const ModelConfig& config);

/// What all names of a family's file begin with; a file of the bare decoder leaves it out.
std::string prefix_of(Family family);

/// Whether a name is of something that follows from the shape: masks and frequencies that older files hold, the head
/// when it is tied.
bool follows_from_shape(const ModelConfig& config, const std::string& name);

}  // namespace attn
