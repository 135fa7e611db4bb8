// src/model/stored.h: lists the tensors of a model's file and the parameter that each belongs to.
#pragma once
#include "model/family.h"

#include <string>
#include <vector>

namespace attn {

/// One tensor of the file, which holds some rows of one of the model's parameters.
struct StoredTensor {
  std::string name;       // name in the file
  Dims sizes;             // sizes in the file
  std::string parameter;  // name of the parameter in the model
  std::int64_t row = 0, rows = 0;
  bool transposed = false;  // [in, out] in the file, as in GPT-2
};

std::vector<StoredTensor> stored_tensors(const ModelConfig& config);

/// Returns the prefix of all tensor names in a family's files; a file of the bare decoder omits the prefix.
std::string prefix_of(Family family);

/// Returns whether the config determines the content of the tensor of that name: masks and frequencies in older files,
/// and a tied head.
bool follows_from_shape(const ModelConfig& config, const std::string& name);

}  // namespace attn
