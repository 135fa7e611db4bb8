// src/model/rotary_json.h: reads and writes rotary embedding in config.json, in the format of transformers.
#pragma once
#include <attn/model.h>

#include "model/family.h"
#include "model/json_fields.h"

namespace attn {

/// The rotary embedding that config.json describes.
struct RotaryFields {
  double theta = 10000;
  std::optional<nn::RotaryScaling> scaling = std::nullopt;
  double part = 1;  // of a head that is rotated
};

/// Reads the rotary embedding from `parameters`, if given, and from `fields`, the top level of config.json. `theta`:
/// rope_theta there, or the family's default. `context`: max_position_embeddings.
RotaryFields read_rotary(const JsonFields& fields, const std::optional<JsonFields>& parameters, double theta,
                         std::int64_t context, Family family);

/// Returns the parameters of transformers 5 ("rope_parameters") or earlier versions ("rope_scaling"); nullopt if there
/// are none.
std::optional<JsonFields> rotary_parameters(const JsonFields& fields);

/// Returns the object of the parameters. `context`: max_position_embeddings.
nlohmann::ordered_json rotary_json(double theta, const std::optional<nn::RotaryScaling>& scaling, std::int64_t context);

}  // namespace attn
