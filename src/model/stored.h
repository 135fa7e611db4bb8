// src/model/stored.h: lists the tensors of a model's file and the parameter that each belongs to.
#pragma once
#include "model/family.h"

#include <string>
#include <string_view>
#include <vector>

namespace attn {

/// Rows of a tensor of the file, which are rows of one of the model's parameters. A tensor with rows of several
/// parameters (Phi-3's gate and up) is listed once for each, one after the other.
struct StoredTensor {
  std::string name;       // name in the file
  Dims sizes;             // sizes in the file
  std::string parameter;  // name of the parameter in the model
  std::int64_t row = 0, rows = 0;
  bool transposed = false;    // [in, out] in the file, as in GPT-2
  std::int64_t file_row = 0;  // the first of the rows in the file
};

/// Lists the tensors under the names of a family: that of the file, or, to write one, that of the config.
std::vector<StoredTensor> stored_tensors(const ModelConfig& config, Family family);

/// Returns the prefix of all tensor names in a family's files; a file of the bare decoder omits the prefix.
std::string prefix_of(Family family);

/// Returns whether the tensor of that name is a buffer of older files, a mask or frequencies, which the config
/// determines. It is not read.
bool is_buffer(std::string_view name);

/// Returns whether the tensor of that name is the output layer's table. A model with a tied head does not need it.
bool is_head(std::string_view name);

}  // namespace attn
