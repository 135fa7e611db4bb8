// src/model/stored.h: lists the tensors of a model's file and the parameter that each belongs to.
#pragma once
#include "model/family.h"

#include <string>
#include <string_view>
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

/// Returns whether the tensor of that name is a buffer of older files, a mask or frequencies, which the config
/// determines. It is not read.
bool is_buffer(std::string_view name);

/// Returns whether the tensor of that name is the output layer's table. A model with a tied head does not need it.
bool is_head(std::string_view name);

}  // namespace attn
